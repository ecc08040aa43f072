"""Plug-ins, SourceCombiner, files, URLs, zarr's keys: the same in squirrel-core and here."""

from __future__ import annotations

import inspect
from pathlib import Path

import fsspec
import pytest
import squirrel.constants
import squirrel.framework.plugins
import squirrel.integration_test.helpers
from squirrel.catalog import Catalog, CatalogKey, Source
from squirrel.driver import IterDriver, SourceCombiner
from squirrel.framework import exceptions
from squirrel.framework.io import read_from_file, write_to_file
from squirrel.framework.plugins.plugin_manager import (
    list_driver_names,
    register_driver,
    register_source,
    squirrel_plugin_manager,
)
from squirrel.fsspec.fs import get_fs_from_url, get_protocol
from squirrel.iterstream import IterableSource
from squirrel.serialization import MessagepackSerializer
from squirrel.store import SquirrelStore
from squirrel.zarr import key as zarr_key


class Counting(IterDriver):
    name = "compat_counting"

    def __init__(self, count: int = 2, **kwargs) -> None:
        super().__init__(**kwargs)
        self.count = count

    def get_iter(self, **kwargs):
        return IterableSource(range(self.count))


def test_registered_by_code() -> None:
    register_driver(Counting)
    assert "compat_counting" in list_driver_names()
    tables = {"csv", "excel", "feather", "parquet"}
    core = {*tables, "file", "jsonl", "messagepack", "source_combiner", "store_driver", "zarr"}
    assert core <= set(list_driver_names())
    register_source("compat-source", Source("compat_counting", driver_kwargs={"count": 3}), version=3)
    catalog = Catalog.from_plugins()
    assert catalog["compat-source"].version == 3
    driver = catalog["compat-source"].get_driver()
    assert isinstance(driver, Counting) and driver.get_iter().collect() == [0, 1, 2] and driver._catalog is not None
    assert catalog["compat-source"].get_driver(count=1).get_iter().collect() == [0]
    offered = [pair for pairs in squirrel_plugin_manager.hook.squirrel_sources() for pair in pairs]
    assert ("compat-source", 3) in [tuple(key) for key, _ in offered]
    assert Counting in [kind for kinds in squirrel_plugin_manager.hook.squirrel_drivers() for kind in kinds]
    assert squirrel.framework.plugins.PLUGGY_HOOKGROUP == "squirrel"


def test_source_combiner(tmp_path: Path) -> None:
    catalog = Catalog()
    for name, count in (("a", 2), ("b", 5)):
        SquirrelStore(str(tmp_path / name), serializer=MessagepackSerializer()).set(
            [{"of": name, "n": n} for n in range(count)], key="s"
        )
        catalog[name] = Source("messagepack", driver_kwargs={"url": str(tmp_path / name)})
    subsets = {"A": ("a", 1), "B": CatalogKey("b", -1)}
    catalog["both"] = Source("source_combiner", driver_kwargs={"subsets": subsets})
    driver = catalog["both"].get_driver()
    assert isinstance(driver, SourceCombiner) and driver.subsets == ["A", "B"]
    assert driver.get_source("B").identifier == "b"
    assert [sample["of"] for sample in driver.get_iter()] == ["a", "b", "a", "b", "b", "b", "b"]
    assert [sample["n"] for sample in driver.get_iter("B")] == [0, 1, 2, 3, 4]
    assert [sample["n"] for sample in driver.get("A", "s")] == [0, 1] and list(driver.keys("A")) == ["s"]
    assert isinstance(driver.get_store("A"), SquirrelStore)
    assert sorted(sample["n"] for sample in driver.get_iter_sampler(seed=1)) == [0, 0, 1, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        driver.get_source("C")


def test_sampler_draws_alike(tmp_path: Path) -> None:
    catalog = Catalog()
    for name in "ab":
        SquirrelStore(str(tmp_path / name), serializer=MessagepackSerializer()).set(
            [{"of": name} for _ in range(3)], key="s"
        )
        catalog[name] = Source("messagepack", driver_kwargs={"url": str(tmp_path / name)})
    driver = SourceCombiner(subsets={"A": ("a", 1), "B": ("b", 1)}, catalog=catalog)
    assert [sample["of"] for sample in driver.get_iter_sampler(seed=3)] == list("abab" "ba")
    assert [sample["of"] for sample in driver.get_iter_sampler(probs=[0.9, 0.1], seed=3)] == list("aaabbb")


def test_whole_files(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    write_to_file(path, b"abc", mode="wb")
    assert read_from_file(path, mode="rb") == b"abc"
    write_to_file(path, "text", mode="w")
    assert read_from_file(path, mode="r") == "text"
    write_to_file(path, {"a": 1}, mode="wb", serializer=MessagepackSerializer())
    assert read_from_file(path, mode="rb", serializer=MessagepackSerializer()) == {"a": 1}
    memory = fsspec.filesystem("memory")
    write_to_file("/compat/file", b"x", fs=memory, mode="wb")
    assert read_from_file("/compat/file", fs=memory, mode="rb") == b"x"


@pytest.mark.parametrize(("url", "protocol"), [
    ("/a/b", ""), ("relative", ""), ("file:///a", "file://"), ("memory://x/y", "memory://"), ("s3://a/b", "s3://"),
])
def test_protocols(url: str, protocol: str) -> None:
    assert get_protocol(url) == protocol


def test_file_systems() -> None:
    assert type(get_fs_from_url("/a")).__name__ == "LocalFileSystem" == type(get_fs_from_url(Path("/a"))).__name__
    assert type(get_fs_from_url("memory://a")).__name__ == "MemoryFileSystem"
    cached = get_fs_from_url("memory://a", protocol="simplecache", target_protocol="memory")
    assert type(cached).__name__ == "SimpleCacheFileSystem"
    assert get_fs_from_url("/a", auto_mkdir=True).auto_mkdir is True


def test_constants_and_exceptions() -> None:
    assert squirrel.constants.SQUIRREL_DIR == ".squirrel" and squirrel.constants.SQUIRREL_PREFIX == ".squirrel_"
    for name in ("URL", "FILESYSTEM", "SampleType", "ShardType", "MetricsType", "SeedType"):
        assert getattr(squirrel.constants, name) is not None
    for name in ("PyTorchSplittingException", "SourceArgumentsCombinationException", "SourceExistsError"):
        assert issubclass(getattr(exceptions, name), Exception)


@pytest.mark.parametrize(("key", "normal", "directory", "squirrels", "zarrs", "chunk", "end"), [
    ("a", "a/", True, False, False, False, "a"),
    ("/a/b/", "a/b/", True, False, False, False, ""),
    (" a ", "a/", True, False, False, False, " a "),
    ("a/0.0", "a/0.0", False, False, False, True, "0.0"),
    ("a/1.2.3", "a/1.2.3", False, False, False, True, "1.2.3"),
    ("a/0.x", "a/0.x/", True, False, False, False, "0.x"),
    ("0", "0/", True, False, False, False, "0"),
    ("a/.zarray", "a/.zarray", False, False, True, False, ".zarray"),
    (".zgroup", ".zgroup", False, False, True, False, ".zgroup"),
    ("a.zip", "a.zip", False, False, False, False, "a.zip"),
    (".squirrel_x/y", ".squirrel_x/y/", True, True, False, False, "y"),
    (".squirrel", ".squirrel", False, True, False, False, ".squirrel"),
])
def test_zarr_keys(key: str, normal: str, directory: bool, squirrels: bool, zarrs: bool, chunk: bool, end: str) -> None:
    assert zarr_key.normalize_key(key) == normal
    if not squirrels or "/" not in key:
        assert zarr_key.is_dir(key) is directory
    assert zarr_key.is_squirrel_key(key) is squirrels
    assert zarr_key.is_zarr_key(key) is zarrs
    assert bool(zarr_key.is_zarr_chunk(key)) is chunk
    assert zarr_key.key_end(key) == end
    assert zarr_key.flatten([["a"], ("b", "c")]) == ["a", "b", "c"]


def test_helpers() -> None:
    sample = squirrel.integration_test.helpers.get_sample((2, 3, 4))
    assert set(sample) == {"key", "image", "label"} and sample["image"].shape == (2, 3, 4)
    torch = squirrel.integration_test.helpers.create_torch_mock((1, 4), (2, 3))
    info = torch.utils.data.get_worker_info()
    assert (info.id, info.num_workers) == (1, 4)
    assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (2, 3)
    assert list(inspect.signature(squirrel.integration_test.helpers.get_sample).parameters) == ["array_shape"]
