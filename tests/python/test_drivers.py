"""Drivers and stores: what differs from squirrel-core on purpose, and what only this package has."""

from __future__ import annotations

import copy
import functools
import gzip
import itertools
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import squirrel
from squirrel.driver import JsonlDriver, MapDriver, MessagepackDriver, SqrlDriver, StoreDriver
from squirrel.iterstream import Composable
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import FilesystemStore, SquirrelStore
from squirrel.store.filesystem import get_random_key


def fill(url: object, shards: int = 5, size: int = 4, serializer: object = None) -> str:
    store = SquirrelStore(str(url), serializer=serializer or MessagepackSerializer())
    for i in range(shards):
        store.set([{"n": i * size + k, "list": [k]} for k in range(size)], key=f"s{i:02}")
    return str(url)


def numbers(samples: object) -> list[int]:
    return [sample["n"] for sample in samples]


# --- one stream over a store ---


def test_the_stream_of_a_local_store_is_native(tmp_path: Path) -> None:
    driver = MessagepackDriver(fill(tmp_path / "s"))
    stream = driver.get_iter()
    assert isinstance(stream, squirrel.Stream)
    assert numbers(stream.filter("n >= 18")) == [18, 19] and numbers(stream) == list(range(20))
    assert next(iter(stream))["list"] == (0,)  # a tuple, as squirrel-core reads it
    assert next(iter(pickle.loads(pickle.dumps(stream))))["list"] == (0,)
    assert next(iter(copy.deepcopy(stream).take(1)))["list"] == (0,)
    assert next(iter(squirrel.open(tmp_path / "s")))["list"] == [0]
    assert [batch["n"].tolist() for batch in stream.select("n").batch(10)] == [[*range(10)], [*range(10, 20)]]
    assert isinstance(driver.get_iter(keys_iterable=["s01"]), Composable)
    assert [type(stream) for stream in driver.get_iter(flatten=False).take(1)] != [list]


def test_a_stream_is_passed_through_again(tmp_path: Path) -> None:
    """And is a copy of its own when it is copied."""
    driver = MessagepackDriver(fill(tmp_path / "s"))
    for stream in (driver.get_iter(), driver.get_iter(shuffle_key_buffer=9, key_shuffle_kwargs={"seed": 1})):
        assert sorted(numbers(stream)) == sorted(numbers(stream)) == list(range(20))
        assert sorted(numbers(copy.deepcopy(stream))) == list(range(20))


def test_keys_follow_the_native_order(tmp_path: Path) -> None:
    store = SquirrelStore(str(tmp_path / "s"), serializer=MessagepackSerializer())
    for i, key in enumerate(["a", "a-1", "a.b", "B", "é"]):
        store.set({"n": i}, key=key)
    driver = MessagepackDriver(str(tmp_path / "s"))
    by_key = [next(iter(driver.get(key)))["n"] for key in driver.keys()]
    assert by_key == numbers(driver.get_iter()) == numbers(driver.get_iter(max_workers=1, get_kwargs={"mode": "rb"}))


def test_a_subclass_that_gets_for_itself_is_asked(tmp_path: Path) -> None:
    class Doubling(MessagepackDriver):
        def get(self, key, **kwargs):
            return [{"n": 2 * sample["n"]} for sample in super().get(key, **kwargs)]

    assert numbers(Doubling(fill(tmp_path / "s")).get_iter()) == [2 * n for n in range(20)]


def test_plain_files_and_other_suffixes(tmp_path: Path) -> None:
    squirrel.pack([{"n": n} for n in range(30)], tmp_path / "lines", format="jsonl", samples_per_shard=10, prefix="p")
    driver = JsonlDriver(tmp_path / "lines")
    assert list(driver.keys()) == ["p-000000.jsonl", "p-000001.jsonl", "p-000002.jsonl"]
    assert numbers(driver.get("p-000001.jsonl")) == list(range(10, 20))
    assert numbers(driver.get_iter()) == list(range(30))
    assert numbers(driver.get_iter(keys_iterable=["p-000002.jsonl"])) == list(range(20, 30))
    one = JsonlDriver(str(tmp_path / "lines" / "p-000000.jsonl"), max_line="1 MiB")
    assert list(one.keys()) == ["p-000000.jsonl"] and numbers(one.get_iter()) == list(range(10))
    assert numbers(one.get("p-000000.jsonl")) == list(range(10))


def test_an_unknown_option_is_accepted_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    JsonlDriver(str(tmp_path), max_lime=3)
    assert "driver jsonl has no option max_lime; it has max_line, nan" in caplog.text


def test_native_shards_have_keys_too(tmp_path: Path) -> None:
    squirrel.pack([{"n": n} for n in range(9)], tmp_path / "d", samples_per_shard=3, prefix="p")
    driver = SqrlDriver(str(tmp_path / "d"))
    names = list(driver.keys())
    assert len(names) == 3 and numbers(driver.get(names[1])) == [3, 4, 5]


# --- keys before reading ---


class Recorded(MessagepackDriver):
    """Notes which shards are read, and when."""

    def __init__(self, url: str, **kwargs) -> None:
        super().__init__(url, **kwargs)
        self.read: list[str] = []

    def get(self, key, **kwargs):
        self.read.append(key)
        return super().get(key, **kwargs)


def take_share(keys, rank: int, size: int):
    return itertools.islice(keys, rank, None, size)


def test_hooks_run_before_any_shard_is_read(tmp_path: Path) -> None:
    url = fill(tmp_path / "s", shards=9)
    found = []
    for rank in range(3):
        driver = Recorded(url)
        hooks = [functools.partial(take_share, rank=rank, size=3)]
        shuffling = {"shuffle_key_buffer": 100, "key_shuffle_kwargs": {"seed": 5}}
        got = numbers(driver.get_iter(key_hooks=hooks, **shuffling))
        assert len(driver.read) == 3 and len(got) == 12
        found += got
    assert sorted(found) == list(range(36))


def test_epochs_of_a_seed(tmp_path: Path) -> None:
    driver = MessagepackDriver(fill(tmp_path / "s", shards=30, size=1))
    stream = driver.get_iter(shuffle_key_buffer=30, key_shuffle_kwargs={"seed": 5})
    first, second = numbers(stream), numbers(stream.set_epoch(1))
    assert first == numbers(stream.set_epoch(0)) and first != second and sorted(first) == sorted(second)


class OwnShare(Composable):
    """A hook of the user's: each DataLoader worker takes its part of the keys."""

    def __iter__(self):
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        return itertools.islice(iter(self.source), info.id, None, info.num_workers)


def in_workers(stream: Composable, passes: int = 1, **kw: object) -> list[list[int]]:
    from torch.utils.data import DataLoader, IterableDataset

    class Samples(IterableDataset):
        def __iter__(self):
            return iter(stream)

    loader = DataLoader(Samples(), batch_size=None, num_workers=3, collate_fn=lambda s: s["n"], **kw)
    return [[int(n) for n in loader] for _ in range(passes)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("persistent", [False, True])
def test_an_unseeded_shuffle_in_front_of_a_worker_hook_loses_nothing(tmp_path: Path, persistent: bool) -> None:
    """In squirrel-core each worker shuffles for itself: samples are lost and repeated."""
    pytest.importorskip("torch")
    driver = MessagepackDriver(fill(tmp_path / "s", shards=40, size=1))
    for hook in (OwnShare, lambda keys: iter(OwnShare().source_(keys))):
        stream = driver.get_iter(shuffle_key_buffer=40, key_hooks=[hook])
        passes = in_workers(stream, 3, persistent_workers=persistent)
        assert all(sorted(got) == list(range(40)) for got in passes)
        assert passes[0] != passes[1] != passes[2]


def test_an_unseeded_shuffle_is_refused_among_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from squirrel.framework.exceptions import PyTorchSplittingException
    from squirrel.integration_test.helpers import create_torch_mock

    monkeypatch.setitem(sys.modules, "torch", create_torch_mock((0, 1), (1, 2)))
    driver = MessagepackDriver(fill(tmp_path / "s"))
    hook = functools.partial(take_share, rank=1, size=2)
    with pytest.raises(PyTorchSplittingException, match="key_shuffle_kwargs={'seed': 7}"):
        driver.get_iter(shuffle_key_buffer=10, key_hooks=[hook]).collect()
    seeded = driver.get_iter(shuffle_key_buffer=10, key_hooks=[hook], key_shuffle_kwargs={"seed": 1})
    assert len(seeded.collect()) == 8
    assert len(driver.get_iter(shuffle_key_buffer=10).collect()) == 20  # nothing splits


# --- prefetching ---


class Waiting(MapDriver):
    """The first items wait until `meet` are being got at a time; knows how many there were."""

    name = "waiting"

    def __init__(self, meet: int = 1) -> None:
        super().__init__()
        self.change = threading.Condition()
        self.meet = meet
        self.now = self.most = 0

    def keys(self):
        return range(20)

    def get(self, key):
        with self.change:
            self.now += 1
            self.most = max(self.most, self.now)
            self.change.notify_all()
            assert self.change.wait_for(lambda: self.most >= self.meet, timeout=60)
        time.sleep(0.005)
        with self.change:
            self.now -= 1
        return [key]


def test_items_are_got_ahead() -> None:
    driver = Waiting(meet=8)
    assert driver.get_iter(prefetch_buffer=8).collect() == [[n] for n in range(20)] and driver.most == 8
    driver = Waiting(meet=3)
    assert driver.get_iter(max_workers=3, flatten=True).collect() == list(range(20)) and driver.most == 3
    driver = Waiting()
    assert driver.get_iter(max_workers=1).collect() == [[n] for n in range(20)] and driver.most == 1
    with pytest.raises(ValueError, match="at least 1"):
        driver.get_iter(prefetch_buffer=0)


# --- what is wrong ---


@pytest.mark.parametrize("choose", [{}, {"shuffle_key_buffer": 9}, {"max_workers": 1, "shuffle_item_buffer": 2}])
def test_damage_is_an_error_that_names_the_shard(tmp_path: Path, choose: dict) -> None:
    url = fill(tmp_path / "s", size=500)
    path = tmp_path / "s" / "s02.gz"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-8], b"", gzip.compress(gzip.decompress(whole)[:-2])):
        path.write_bytes(damaged)
        with pytest.raises(squirrel.Error, match="s02.gz"):
            MessagepackDriver(url).get_iter(**choose).collect()
    path.write_bytes(b"no gzip at all")
    with pytest.raises(squirrel.Error, match="s02.gz"):
        MessagepackDriver(url).get_iter(**choose).collect()


def test_a_shard_of_another_format_is_not_left_out(tmp_path: Path) -> None:
    url = fill(tmp_path / "s")
    JsonSerializer.serialize_shard_to_file([{"n": 1}], f"{url}/s02.gz")
    with pytest.raises(squirrel.FormatError, match="s02.gz.*format jsonl, not messagepack"):
        MessagepackDriver(url).get_iter().collect()


def test_a_wrong_url_is_an_error(tmp_path: Path) -> None:
    """squirrel-core gives no samples, and no error."""
    url = fill(tmp_path / "parent" / "store")
    for wrong, what in ((f"{url}x", "no such directory"), (str(tmp_path / "parent"), "holds no shards.*only store")):
        for kind in (MessagepackDriver, JsonlDriver):
            with pytest.raises(FileNotFoundError, match=what):
                kind(wrong).get_iter().collect()
            with pytest.raises(FileNotFoundError, match=what):
                list(kind(wrong).keys())
    (tmp_path / "empty").mkdir()
    assert MessagepackDriver(str(tmp_path / "empty")).get_iter().collect() == []
    assert not (tmp_path / "storex").exists()


def test_a_large_sample_is_read(tmp_path: Path) -> None:
    """msgpack's Unpacker, which squirrel-core uses, stops in silence at 100 MiB."""
    store = SquirrelStore(str(tmp_path / "s"), serializer=MessagepackSerializer())
    store.set([{"n": 0, "x": np.zeros(110 << 20, np.uint8)}, {"n": 1}], key="large")
    assert numbers(MessagepackDriver(str(tmp_path / "s")).get_iter()) == [0, 1]
    with pytest.raises(squirrel.LimitError, match="large.gz.*max_buffer_size"):
        list(store.get("large", unpacker_kwargs={"max_buffer_size": 1 << 20}))


def test_errors_of_callbacks_name_shard_and_sample(tmp_path: Path) -> None:
    def fail(sample):
        if sample["n"] == 6:
            raise RuntimeError("six")
        return sample

    driver = MessagepackDriver(fill(tmp_path / "s"))
    for stream in (driver.get_iter(), driver.get_iter(keys_iterable=["s00", "s01"])):
        with pytest.raises(RuntimeError) as caught:
            stream.map(fail).collect()
        assert "sample 2 of shard" in str(caught.value.__notes__) and "s01.gz" in str(caught.value.__notes__)


def test_keys_do_not_lead_out_of_a_store(tmp_path: Path) -> None:
    store = FilesystemStore(str(tmp_path / "s"))
    for key in ("../x", "a/../../x", "/etc/x", ""):
        with pytest.raises(ValueError, match="leads out"):
            store.set(b"", key=key)
    store.set(b"1", key="a/b/c")
    assert store.get("a/b/c") == b"1" and list(store.keys()) == ["a/b/c"]


# --- automatic keys ---


def test_automatic_keys_differ_whatever_is_seeded(tmp_path: Path) -> None:
    """squirrel-core draws from the seeded random numbers: workers that are seeded alike overwrite each other."""
    drawn = set()
    for _ in range(20):
        random.seed(1)
        drawn.add(get_random_key())
    assert len(drawn) == 20 and {len(key) for key in drawn} == {16} and len(get_random_key(5)) == 5
    code = (
        "import random, sys\nfrom squirrel.store import SquirrelStore\n"
        "from squirrel.serialization import MessagepackSerializer\nrandom.seed(1)\n"
        "SquirrelStore(sys.argv[1], serializer=MessagepackSerializer()).set({'n': 1})\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True)
    assert len(list((tmp_path / "s").iterdir())) == 2


def test_a_shard_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = SquirrelStore(str(tmp_path / "s"), serializer=MessagepackSerializer())
    store.set([{"n": 1}], key="a")
    with pytest.raises(TypeError):
        store.set([{"n": 2}, {"n": {1, 2}}], key="a")
    assert numbers(store.get("a")) == [1] and os.listdir(tmp_path / "s") == ["a.gz"]


# --- JSON hooks ---


def pair(value: dict) -> object:
    return (value["re"], value["im"]) if value.keys() == {"re", "im"} else value


def test_the_hook_is_called_for_single_objects_and_for_shards(tmp_path: Path) -> None:
    """squirrel-core raises for the one and forgets the hook for the other."""
    sample = {"z": {"re": 1, "im": 2}, "deep": [{"re": 3, "im": 4}], "a": np.arange(3)}
    serializer = JsonSerializer(deser_hook=pair)
    found = serializer.deserialize(serializer.serialize(sample))
    assert found["z"] == (1, 2) and found["deep"] == [(3, 4)] and found["a"].tolist() == [0, 1, 2]
    SquirrelStore(str(tmp_path / "s"), serializer=serializer).set([sample, sample], key="k")
    driver = JsonlDriver(str(tmp_path / "s"), deser_hook=pair)
    for samples in (driver.get_iter(), driver.get("k"), serializer.deserialize_shard_from_file(f"{tmp_path}/s/k.gz")):
        for got in samples:
            assert got["z"] == (1, 2) and got["deep"] == [(3, 4)] and got["a"].tolist() == [0, 1, 2]
    assert next(iter(JsonSerializer.deserialize_shard_from_file(f"{tmp_path}/s/k.gz")))["z"] == {"re": 1, "im": 2}
    order: list[str] = []
    JsonSerializer(deser_hook=lambda d: order.append(next(iter(d)))).deserialize(b'{"a": {"b": {"c": 1}}}')
    assert order == ["c", "b", "a"]
    assert pickle.loads(pickle.dumps(driver)).get_iter().take(1).collect()[0]["z"] == (1, 2)


# --- storage options ---


def test_a_driver_without_storage_options_is_not_given_any(tmp_path: Path) -> None:
    from squirrel.catalog import Catalog, Source
    from squirrel.driver import Driver
    from squirrel.framework.plugins.plugin_manager import register_driver

    class Bare(Driver):
        name = "test_bare"

        def __init__(self, path: str, catalog: object = None) -> None:
            super().__init__(catalog=catalog)
            self.path = path

    register_driver(Bare)
    catalog = Catalog()
    catalog["bare"] = Source("test_bare", driver_kwargs={"path": "p"})
    catalog["store"] = Source("messagepack", driver_kwargs={"url": fill(tmp_path / "s"), "storage_options": {"a": 1}})
    assert catalog["bare"].get_driver().path == "p"
    assert catalog["store"].get_driver(storage_options={"b": 2}).storage_options == {"a": 1, "b": 2}


def test_a_store_driver_takes_any_serializer(tmp_path: Path) -> None:
    class Lines:
        def serialize_shard_to_file(self, shard, path, fs=None):
            with fs.open(path, "w") as file:
                file.write("\n".join(shard))

        def deserialize_shard_from_file(self, path, fs=None):
            with fs.open(path) as file:
                yield from file.read().split(b"\n")

    driver = StoreDriver(str(tmp_path / "s"), Lines())
    driver.store.set(["a", "b"], key="one")
    driver.store.set(["c"], key="two")
    assert Counter(driver.get_iter()) == {b"a": 1, b"b": 1, b"c": 1}


@pytest.mark.parametrize(
    ("driver", "damaged"),
    [
        ("jsonl", b"\xc1\xc1"),
        ("jsonl", b"[[" * 3000),
        ("jsonl", b"{bad\n"),
        ("jsonl", b'{"n":"\xff"}\n'),
        ("messagepack", b"\xc1\xc1"),
    ],
)
def test_damaged_shards_do_not_vanish_where_a_driver_is_named(driver: str, damaged: bytes, tmp_path: Path) -> None:
    good = {"jsonl": b'{"n":1}\n', "messagepack": b"\x81\xa1n\x01"}[driver]
    for name, content in (("a", good), ("b", damaged), ("c", good)):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match="b.gz"):
        list(squirrel.open(tmp_path, driver=driver))
