"""Faults of squirrel-core's drivers and stores: each test must pass here and fail there."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from squirrel.driver import CsvDriver, JsonlDriver, MapDriver, MessagepackDriver
from squirrel.framework.io import write_to_file
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import FilesystemStore, SquirrelStore
from squirrel.store.filesystem import get_random_key


def fill(url: str, shards: int = 5) -> str:
    store = SquirrelStore(url, serializer=MessagepackSerializer())
    for i in range(shards):
        store.set([{"n": 2 * i}, {"n": 2 * i + 1}], key=f"s{i:02}")
    return url


@pytest.mark.fault("second-pass")
def test_a_table_is_read_again_in_each_pass(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    stream = CsvDriver(str(tmp_path / "t.csv")).get_iter()
    assert len(stream.collect()) == 2 and len(stream.collect()) == 2


@pytest.mark.fault("prefetch")
def test_shards_are_opened_at_the_same_time(tmp_path: Path) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Late(MemoryFileSystem):
        protocol = "late"
        store: dict = {}
        pseudo_dirs = [""]
        now = most = waits = 0
        lock = threading.Condition()

        @classmethod
        def _strip_protocol(cls, path):
            return MemoryFileSystem._strip_protocol(path.replace("late://", "memory://"))

        def _open(self, path, mode="rb", **kwargs):
            if mode == "rb":
                with Late.lock:
                    Late.now += 1
                    Late.most = max(Late.most, Late.now)
                    Late.waits += 1
                    Late.lock.notify_all()
                    # Where they come one after another, the first ones wait in vain.
                    Late.waits < 4 and Late.lock.wait_for(lambda: Late.most > 1, timeout=2)
                with Late.lock:
                    Late.now -= 1
            return super()._open(path, mode, **kwargs)

        def cat_file(self, path, start=None, end=None, **kwargs):
            with self._open(path) as file:
                data = file.read()
            return data[start:end]

    fsspec.register_implementation("late", Late, clobber=True)
    fill("late://s", 8)
    assert len(MessagepackDriver("late://s").get_iter(prefetch_buffer=8, max_workers=8).collect()) == 16
    assert Late.most > 1


@pytest.mark.fault("write-mode")
@pytest.mark.parametrize("data", [b"bytes", "text"])
def test_files_are_written_without_a_mode(data, tmp_path: Path) -> None:
    write_to_file(str(tmp_path / "a"), data)
    assert (tmp_path / "a").read_bytes() == (data if isinstance(data, bytes) else data.encode())


@pytest.mark.fault("deser-hook")
def test_the_hook_is_called_for_shards(tmp_path: Path) -> None:
    url = str(tmp_path / "s")
    SquirrelStore(url, serializer=JsonSerializer()).set([{"n": 1}], key="a")
    assert JsonlDriver(url, deser_hook=lambda value: ("hook", value)).get_iter().collect() == [("hook", {"n": 1})]


@pytest.mark.fault("deser-hook")
def test_the_hook_is_called_for_single_objects() -> None:
    assert JsonSerializer(deser_hook=lambda value: ("hook", value)).deserialize(b'{"n": 1}') == ("hook", {"n": 1})


@pytest.mark.fault("silent-end")
def test_a_shard_that_ends_within_a_sample_is_an_error(tmp_path: Path) -> None:
    import gzip

    url = fill(str(tmp_path / "s"))
    path = tmp_path / "s" / "s02.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-2]))
    with pytest.raises(Exception, match="s02.gz"):
        MessagepackDriver(url).get_iter().collect()


@pytest.mark.fault("silent-end")
def test_a_url_at_which_no_store_is_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MessagepackDriver(str(tmp_path / "nowhere")).get_iter().collect()


@pytest.mark.fault("random-keys")
def test_automatic_keys_do_not_follow_the_seed() -> None:
    random.seed(1)
    first = get_random_key()
    random.seed(1)
    assert get_random_key() != first


@pytest.mark.fault("whole-shards")
def test_a_shard_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    store = SquirrelStore(str(tmp_path / "s"), serializer=MessagepackSerializer())
    store.set([{"n": 1}], key="a")
    with pytest.raises(TypeError):
        store.set([{"n": 2}, {"n": {1, 2}}], key="a")
    assert [sample["n"] for sample in store.get("a")] == [1]


@pytest.mark.fault("whole-shards")
def test_a_file_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    store = FilesystemStore(str(tmp_path / "s"))
    store.set(b"one", key="a")
    with pytest.raises(TypeError):
        store.set("no bytes", key="a")
    assert store.get("a") == b"one" and list(store.keys()) == ["a"]
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["a"]


@pytest.mark.fault("silent-end")
@pytest.mark.parametrize("serializer", [MessagepackSerializer, JsonSerializer])
def test_a_damaged_file_is_named(serializer: type, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    store = FilesystemStore(str(tmp_path / "s"), serializer=serializer())
    store.set({"n": "abc"}, key="a")
    path = tmp_path / "s" / "a"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError) as caught:
        store.get("a")
    assert "s/a" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.fault("directories")
def test_directories_are_made(tmp_path: Path) -> None:
    store = FilesystemStore(str(tmp_path / "new"))
    store.set(b"x", key="a/b")
    assert store.get("a/b") == b"x"


@pytest.mark.fault("artifacts")
def test_objects_are_logged(tmp_path: Path) -> None:
    from squirrel.artifact_manager.filesystem import FileSystemArtifactManager

    manager = FileSystemArtifactManager(str(tmp_path / "s"), auto_mkdir=True)
    manager.log_artifact({"n": 1}, "object")
    assert manager.get_artifact("object") == {"n": 1}


@pytest.mark.fault("unseeded-keys")
def test_an_unseeded_shuffle_among_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from squirrel.integration_test.helpers import create_torch_mock

    class Numbers(MapDriver):
        name = "numbers"

        def keys(self):
            return range(9)

        def get(self, key):
            return key

    monkeypatch.setitem(sys.modules, "torch", create_torch_mock((0, 1), (1, 2)))
    stream = Numbers().get_iter(shuffle_key_buffer=9, key_hooks=[lambda keys: list(keys)[1::2]], max_workers=1)
    with pytest.raises(Exception, match="seed"):
        stream.collect()
