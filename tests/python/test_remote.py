"""Any fsspec URL: the adapter that reads for the library, caches, errors, threads, forks, and the end of a process."""

from __future__ import annotations

import gzip
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import squirrel
from squirrel._remote import Files
from squirrel.driver import JsonlDriver, MessagepackDriver, SqrlDriver
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import FilesystemStore, SquirrelStore

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


class Counted(MemoryFileSystem):
    """Memory that counts requests, answers late, and fails on demand."""

    protocol = "counted"
    store: dict = {}
    pseudo_dirs = [""]
    delay = 0.0
    requests: list = []
    failure: Exception | None = None
    lock = threading.Condition()
    now = most = 0
    meet = 1  # the first requests wait until so many are under way

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("counted://"))

    def cat_ranges(self, paths, starts, ends, **kwargs):
        with self.lock:
            type(self).requests.append((list(paths), list(starts), list(ends)))
            type(self).now += 1
            type(self).most = max(self.most, self.now)
            self.lock.notify_all()
            assert self.lock.wait_for(lambda: self.most >= self.meet, timeout=60)
        try:
            time.sleep(self.delay)
            if self.failure is not None:
                raise self.failure
            return super().cat_ranges(paths, starts, ends, **kwargs)
        finally:
            with self.lock:
                type(self).now -= 1


fsspec.register_implementation("counted", Counted, clobber=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    for kind in (Counted, MemoryFileSystem):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]
    Counted.delay, Counted.requests, Counted.failure, Counted.most, Counted.meet = 0.0, [], None, 0, 1
    yield


def fill(url: str, shards: int = 5, size: int = 4, kind: type = MessagepackSerializer) -> str:
    store = SquirrelStore(url, serializer=kind())
    for i in range(shards):
        store.set([{"n": i * size + k} for k in range(size)], key=f"s{i:02}")
    Counted.requests.clear()
    return url


def copy_in(folder: Path, url: str) -> str:
    fs = fsspec.filesystem(url.partition("://")[0])
    for path in folder.rglob("*"):
        if path.is_file():
            fs.pipe_file(f"{url}/{path.relative_to(folder)}", path.read_bytes())
    Counted.requests.clear()
    return url


def numbers(samples: object) -> list[int]:
    return [sample["n"] for sample in samples]


# --- reading ---


@pytest.mark.parametrize("kind", [MessagepackSerializer, JsonSerializer])
def test_stores_anywhere(kind: type) -> None:
    url = fill("memory://bucket/store", kind=kind)
    driver = (MessagepackDriver if kind is MessagepackSerializer else JsonlDriver)(url)
    assert list(driver.keys()) == ["s00", "s01", "s02", "s03", "s04"]
    assert numbers(driver.get_iter()) == list(range(20)) and numbers(driver.get("s03")) == [12, 13, 14, 15]
    assert numbers(pickle.loads(pickle.dumps(driver)).get_iter(max_workers=1)) == list(range(20))
    stream = squirrel.open(url)
    assert numbers(stream.filter("n > 17")) == [18, 19]
    assert {shard["path"] for shard in stream.shards} == {f"{url}/s{i:02}.gz" for i in range(5)}
    assert numbers(pickle.loads(pickle.dumps(stream))) == list(range(20))


def test_native_shards_anywhere(tmp_path: Path) -> None:
    squirrel.pack([{"n": n, "text": "x" * 50} for n in range(5000)], tmp_path / "d", samples_per_shard=900)
    url = copy_in(tmp_path / "d", "counted://bucket/d")
    stream = squirrel.open(url)
    assert stream.driver == "sqrl" and len(stream) == 5000
    assert numbers(stream) == list(range(5000))
    shuffled = numbers(stream.shuffle_all(seed=3))
    assert sorted(shuffled) == list(range(5000))
    assert shuffled == numbers(squirrel.open(tmp_path / "d").shuffle_all(seed=3))
    assert numbers(SqrlDriver(url).get_iter().take(3)) == [0, 1, 2]


def test_many_ranges_are_one_request(tmp_path: Path) -> None:
    """Blocks far from each other are asked for in one call; a pass asks for pieces of up to 4 MiB."""
    import numpy as np

    rng = np.random.default_rng(1)
    samples = [{"n": n, "x": rng.integers(0, 256, 3000, np.uint8)} for n in range(2000)]
    squirrel.pack(samples, tmp_path / "d")
    url = copy_in(tmp_path / "d", "counted://bucket/d")
    stream = squirrel.open(url)
    assert numbers(stream.get_many([0, 1000, 1999])) == [0, 1000, 1999]
    assert [len(starts) for _, starts, _ in Counted.requests] == [1, 1, 3]  # commit, index, blocks
    Counted.requests.clear()
    assert numbers(squirrel.open(url).get_many([1000])) == [1000]  # stored: read in parts that follow each other
    assert [len(starts) for _, starts, _ in Counted.requests] == [1, 1, 1]
    Counted.requests.clear()
    assert sum(int(sample["x"].sum()) for sample in stream) == sum(int(s["x"].sum()) for s in samples)
    (size,) = (path.stat().st_size for path in (tmp_path / "d").glob("*.sqrl"))
    assert len(Counted.requests) == -(-size // (4 << 20))


def test_a_small_shard_is_one_request() -> None:
    url = fill("counted://bucket/store", shards=3)
    assert numbers(MessagepackDriver(url).get_iter(max_workers=1)) == list(range(12))
    assert [paths for paths, _, _ in Counted.requests] == [[f"/bucket/store/s{i:02}.gz"] for i in range(3)]


def test_a_large_file_is_read_in_pieces() -> None:
    text = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, os.urandom(100).hex().encode()) for n in range(120_000))
    packed = gzip.compress(text, 1)
    assert len(packed) > 12 << 20
    fsspec.filesystem("counted").pipe_file("/bucket/large.jsonl.gz", packed)
    assert numbers(squirrel.open("counted://bucket/large.jsonl.gz")) == list(range(120_000))
    sizes = [end - start for _, starts, ends in Counted.requests for start, end in zip(starts, ends)]
    assert max(sizes) <= 4 << 20 and len(sizes) < 10 and sum(sizes) < 1.1 * len(packed)


def test_shards_are_opened_ahead_and_at_the_same_time() -> None:
    """In squirrel-core the shards' latencies add up, whatever prefetch_buffer says."""
    url = fill("counted://bucket/store", shards=20)
    Counted.delay, Counted.meet = 0.005, 11
    assert numbers(MessagepackDriver(url).get_iter()) == list(range(80)) and Counted.most > 10
    Counted.most, Counted.meet = 0, 4
    assert numbers(MessagepackDriver(url).get_iter(prefetch_buffer=4)) == list(range(80)) and Counted.most == 4
    Counted.most, Counted.meet = 0, 1
    assert numbers(MessagepackDriver(url).get_iter(max_workers=1)) == list(range(80)) and Counted.most == 1


def test_a_file_that_filecache_lost_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another thread writes fsspec's table over the entry of this one."""
    from fsspec.implementations.cache_metadata import CacheMetadata

    url = fill("counted://bucket/store")
    options = {"protocol": "filecache", "target_protocol": "counted", "cache_storage": str(tmp_path / "cache")}
    save, lost = CacheMetadata.save, []

    def forgetful(metadata: CacheMetadata) -> None:
        save(metadata)
        if len(lost) < 3:
            lost.append(len(metadata.cached_files[-1]))
            metadata.cached_files[-1].clear()

    monkeypatch.setattr(CacheMetadata, "save", forgetful)
    assert numbers(MessagepackDriver(url, storage_options=options).get_iter(max_workers=1)) == list(range(20))
    assert len(lost) == 3


@pytest.mark.parametrize("protocol", ["simplecache", "filecache"])
def test_caches_from_storage_options(tmp_path: Path, protocol: str) -> None:
    url = fill("counted://bucket/store")
    options = {"protocol": protocol, "target_protocol": "counted", "cache_storage": str(tmp_path / "cache")}
    for _ in range(2):
        driver = MessagepackDriver(url, storage_options=options)
        assert numbers(driver.get_iter()) == list(range(20)) and numbers(driver.get("s01")) == [4, 5, 6, 7]
        assert numbers(squirrel.open(url, driver="messagepack", storage_options=options)) == list(range(20))
        assert len(os.listdir(tmp_path / "cache")) >= 5
    from squirrel.catalog import Catalog, Source

    catalog = Catalog()
    catalog["cached"] = Source("messagepack", driver_kwargs={"url": url, "storage_options": options})
    again = Catalog.from_str(_text(catalog, tmp_path))
    assert numbers(again["cached"].get_driver().get_iter()) == list(range(20))


def _text(catalog: object, folder: Path) -> str:
    catalog.to_file(folder / "catalog.yaml")  # type: ignore[attr-defined]
    return (folder / "catalog.yaml").read_text()


def test_a_cache_in_front_of_local_files(tmp_path: Path) -> None:
    url = fill(str(tmp_path / "store"))
    options = {"protocol": "simplecache", "target_protocol": "file", "cache_storage": str(tmp_path / "cache")}
    assert numbers(MessagepackDriver(url, storage_options=options).get_iter()) == list(range(20))
    assert len(os.listdir(tmp_path / "cache")) >= 5


def test_chained_urls(tmp_path: Path) -> None:
    fill("memory://bucket/store")
    options = {"simplecache": {"cache_storage": str(tmp_path / "cache")}}
    assert numbers(squirrel.open("simplecache::memory://bucket/store/s01.gz", storage_options=options)) == [4, 5, 6, 7]


def test_filesystem_stores_anywhere() -> None:
    store = FilesystemStore("memory://bucket/files", serializer=JsonSerializer())
    store.set({"a": 1}, key="x/y")
    store.set({"a": 2})
    assert store.get("x/y") == {"a": 1} and len(list(store.keys())) == 2
    assert list(FilesystemStore("memory://bucket/files", clean=True).keys()) == []


# --- errors ---


@pytest.mark.parametrize(("raised", "kind", "retryable"), [
    (PermissionError("no"), squirrel.AccessError, False),
    (TimeoutError("late"), squirrel.StorageError, True),
    (ConnectionResetError("gone"), squirrel.StorageError, True),
    (ValueError("odd"), squirrel.StorageError, False),
    (NotImplementedError("never"), squirrel.UnsupportedError, False),
])
def test_exceptions_of_a_file_system(raised: Exception, kind: type, retryable: bool) -> None:
    url = fill("counted://bucket/store")
    Counted.failure = raised
    for stream in (lambda: squirrel.open(f"{url}/s01.gz"), lambda: MessagepackDriver(url).get_iter()):
        with pytest.raises(kind, match=f"{type(raised).__name__}: {raised}") as caught:
            stream().collect()
        assert "s0" in str(caught.value) and caught.value.retryable is retryable


def test_what_is_not_there() -> None:
    fill("memory://bucket/store")
    with pytest.raises(squirrel.NotFoundError, match="memory://bucket/stor"):
        squirrel.open("memory://bucket/stor")
    with pytest.raises(FileNotFoundError, match="s77.gz"):
        MessagepackDriver("memory://bucket/store").get("s77")
    with pytest.raises(FileNotFoundError, match="no such directory"):
        MessagepackDriver("memory://bucket/nowhere").get_iter().collect()


def test_a_file_system_that_gives_too_little_or_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    url = fill("counted://bucket/store", shards=1, size=3000)
    real = MemoryFileSystem.cat_ranges
    monkeypatch.setattr(Counted, "cat_ranges", lambda self, *a, **k: [p[:-3] for p in real(self, *a, **k)])
    with pytest.raises(squirrel.Error, match="s00.gz"):
        MessagepackDriver(url).get_iter().collect()
    monkeypatch.setattr(Counted, "cat_ranges", lambda self, *a, **k: [p + b"more" for p in real(self, *a, **k)])
    with pytest.raises(squirrel.Error, match="s00.gz"):
        MessagepackDriver(url).get_iter().collect()


def test_lists_leave_hidden_files_out() -> None:
    fs = fsspec.filesystem("memory")
    for name in ("b", "a", ".hidden", "sub/c", ".cache/d", "é"):
        fs.pipe_file(f"/bucket/{name}", b"x")
    files = Files(fs)
    assert [row[:2] for row in files.list("/bucket", False)] == [("a", 1), ("b", 1), ("sub", 0), ("é", 1)]
    assert [row[0] for row in files.list("/bucket", True)] == ["a", "b", "sub/c", "é"]
    assert files.stat("/bucket/a")[:1] == (1,) and files.stat("/bucket/sub")[2] is True


# --- threads, forks, the end ---


def test_threads_share_a_stream() -> None:
    stream = squirrel.open(fill("counted://bucket/store", shards=30, size=20))
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(numbers(stream))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(600))] * 6


def test_an_abandoned_iterator_leaves_no_thread_behind() -> None:
    url = fill("counted://bucket/store", shards=40)
    Counted.delay = 0.01
    for _ in range(5):
        iterator = iter(MessagepackDriver(url).get_iter())
        next(iterator)
        del iterator
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any("squirrel-map" in t.name for t in threading.enumerate()):
        time.sleep(0.05)
    assert not [t.name for t in threading.enumerate() if "squirrel-map" in t.name]


@pytest.mark.filterwarnings("ignore")
def test_data_loader_workers_read_through_fsspec(tmp_path: Path) -> None:
    """Forked workers read through a file system that the parent has used before."""
    torch = pytest.importorskip("torch")
    url = fill(str(tmp_path / "store"), shards=8)
    options = {"protocol": "simplecache", "target_protocol": "file", "cache_storage": str(tmp_path / "cache")}
    driver = MessagepackDriver(url, storage_options=options)
    assert numbers(driver.get_iter()) == list(range(32))
    from squirrel.iterstream.torch_composables import SplitByWorker

    stream = driver.get_iter(key_hooks=[SplitByWorker]).to_torch_iterable()
    loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)
    assert sorted(int(sample["n"]) for sample in loader) == list(range(32))


def test_the_end_of_a_process_waits_for_nobody(script: Callable) -> None:
    """Reading is under way when the interpreter ends."""
    done = script(
        """
        import time, fsspec
        from fsspec.implementations.memory import MemoryFileSystem
        import squirrel
        from squirrel.driver import MessagepackDriver
        from squirrel.serialization import MessagepackSerializer
        from squirrel.store import SquirrelStore

        class Slow(MemoryFileSystem):
            protocol = "slow"
            store, pseudo_dirs = {}, [""]
            @classmethod
            def _strip_protocol(cls, path):
                return MemoryFileSystem._strip_protocol(path.removeprefix("slow://"))
            def cat_ranges(self, *args, **kwargs):
                time.sleep(0.2)
                return super().cat_ranges(*args, **kwargs)

        fsspec.register_implementation("slow", Slow)
        store = SquirrelStore("slow://s", serializer=MessagepackSerializer())
        for i in range(40):
            store.set([{"n": k} for k in range(5000)], key=str(i))
        iterator = iter(MessagepackDriver("slow://s").get_iter())
        stream = iter(squirrel.open("slow://s", driver="messagepack"))
        print(next(iterator)["n"], next(stream)["n"], flush=True)
        """
    )
    assert done.returncode == 0 and done.stdout == "0 0\n", done.stderr
