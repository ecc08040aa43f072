"""Stores, serializers and their drivers: the same in squirrel-core and here."""

from __future__ import annotations

import functools
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from squirrel.driver import Driver, FileDriver, IterDriver, JsonlDriver, MapDriver, MessagepackDriver, StoreDriver
from squirrel.iterstream import Composable, IterableSource
from squirrel.serialization import JsonSerializer, MessagepackSerializer, SquirrelSerializer
from squirrel.store import AbstractStore, FilesystemStore, SquirrelStore

SERIALIZERS = {"messagepack": MessagepackSerializer, "jsonl": JsonSerializer}
DRIVERS = {"messagepack": MessagepackDriver, "jsonl": JsonlDriver}


def shard(first: int, size: int = 4) -> list:
    return [{"n": n, "list": [n, [n]], "image": np.full((2, 3), n, np.uint8)} for n in range(first, first + size)]


def numbers(samples: object) -> list:
    return [sample["n"] for sample in samples]


@pytest.fixture(params=["messagepack", "jsonl"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(name: str, tmp_path: Path) -> str:
    """Shards a to e of four samples each."""
    store = SquirrelStore(str(tmp_path / "store"), serializer=SERIALIZERS[name]())
    for i, key in enumerate("abcde"):
        store.set(shard(4 * i), key=key)
    return str(tmp_path / "store")


# --- serializers ---


def test_single_objects() -> None:
    for kind in (MessagepackSerializer, JsonSerializer):
        assert issubclass(kind, SquirrelSerializer)
        for value in (None, True, -3, 1.5, "text", [1, [2]], {"a": {"b": [1]}}):
            data = kind().serialize(value)
            assert isinstance(data, bytes) and kind().deserialize(data) == value
        found = kind().deserialize(kind.serialize({"x": np.arange(6, dtype="<i2").reshape(2, 3)}))["x"]
        assert found.dtype == np.dtype("<i2") and found.tolist() == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(TypeError):
            kind.serialize({"x": {1, 2}})
    assert MessagepackSerializer.serialize([1, "a"]) == b"\x92\x01\xa1a"
    assert JsonSerializer.serialize({"é": (1, np.int8(2)), "f": np.float32(0.1)}) == (
        b'{"\\u00e9": [1, 2], "f": 0.10000000149011612}'
    )
    array = np.array([[1, 2]], "<i8")
    assert JsonSerializer.serialize({"a": array}) == b'{"a": {"data": [[1, 2]], "type": "<i8", "shape": [1, 2]}}'


def test_shards_as_files(name: str, tmp_path: Path) -> None:
    serializer = SERIALIZERS[name]()
    path = str(tmp_path / "shard")
    serializer.serialize_shard_to_file([{"a": 1}, "text", None], path)
    payload = {"messagepack": b"\x81\xa1a\x01\xa4text\xc0", "jsonl": b'{"a": 1}\n"text"\nnull\n'}[name]
    assert gzip.decompress(Path(path).read_bytes()) == payload
    assert list(serializer.deserialize_shard_from_file(path)) == [{"a": 1}, "text", None]
    assert list(SERIALIZERS[name].deserialize_shard_from_file(path, mode="rb")) == [{"a": 1}, "text", None]


def test_lists_in_shards(name: str, url: str) -> None:
    """MessagePack's are tuples in shards, unless lists are asked for; JSON's are lists."""
    (first, *_) = SquirrelStore(url, serializer=SERIALIZERS[name]()).get("b")
    assert first["list"] == ((4, (4,)) if name == "messagepack" else [4, [4]])
    assert type(first["image"]) is np.ndarray and first["image"].shape == (2, 3)
    if name == "messagepack":
        store = SquirrelStore(url, serializer=MessagepackSerializer())
        assert next(store.get("b", unpacker_kwargs={"use_list": True}))["list"] == [4, [4]]
        driver = MessagepackDriver(url)
        assert driver.get_iter(keys_iterable=["b"]).take(1).collect()[0]["list"] == (4, (4,))
        assert next(iter(driver.get_iter()))["list"] == (0, (0,))


# --- stores ---


def test_squirrel_store(name: str, tmp_path: Path) -> None:
    store = SquirrelStore(str(tmp_path / "new"), serializer=SERIALIZERS[name]())
    assert isinstance(store, FilesystemStore) and isinstance(store, AbstractStore)
    assert list(store.keys()) == [] and not (tmp_path / "new").exists()
    store.set([{"n": 1}, {"n": 2}], key="two")
    store.set({"n": 3}, key="one")
    store.set([], key="none")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["none.gz", "one.gz", "two.gz"]
    assert sorted(store.keys()) == ["none", "one", "two"]
    assert numbers(store.get("two")) == [1, 2] and numbers(store.get("one")) == [3] and numbers(store.get("none")) == []
    store.set([{"n": 9}], key="two")
    assert numbers(store.get("two")) == [9]
    store.set({"n": 4})
    (drawn,) = set(store.keys()) - {"none", "one", "two"}
    assert len(drawn) == 16 and numbers(store.get(drawn)) == [4]
    with pytest.raises(FileNotFoundError):
        list(store.get("three"))
    again = pickle.loads(pickle.dumps(store))
    assert numbers(again.get("one")) == [3]
    assert list(SquirrelStore(str(tmp_path / "new"), serializer=SERIALIZERS[name](), clean=True).keys()) == []


def test_only_shards_are_keys(url: str, name: str) -> None:
    (Path(url) / "README").write_text("x")
    (Path(url) / "sub").mkdir()
    serializer = SERIALIZERS[name]()
    serializer.serialize_shard_to_file([{"n": 0}], f"{url}/sub/f.gz")
    store = SquirrelStore(url, serializer=serializer)
    assert sorted(store.keys()) == list("abcde")
    assert sorted(store.keys(nested=True)) == [*"abcde", "sub/f"]
    assert numbers(store.get("sub/f")) == [0]


def test_filesystem_store(tmp_path: Path) -> None:
    (tmp_path / "files" / "sub").mkdir(parents=True)
    store = FilesystemStore(str(tmp_path / "files"))
    store.set(b"abc", key="k")
    store.set(b"x", key="sub/k")
    assert store.get("k") == b"abc" and store.get("sub/k") == b"x"
    assert sorted(store.keys()) == ["k", "sub/k"] and sorted(store.keys(nested=False)) == ["k", "sub"]
    with pytest.raises(FileNotFoundError):
        store.get("missing")
    for kind in SERIALIZERS.values():
        store = FilesystemStore(str(tmp_path / "files"), serializer=kind())
        store.set({"a": [1]}, key="object")
        assert store.get("object") == {"a": [1]}


# --- drivers over stores ---


def test_driver_of_a_store(name: str, url: str) -> None:
    driver = DRIVERS[name](url)
    assert driver.name == name and isinstance(driver, StoreDriver) and isinstance(driver, MapDriver)
    assert driver.url == url and driver.storage_options == {} and driver.store is driver.store
    assert sorted(driver.keys()) == list("abcde")
    assert numbers(driver.get("c")) == [8, 9, 10, 11]
    stream = driver.get_iter()
    assert isinstance(stream, Composable)
    assert sorted(numbers(stream)) == list(range(20))
    assert sorted(numbers(pickle.loads(pickle.dumps(driver)).get_iter())) == list(range(20))
    assert numbers(driver.get_iter(keys_iterable=["d", "a"])) == [12, 13, 14, 15, 0, 1, 2, 3]
    for workers in (0, 1, 2, None):
        assert numbers(driver.get_iter(keys_iterable=["e", "b"], max_workers=workers)) == [16, 17, 18, 19, 4, 5, 6, 7]
    shards = driver.get_iter(keys_iterable=["d", "a"], flatten=False).map(numbers).collect()
    assert shards == [[12, 13, 14, 15], [0, 1, 2, 3]]
    with pytest.raises(FileNotFoundError):
        driver.get_iter(keys_iterable=["a", "missing"]).collect()
    assert numbers(StoreDriver(url, SERIALIZERS[name]()).get_iter(keys_iterable=["a"])) == [0, 1, 2, 3]
    assert driver.get_iter(keys_iterable=[]).collect() == []
    for unknown in ({"shufle_key_buffer": 2}, {"shufle_key_buffer": 2, "keys_iterable": ["a"]}):
        with pytest.raises(TypeError, match="shufle_key_buffer"):
            driver.get_iter(**unknown)


def test_shuffles_follow_the_seed(name: str, url: str) -> None:
    """The orders are squirrel-core's."""
    driver = DRIVERS[name](url)
    stream = driver.get_iter(keys_iterable="abcde", shuffle_key_buffer=10, key_shuffle_kwargs={"seed": 3})
    assert numbers(stream)[::4] == [4, 16, 12, 8, 0] and numbers(stream)[::4] == [4, 16, 12, 8, 0]
    stream = driver.get_iter(
        keys_iterable="ab", shuffle_item_buffer=5, item_shuffle_kwargs={"seed": 3, "initial": 2}
    )
    assert numbers(stream) == [0, 3, 2, 4, 6, 7, 1, 5]


class Plus(Composable):
    def __init__(self, by: int = 1) -> None:
        super().__init__()
        self.by = by

    def __iter__(self):
        for item in self.source:
            yield item + self.by


def times(items, factor: int = 1):
    for item in items:
        yield item * factor


class Squares(MapDriver):
    name = "squares"

    def keys(self, count: int = 5):
        return range(count)

    def get(self, key: int, factor: int = 1) -> list:
        return [key * factor, -key]


def test_map_driver() -> None:
    driver = Squares()
    assert driver.get_iter().collect() == [[n, -n] for n in range(5)]
    assert driver.get_iter(flatten=True).collect() == [0, 0, 1, -1, 2, -2, 3, -3, 4, -4]
    assert driver.get_iter(keys_kwargs={"count": 3}, get_kwargs={"factor": 3}).collect() == [[0, 0], [3, -1], [6, -2]]
    partial = functools.partial
    hooks = [Plus, times, partial(Plus, by=10), partial(Plus, 10), partial(times, factor=6)]
    stream = driver.get_iter(key_hooks=hooks)
    assert stream.collect() == [[n, -n] for n in (126, 132, 138, 144, 150)]
    stream = driver.get_iter(shuffle_key_buffer=10, key_shuffle_kwargs={"seed": 3})
    assert [item[0] for item in stream] == [1, 4, 3, 2, 0]
    assert driver.get_iter(shuffle_item_buffer=10, item_shuffle_kwargs={"seed": 3}, flatten=True).collect() == [
        -1, 4, 1, -3, 2, -4, 0, 3, -2, 0,
    ]
    stream = driver.get_iter(shuffle_key_buffer=10, key_shuffle_kwargs={"seed": 3, "initial": 2})
    assert [item[0] for item in stream] == [0, 3, 4, 1, 2]
    with pytest.raises(ValueError):
        driver.get_iter(key_hooks=[3])
    with pytest.raises(TypeError):
        driver.get_iter(key_hooks=Plus)


def test_base_classes() -> None:
    for kind in (IterDriver, MapDriver, AbstractStore, SquirrelSerializer):
        with pytest.raises(TypeError, match="abstract"):
            kind()
    assert len(Driver(anything=1)._catalog) == 0 and Driver(catalog=7)._catalog == 7
    stream = IterableSource([1, 2])
    assert stream.collect() == [1, 2]


def test_file_driver(tmp_path: Path) -> None:
    driver = FileDriver(str(tmp_path / "file.txt"))
    with driver.open("w") as file:
        file.write("text")
    with driver.open() as file:
        assert file.read() == "text"
    with driver.open("rb") as file:
        assert file.read() == b"text"
    deep = FileDriver(str(tmp_path / "not" / "there" / "file.txt"))
    with deep.open("w", create_if_not_exists=True) as file:
        file.write("deep")
    assert (tmp_path / "not" / "there" / "file.txt").read_text() == "deep"
