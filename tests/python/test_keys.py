"""Keys: a sample by its name, and from a delivered sample back to its place."""

from __future__ import annotations

import numpy as np
import pytest

import squirrel

pytestmark = pytest.mark.once


def samples(count: int) -> list[dict]:
    return [{"id": f"case-{i * 7919 % 100_003}", "n": i, "meta": {"uid": i * 31}} for i in range(count)]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "d"
    squirrel.pack(samples(20_000), folder, key="id", samples_per_shard=6000, block_bytes="16 KiB")
    return folder


def test_find_by_text(keyed) -> None:
    source = squirrel.open(keyed)
    wanted = samples(20_000)
    for i in range(0, 20_000, 37):
        assert source[wanted[i]["id"]] == wanted[i]
        assert source.find(wanted[i]["id"].encode()) == i
    assert source.select("n")["case-0"] == {"n": 0}
    for missing in ("case-100003", "", "case", b"\xff", 3):
        with pytest.raises(KeyError, match="no sample with the key"):
            source.find(missing)


def test_many_keys_at_once(keyed, tmp_path) -> None:
    source, wanted = squirrel.open(keyed), samples(20_000)
    order = np.random.default_rng(3).integers(0, 20_000, 5000).tolist()
    assert source.find_many(wanted[i]["id"] for i in order) == order
    assert source.find_many(s["id"].encode() for s in wanted) == list(range(20_000))
    assert source.find_many([]) == []
    with pytest.raises(KeyError, match='no sample with the key "x"'):
        source.find_many(["case-0", "x", "y"])
    with pytest.raises(TypeError, match="find_many"):
        source.find_many("case-0")
    with pytest.raises(TypeError, match="a key is"):
        source.find_many(["case-0", 1.5])
    # Patients with many samples each, over all shards: the first counts.
    rows = [{"k": f"p{i % 7}", "n": i} for i in range(3000)]
    squirrel.pack(rows, tmp_path / "p", key="k", samples_per_shard=500)
    assert squirrel.open(tmp_path / "p").find_many([f"p{i}" for i in (6, 0, 3, 6)]) == [6, 0, 3, 6]


def test_integers_nested_names_and_duplicates(tmp_path) -> None:
    squirrel.pack(samples(3000), tmp_path / "i", key="meta.uid", samples_per_shard=1000)
    source = squirrel.open(tmp_path / "i")
    assert all(source.find(i * 31) == i for i in range(0, 3000, 53))
    with pytest.raises(KeyError):
        source.find("31")  # a text is no integer
    values = [-1, 2**64 - 1, 0, -(2**63), 5, 5]
    squirrel.pack([{"k": np.int64(v) if v == 5 else v} for v in values], tmp_path / "s", key="k")
    source = squirrel.open(tmp_path / "s")
    # As 64 bits, -1 and 2**64 - 1 are the same: the first is found.
    assert [source.find(v) for v in values] == [0, 0, 2, 3, 4, 4]


def test_a_function_makes_keys(tmp_path) -> None:
    squirrel.pack(samples(100), tmp_path / "f", key=lambda sample: f"k{sample['n']}")
    source = squirrel.open(tmp_path / "f")
    assert source["k42"]["n"] == 42 and source["k42"]["__key__"] == "k42"


def test_errors(tmp_path, keyed) -> None:
    with pytest.raises(squirrel.SampleTypeError, match='key: sample 1 .*"id"'):
        squirrel.pack([{"id": "a"}, {"n": 1}], tmp_path / "m", key="id")
    with pytest.raises(squirrel.SampleTypeError, match="key: "):
        squirrel.pack([{"id": 1.5}], tmp_path / "m", key="id")
    squirrel.pack([{"a": 1}], tmp_path / "plain")
    with pytest.raises(squirrel.UnsupportedError, match="pack them with key="):
        squirrel.open(tmp_path / "plain")["a"]
    with pytest.raises(squirrel.ArgumentError):
        squirrel.pack([], tmp_path / "x", format="jsonl", key="id")


def test_from_a_sample_back_to_its_place(keyed) -> None:
    source = squirrel.open(keyed)
    seen = 0
    for sample in source.filter("n >= 5990 and n < 6010").shuffle_all(seed=2).with_meta():
        meta = sample.pop("__meta__")
        assert meta["key"] == sample["id"] and meta["index"] == sample["n"]
        assert source[meta["index"]] == sample
        assert source.locate(meta["index"]) == (meta["shard"], meta["sample"])
        seen += 1
    assert seen == 20
    got = source.get_many([3, -1], meta=True)
    assert [g["__meta__"]["index"] for g in got] == [3, 19_999]
    with pytest.raises(TypeError, match="in front of batch"):
        source.batch(3).with_meta()


def test_the_frame_is_as_specified(tmp_path) -> None:
    msgpack = pytest.importorskip("msgpack")
    import struct

    squirrel.pack(samples(5000), tmp_path / "one.sqrl", key="id")
    data = (tmp_path / "one.sqrl").read_bytes()
    offset, size = struct.unpack("<QQ", data[-40:-24])
    footer = msgpack.unpackb(data[offset + 16 : offset + size])
    (frame,) = (f for f in footer["frames"] if f["kind"] == "keys")
    body = data[frame["offset"] + 8 : frame["offset"] + frame["size"]]
    assert body[:8] == b"sqrlkeys" and (frame["field"], frame["count"]) == ("id", 5000)
    entries = (1 << frame["bits"]) + 1
    fanout = struct.unpack(f"<{entries}Q", body[8 : 8 + 8 * entries])
    records = list(struct.iter_unpack("<QQ", body[8 + 8 * entries :]))
    assert records == sorted(records) and sorted(n for _, n in records) == list(range(5000))
    hashes = [h for h, _ in records]
    for i, value in enumerate(fanout):
        assert value == sum(h >> (64 - frame["bits"]) < i for h in hashes)
    try:
        import xxhash
    except ImportError:
        return
    wanted = samples(5000)
    assert all(h == xxhash.xxh3_64_intdigest(wanted[n]["id"].encode()) for h, n in records)


def test_keys_of_no_sample(tmp_path) -> None:
    squirrel.pack(samples(10), tmp_path / "d", key="id", overwrite=True)
    source = squirrel.open(tmp_path / "d")
    for beyond in (2**64, -(2**63) - 1, 10**30):
        with pytest.raises(KeyError):
            source.find(beyond)
    for other in (1.5, None, [1]):
        with pytest.raises(TypeError, match="a key is"):
            source.find(other)
