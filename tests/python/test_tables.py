"""Drivers of tables and of zarr groups, against what pandas and zarr give themselves."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from squirrel.driver import CsvDriver, DataFrameDriver, ExcelDriver, FeatherDriver, ParquetDriver, ZarrDriver


def rows(items: object) -> list[list[tuple[str, str]]]:
    """Values with their types, NaN equal to NaN."""
    return [[(type(value).__name__, repr(value)) for value in row] for row in items]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table in each format, in several parts; columns change their types in the last one."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("tables")
    n = 210_001
    df = pd.DataFrame({
        "n": np.arange(n), "half": np.arange(n) / 2, "text": [f"t{i}" for i in range(n)],
        "late": [1] * (n - 1) + [2.5], "gaps": [1] * (n - 5) + [None] * 5,
    })
    df.to_csv(folder / "t.csv", index=False)
    df.to_csv(folder / "t.csv.gz", index=False, compression={"method": "gzip", "compresslevel": 1})
    df.to_feather(folder / "t.feather", chunksize=60_000)
    df.index = pd.RangeIndex(7, 7 + 2 * n, 2)
    df["flag"] = [True] * (n - 1) + [None]
    df["count"] = pd.array([3] * (n - 1) + [None], dtype="Int64")
    df.to_parquet(folder / "t.parquet", row_group_size=70_000)
    df.head(3).drop(columns=["flag", "count"]).to_excel(folder / "t.xlsx", index=False) if _excel() else None
    return folder


def _excel() -> bool:
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        return False
    return True


DRIVERS = [(CsvDriver, "t.csv"), (CsvDriver, "t.csv.gz"), (FeatherDriver, "t.feather"), (ParquetDriver, "t.parquet")]


@pytest.mark.parametrize(("kind", "name"), DRIVERS)
def test_parts_give_what_the_whole_gives(tables: Path, kind: type[DataFrameDriver], name: str) -> None:
    """And each pass reads again: squirrel-core's stream gives nothing the second time."""
    driver = kind(str(tables / name))
    stream = driver.get_iter()
    whole = rows(driver.get_df().itertuples())
    assert rows(stream) == whole == rows(pickle.loads(pickle.dumps(stream)))
    bare = driver.get_iter(itertuples_kwargs={"index": False, "name": "Row"})
    assert rows(bare.take(5)) == rows(driver.get_df().head(5).itertuples(index=False))
    assert type(next(iter(bare))).__name__ == "Row"


@pytest.mark.parametrize(("kind", "name"), DRIVERS)
def test_one_part_at_a_time_is_read(tables: Path, kind: type[DataFrameDriver], name: str) -> None:
    driver = kind(str(tables / name))
    sizes = [len(part) for part in driver._read_parts()]
    assert sum(sizes) == 210_001 and len(sizes) >= 3 and max(sizes) <= 100_000


def test_hooks_see_the_whole(tables: Path) -> None:
    seen = []
    driver = CsvDriver(str(tables / "t.csv"), df_hooks=[lambda df: seen.append(len(df)) or df[df.n > 209_998]])
    assert [row.n for row in driver.get_iter()] == [209_999, 210_000] == list(driver.get_df().n)
    assert seen == [210_001, 210_001]


def test_arguments_for_the_reader(tables: Path) -> None:
    driver = CsvDriver(str(tables / "t.csv"), read_kwargs={"nrows": 3, "usecols": ["n"]})
    assert [tuple(row) for row in driver.get_iter()] == [(0, 0), (1, 1), (2, 2)]
    assert len(driver.get_df(nrows=2)) == 2 and len(driver.get_iter(read_kwargs={"nrows": 2}).collect()) == 2
    typed = CsvDriver(str(tables / "t.csv"), read_kwargs={"dtype": {"n": "float32"}})
    assert {type(row.n) for row in typed.get_iter().take(150_000)} == {float}
    only = ParquetDriver(str(tables / "t.parquet"), read_kwargs={"columns": ["text"]})
    assert next(iter(only.get_iter()))._fields == ("Index", "text")


def test_a_column_of_numbers_and_texts_is_text_throughout(tmp_path: Path) -> None:
    """pandas' answer depends on where its own chunks end."""
    pytest.importorskip("pandas")
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "1\n" * 150_000 + "one\n")
    assert {type(row.x) for row in CsvDriver(str(path)).get_iter()} == {str}


def test_excel(tables: Path) -> None:
    pytest.importorskip("openpyxl")
    driver = ExcelDriver(str(tables / "t.xlsx"))
    assert [row.n for row in driver.get_iter()] == [0, 1, 2] == list(driver.get_df().n)


def test_through_fsspec(tables: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/tables/t.csv", b"a,b\n1,x\n2,y\n")
    options = {"protocol": "simplecache", "target_protocol": "memory", "cache_storage": str(tmp_path / "cache")}
    for driver in (CsvDriver("memory://tables/t.csv"), CsvDriver("memory://tables/t.csv", storage_options=options)):
        assert [tuple(row) for row in driver.get_iter()] == [(0, 1, "x"), (1, 2, "y")]
    assert os.listdir(tmp_path / "cache")


def test_engines(tables: Path) -> None:
    with pytest.raises(ValueError, match='"pandas" or "dask", not "polars"'.replace('"polars"', "'polars'")):
        CsvDriver("x", engine="polars")  # type: ignore[arg-type]
    for kind in (ExcelDriver, FeatherDriver):
        with pytest.raises(ValueError, match="does not support"):
            kind("x", engine="dask")
    try:
        import dask.dataframe  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"pip install .dask\[dataframe\]"):
            CsvDriver(str(tables / "t.csv"), engine="dask").get_df()


# --- zarr ---


def test_zarr_groups(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    from squirrel.zarr.group import SquirrelGroup, get_group
    from squirrel.zarr.store import SquirrelFSStore, suggest_compression

    url = str(tmp_path / "z")
    group = get_group(url, mode="w")
    assert isinstance(group, SquirrelGroup) and isinstance(group, zarr.Group)
    for i in range(3):
        member = group.create_group(f"s{i}")
        if hasattr(member, "create_array"):
            member.create_array("image", data=np.arange(4) + i, compressors=suggest_compression())
        else:
            member.create_dataset("image", data=np.arange(4) + i, compressor=suggest_compression())
        member.attrs["label"] = i
    assert list(group.keys()) == ["s0", "s1", "s2"] and list(group.keys("s0")) == ["image"] == list(group.keys("/s0/"))
    assert (tmp_path / "z" / ".zgroup").exists()  # the format that zarr 2 reads
    assert list(get_group(url, mode="w").keys()) == ["s0", "s1", "s2"]  # "w" alone removes nothing
    read = get_group(url, mode="r")
    assert read.read_only and list(pickle.loads(pickle.dumps(read)).keys()) == ["s0", "s1", "s2"]
    assert read["s1"]["image"][:].tolist() == [1, 2, 3, 4]
    store = SquirrelFSStore(url)
    below = sum(path.stat().st_size for path in (tmp_path / "z" / "s0").rglob("*") if path.is_file())
    assert store.listdir() == ["s0", "s1", "s2"] and store.getsize("s0") == below and store.getsize("none") == 0
    with pytest.raises(Exception, match="read.only|reading only"):
        get_group(url, mode="r", overwrite=True)
    with pytest.raises(Exception, match="not found"):
        get_group(url + "x", mode="r")
    driver = ZarrDriver(url)
    def fetch(root, key):
        return key, root[key]["image"][:].sum(), root[key].attrs["label"]

    stream = driver.get_iter(fetcher_func=fetch)
    assert stream.collect() == [("s0", 6, 0), ("s1", 10, 1), ("s2", 14, 2)] == stream.collect()
    assert list(driver.keys()) == ["s0", "s1", "s2"] and len(driver.get_iter().collect()) == 3
    assert list(get_group(url, overwrite=True).keys()) == []
    memory = get_group("memory://zarr/group")
    memory.create_group("member")
    assert list(memory.keys()) == ["member"]


def test_locks_that_nobody_holds_are_forgotten() -> None:
    pytest.importorskip("zarr")
    from squirrel.zarr.sync import SquirrelThreadSynchronizer

    locks = SquirrelThreadSynchronizer()
    held = locks["held"]
    with held:
        for i in range(3000):
            assert locks[str(i)] is not None
        assert len(locks.locks) <= 1001 and locks["held"] is held


def test_randomness_is_squirrel_cores() -> None:
    """The figures are squirrel-core's for these arguments."""
    pytest.importorskip("scipy")
    from squirrel.benchmark.quantify_randomness import quantify_randomness

    assert quantify_randomness(5, 10, 1, 1, seed1=1, seed2=1) == pytest.approx(1.0)
    assert round(quantify_randomness(5, 10, 1, 1, seed1=1, seed2=2), 4) == 0.1837
    assert round(quantify_randomness(20, 10, 200, 100, seed1=1, seed2=2), 4) == 0.0114


def test_randomness_is_the_median_of_the_samples() -> None:
    pytest.importorskip("scipy")
    from squirrel.benchmark.quantify_randomness import quantify_randomness

    values = iter([0.5, -0.9, -0.7])
    assert quantify_randomness(2, 2, 1, 1, n_samples=3, metric=lambda a, b: next(values)) == 0.7  # |median|
