"""``cache=``: what was read once is read from a directory, by any process, with or without a network."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import squirrel
from squirrel.catalog import Catalog, Source
from squirrel.driver import JsonlDriver, MessagepackDriver, SqrlDriver
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import SquirrelStore

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


class Far(MemoryFileSystem):
    """Memory that counts what it is asked, and can be out of reach."""

    protocol = "far"
    store: dict = {}
    pseudo_dirs = [""]
    reads: list = []
    looks: list = []
    down = False

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("far://"))

    def _reach(self, log: list, what: object) -> None:
        log.append(what)
        if self.down:
            raise ConnectionError("no route to host")

    def cat_ranges(self, paths, starts, ends, **kwargs):
        self._reach(self.reads, (paths, starts, ends))
        return super().cat_ranges(paths, starts, ends, **kwargs)

    def info(self, path, **kwargs):
        self._reach(self.looks, path)
        return super().info(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        self._reach(self.looks, path)
        return super().ls(path, detail, **kwargs)


fsspec.register_implementation("far", Far, clobber=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    Far.store.clear()
    Far.pseudo_dirs[:] = [""]
    Far.reads.clear()
    Far.looks.clear()
    Far.down = False
    yield
    Far.down = False


@pytest.fixture
def far(images: Path) -> str:
    """A native data set out of reach of the library's own file systems."""
    fs = fsspec.filesystem("far")
    for path in images.rglob("*"):
        if path.is_file():
            fs.pipe_file(f"/data/{path.relative_to(images)}", path.read_bytes())
    Far.reads.clear()
    Far.looks.clear()
    return "far://data"


def ids(stream) -> list[int]:
    return [sample["n"] for sample in stream]


def checksum(stream) -> list[bytes]:
    return [pickle.dumps({name: getattr(value, "tolist", lambda: value)() for name, value in sample.items()})
            for sample in stream]


def test_second_time_from_the_cache(far: str, images: Path, tmp_path: Path) -> None:
    cache = f"{tmp_path / 'kept'}?limit=64MiB"
    expected = checksum(squirrel.open(images))
    assert checksum(squirrel.open(far, cache=cache)) == expected
    assert Far.reads
    Far.reads.clear()
    stream = squirrel.open(far, cache=cache)
    assert checksum(stream) == expected
    assert Far.reads == []
    Far.looks.clear()
    assert checksum(stream) == expected, "an epoch of an opened source"
    assert Far.reads == [] and Far.looks == [], "asks for nothing"
    assert checksum(pickle.loads(pickle.dumps(stream))) == expected
    assert Far.reads == []


def test_offline(far: str, images: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = f"{tmp_path / 'kept'}?limit=64MiB"
    expected = checksum(squirrel.open(images))
    assert checksum(squirrel.open(far, cache=cache)) == expected
    Far.down = True
    stream = squirrel.open(far, cache=cache)
    assert checksum(stream) == expected
    assert checksum(stream.shuffle_all(3)) != expected
    said = [record.getMessage() for record in caplog.records if "not reached" in record.getMessage()]
    assert len(said) == 1
    assert re.search(r"found current \d+ \w+ ago", said[0])
    with pytest.raises(squirrel.Error, match="no route to host"):
        squirrel.open("far://elsewhere", cache=cache)


def test_storage_options_and_drivers(tmp_path: Path) -> None:
    for kind, driver in ((MessagepackSerializer, MessagepackDriver), (JsonSerializer, JsonlDriver)):
        url = f"far://{driver.name}"
        store = SquirrelStore(url, serializer=kind())
        for i in range(4):
            store.set([{"n": 3 * i + k} for k in range(3)], key=f"s{i}")
        cache = f"{tmp_path / driver.name}?limit=64MiB"
        for given in ({"cache": cache}, {"storage_options": {"cache": cache}}):
            assert ids(driver(url, **given).get_iter()) == list(range(12))
            Far.reads.clear()
            assert ids(driver(url, **given).get_iter()) == list(range(12))
            assert Far.reads == []
        assert ids(squirrel.open(url, storage_options={"cache": cache})) == list(range(12))
        assert Far.reads == []


def test_catalogs(far: str, images: Path, tmp_path: Path) -> None:
    cache = f"{tmp_path / 'kept'}?limit=64MiB"
    catalog = Catalog()
    catalog["a"] = Source("sqrl", driver_kwargs={"url": far, "cache": cache})
    catalog["b"] = Source("sqrl", driver_kwargs={"url": far, "storage_options": {"cache": cache}})
    catalog["c"] = Source("sqrl", driver_kwargs={"url": str(images), "cache": cache})
    expected = checksum(squirrel.open(images))
    for name in "abc":
        assert checksum(catalog[name].get_driver().get_iter()) == expected
    assert isinstance(catalog["a"].get_driver(), SqrlDriver)
    saved = tmp_path / "catalog.yaml"
    catalog.to_file(str(saved))
    shutil.rmtree(tmp_path / "kept")
    assert checksum(squirrel.open(f"{saved}#c")) == expected
    assert (tmp_path / "kept/v1").is_dir()


def test_damage_in_use(far: str, images: Path, tmp_path: Path) -> None:
    stream = squirrel.open(far, cache=f"{tmp_path / 'kept'}?limit=64MiB")
    expected = checksum(squirrel.open(images))
    assert checksum(stream) == expected
    for damage in ("flip", "cut", "delete", "all"):
        pieces = [path for path in (tmp_path / "kept/v1/objects").rglob("*-*") if path.is_file()]
        assert pieces
        for path in pieces:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            if damage == "flip":
                path.write_bytes(data)
            elif damage == "cut":
                path.write_bytes(data[: len(data) // 2])
            else:
                path.unlink()
        if damage == "all":
            shutil.rmtree(tmp_path / "kept/v1")
        assert checksum(stream) == expected
    assert squirrel.metrics()["cache.damaged"] > 0


def test_a_changed_file_is_an_error_and_then_new(tmp_path: Path) -> None:
    fs = fsspec.filesystem("far")
    cache = f"{tmp_path / 'kept'}?limit=64MiB"

    def put(word: str) -> None:
        fs.pipe_file("/x/a.jsonl", b"".join(b'{"n": %d, "w": "%s"}\n' % (n, word.encode()) for n in range(200_000)))

    put("old")
    stream = squirrel.open("far://x/a.jsonl", cache=cache)
    assert next(iter(stream))["w"] == "old"
    put("new")
    words: set[str] = set()
    with pytest.raises(squirrel.Error, match="changed|cut"):
        for _ in range(10):  # the next epoch may be in memory already
            words.update(sample["w"] for sample in stream)
            shutil.rmtree(tmp_path / "kept/v1/objects", ignore_errors=True)
    assert words <= {"old"}
    assert {sample["w"] for sample in squirrel.open("far://x/a.jsonl", cache=cache)} == {"new"}


def test_forks_and_threads_share_a_cache(far: str, images: Path, tmp_path: Path) -> None:
    cache = f"{tmp_path / 'kept'}?limit=1MiB"
    expected = checksum(squirrel.open(images))
    stream = squirrel.open(far, cache=cache)
    assert next(iter(stream)) is not None
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if checksum(stream) == expected else 2
            finally:
                os._exit(code)
        children.append(child)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(checksum(stream) == expected)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]


def test_wrong_caches(far: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(squirrel.Error, match="can't be written"):
        squirrel.open(far, cache=tmp_path / "file")
    with pytest.raises(squirrel.ArgumentError, match='did you mean "limit"'):
        squirrel.open(far, cache=f"{tmp_path}?limt=3GiB")
