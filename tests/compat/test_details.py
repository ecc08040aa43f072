"""Smaller things that programs rely on: the same in squirrel-core and here, and faults put right."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

from squirrel.driver import ExcelDriver, FeatherDriver, FileDriver, JsonlDriver, MessagepackDriver
from squirrel.iterstream import IterableSource, Multiplexer, MultiplexingStrategy
from squirrel.iterstream.metrics import metrics_iops, metrics_throughput
from squirrel.zarr.key import is_dir, is_zarr_chunk, normalize_key


def one_more(sample: dict) -> dict:
    """Changes the sample in place."""
    sample["n"] += 1
    return sample


def test_a_pass_of_loop_may_change_items_in_place() -> None:
    for make in (list, tuple):
        samples = make([{"n": 1}, {"n": 5}])
        looped = IterableSource(samples).map(one_more).loop(3).map(lambda sample: sample["n"])
        assert looped.collect() == [2, 6] * 3 == looped.collect()
        assert [sample["n"] for sample in samples] == [1, 5]
    inner = IterableSource([[1], [2]])
    assert inner.loop(2).map(lambda item: item.append(0) or item).collect() == [[1, 0], [2, 0]] * 2


@pytest.mark.fault("sliding-none")
def test_windows_of_none() -> None:
    items = [None, None, 1, None, None, None]
    assert IterableSource(items).sliding(2, deepcopy=False).collect() == [items[i : i + 2] for i in range(5)]


@pytest.mark.fault("async-source-error")
def test_results_in_front_of_an_error_of_the_source() -> None:
    def numbers():
        yield from (1, 2)
        raise KeyError("third")

    seen = []
    with pytest.raises(KeyError, match="third"):
        for text in IterableSource(numbers).async_map(str):
            seen.append(text)
    assert seen == ["1", "2"]


@pytest.mark.fault("asserts")
def test_to_needs_a_callable() -> None:
    with pytest.raises(TypeError, match="callable"):
        IterableSource([1]).to(3)


@pytest.mark.parametrize("driver", [ExcelDriver, FeatherDriver])
def test_an_engine_that_reads_no_such_format(driver: type) -> None:
    with pytest.raises(ValueError, match="Dask does not support"):
        driver("x", engine="dask")


def test_metrics_have_two_decimals() -> None:
    assert metrics_iops(10, 3) == 3.33
    assert metrics_throughput(3000, 2, "KB") == 1.46  # 1.46484375
    assert metrics_throughput(3 * 10**9, 7, "GB") == 0.4


def test_counts_of_new_beginnings_stay_until_the_next() -> None:
    streams = [IterableSource([1, 2]), IterableSource("abcdefgh")]
    mux = Multiplexer(streams, MultiplexingStrategy.UNIFORM_WITH_REPLACEMENT, seed=1)
    mux.collect()
    counts = mux.reinit_counts
    assert max(counts) > 1
    assert len(mux.take(1).collect()) == 1 and mux.reinit_counts == counts


@pytest.mark.parametrize("driver", [MessagepackDriver, JsonlDriver])
def test_a_store_cannot_be_given(driver: type, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="store"):
        driver(str(tmp_path), store=None)


def test_directory_driver_takes_no_store(tmp_path: Path) -> None:
    from squirrel.artifact_manager.drivers import DirectoryDriver

    with pytest.raises(ValueError, match="store"):
        DirectoryDriver(str(tmp_path), store=None)


def test_directories_of_a_file_are_made_when_asked_for(tmp_path: Path) -> None:
    deep = FileDriver(str(tmp_path / "not" / "there" / "file.txt"))
    with pytest.raises(FileNotFoundError), deep.open("w") as file:
        file.write("x")
    assert list(tmp_path.iterdir()) == []
    with deep.open("w", auto_mkdir=True) as file:
        file.write("x")
    packed = FileDriver(str(tmp_path / "file.gz"), storage_options={"compression": "gzip"})
    with packed.open("w", compression=None) as file:  # the call's argument goes first
        file.write("plain")
    assert (tmp_path / "file.gz").read_text() == "plain"


def test_files_to_log_must_be_there(tmp_path: Path) -> None:
    from squirrel.artifact_manager.filesystem import FileSystemArtifactManager

    with pytest.raises(ValueError):
        FileSystemArtifactManager(str(tmp_path / "s")).log_files("x", tmp_path / "missing")


def test_zarr_keys() -> None:
    assert normalize_key("") == "" and normalize_key(" /a/b/ ") == "a/b/" and normalize_key("/a/.zarray") == "a/.zarray"
    assert not is_dir("a/.squirrel/keys") and normalize_key("a/.squirrel/keys") == "a/.squirrel/keys/"
    assert is_zarr_chunk("a/0.0.12") and not is_zarr_chunk("a/0")


@pytest.mark.fault("zarr-chunk-names")
def test_names_that_begin_like_a_chunk() -> None:
    assert not is_zarr_chunk("2024.01.scan") and is_dir("2024.01.scan")


def test_numba_map_takes_any_callable() -> None:
    numba = pytest.importorskip("numba")
    logging.getLogger(numba.__name__).setLevel(logging.ERROR)
    assert IterableSource([1, 2]).numba_map(str).collect() == ["1", "2"]
    assert IterableSource(["10", "11"]).numba_map(partial(int, base=2)).collect() == [2, 3]
