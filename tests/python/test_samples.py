"""Samples out of shards: what they are made of, who owns their memory."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import squirrel

from sample_data import image_samples


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def test_samples_come_back_in_order(images: Path) -> None:
    wanted = image_samples(2000)
    got = list(squirrel.open(images))
    assert len(got) == 2000
    assert all(same(a, b) for a, b in zip(wanted, got))


def test_a_stream_starts_anew_each_time(images: Path) -> None:
    stream = squirrel.open(images)
    first = [s["label"] for s in stream]
    assert first == [s["label"] for s in stream] == list(range(2000))


def test_arrays_own_their_bytes_and_are_writable(images: Path) -> None:
    samples = list(squirrel.open(images).take(50))
    wanted = image_samples(2000)
    for sample in samples:
        assert sample["image"].flags.owndata and sample["image"].flags.writeable
        sample["image"] += 1
    for sample, before in zip(samples, wanted):
        assert np.array_equal(sample["image"], before["image"] + 1)


def test_views_are_read_only_and_outlive_the_iterator(images: Path) -> None:
    wanted = image_samples(2000)
    with squirrel.open(images).iterator(copy=False) as iterator:
        kept = [next(iterator)["image"] for _ in range(400)]
    gc.collect()
    for _ in squirrel.open(images):  # uses what memory was given back
        pass
    assert not kept[0].flags.writeable and type(kept[0].base).__name__ == "Pin"
    assert all(np.array_equal(k, w["image"]) for k, w in zip(kept, wanted))


def test_keys_are_shared_between_samples(images: Path) -> None:
    a, b = list(squirrel.open(images).take(2))
    assert all(x is y for x, y in zip(a, b))


def test_samples_need_not_be_dicts(tmp_path: Path) -> None:
    items = [1, "two", [3, {"four": None}], None, 5.5, {"a": {"b": {"c": [1, 2]}}}]
    squirrel.pack(items, tmp_path / "mixed")
    assert list(squirrel.open(tmp_path / "mixed")) == items


def test_large_arrays(tmp_path: Path) -> None:
    big = [{"x": np.full((300, 400), i, np.float32)} for i in range(12)]
    squirrel.pack(big, tmp_path / "big")
    got = list(squirrel.open(tmp_path / "big"))
    assert all(np.array_equal(a["x"], b["x"]) and b["x"].flags.writeable for a, b in zip(big, got))


def test_no_references_are_leaked(images: Path) -> None:
    stream = squirrel.open(images)
    key = next(iter(stream.iterator()))
    name = next(iter(key))
    list(stream)
    before = sys.getrefcount(name)
    for _ in range(5):
        list(stream)
    assert sys.getrefcount(name) - before <= 1
    for _ in range(3):
        batch = next(iter(stream.batch(64)))
        slot = batch._slot
        del batch
        assert sys.getrefcount(slot) == 2


def test_memory_does_not_grow(images: Path) -> None:
    import tracemalloc

    stream = squirrel.open(images)
    list(stream)
    tracemalloc.start()
    for _ in range(2):
        for _ in stream:
            pass
    base = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        for _ in stream:
            pass
        for _ in stream.batch(100):
            pass
    grown = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    assert grown < 60_000


def test_errors_name_the_file_and_are_built_in_ones(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing") as caught:
        squirrel.open(tmp_path / "missing")
    assert isinstance(caught.value, squirrel.Error) and caught.value.code == "not_found"
    with pytest.raises(FileNotFoundError, match="no data files"):
        squirrel.open(tmp_path)
    bad = tmp_path / "noise.bin"
    bad.write_bytes(b"\xc1\xff" * 500)  # 0xc1 begins no MessagePack
    with pytest.raises(squirrel.DataError, match="noise.bin"):
        squirrel.open(bad)


def test_an_unknown_option_names_the_nearest(images: Path) -> None:
    with pytest.raises(ValueError, match="drver"):
        squirrel.open(images, drver="sqrl")


def test_damage_is_reported_behind_what_is_good(tmp_path: Path) -> None:
    squirrel.pack(image_samples(600), tmp_path / "d", block_bytes=20_000, codec="none")
    (shard,) = (tmp_path / "d").glob("*.sqrl")
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 0x55
    shard.write_bytes(raw)
    good = []
    with pytest.raises(squirrel.DataError) as caught:
        for sample in squirrel.open(tmp_path / "d"):
            good.append(sample["label"])
    assert 0 < len(good) < 600 and good == list(range(len(good)))
    assert shard.name in str(caught.value)


def test_a_truncated_shard_is_an_error(tmp_path: Path) -> None:
    squirrel.pack(image_samples(600), tmp_path / "d")
    (shard,) = (tmp_path / "d").glob("*.sqrl")
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(squirrel.DataError, match=shard.name):
        list(squirrel.open(tmp_path / "d"))


def test_errors_pickle() -> None:
    import pickle

    error = squirrel.CorruptError("bad block", where="a.sqrl: block 3", os_errno=5, retryable=True)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is squirrel.CorruptError and str(again) == "a.sqrl: block 3: bad block"
    assert (again.where, again.message, again.os_errno) == ("a.sqrl: block 3", "bad block", 5)
    missing = pickle.loads(pickle.dumps(squirrel.NotFoundError("gone", os_errno=2)))
    assert missing.errno == 2 and str(missing) == "gone"


def test_squirrel_store_of_the_reference_is_read(tmp_path: Path) -> None:
    """A shard as squirrel-core writes it: msgpack records behind each other in gzip."""
    import gzip

    msgpack = pytest.importorskip("msgpack")
    msgpack_numpy = pytest.importorskip("msgpack_numpy")
    folder = tmp_path / "store"
    folder.mkdir()
    wanted = image_samples(50)
    for part in range(2):
        with gzip.open(folder / f"{part}.gz", "wb") as file:
            for sample in wanted[part * 25 : part * 25 + 25]:
                file.write(
                    msgpack.packb(sample, use_bin_type=True, default=msgpack_numpy.encode)
                )
    got = list(squirrel.open(folder))
    assert all(same(a, b) for a, b in zip(wanted, got)) and len(got) == 50


def test_gzip_shards_that_we_write_are_read_by_msgpack(tmp_path: Path) -> None:
    import gzip

    msgpack = pytest.importorskip("msgpack")
    msgpack_numpy = pytest.importorskip("msgpack_numpy")
    wanted = image_samples(50)
    squirrel.pack(wanted, tmp_path / "out.gz", format="messagepack")
    with gzip.open(tmp_path / "out.gz") as file:
        got = list(msgpack.Unpacker(file, object_hook=msgpack_numpy.decode))
    assert all(same(a, b) for a, b in zip(wanted, got)) and len(got) == 50


def test_arrays_in_json_lines(tmp_path: Path) -> None:
    """As squirrel-core writes them: nested lists with dtype and shape."""
    import json

    arrays = [np.arange(6, dtype="<i8").reshape(2, 3) * i for i in range(20)]
    with open(tmp_path / "a.jsonl", "w") as file:
        for array in arrays:
            value = {"data": array.tolist(), "type": array.dtype.str, "shape": array.shape}
            file.write(json.dumps({"x": value, "f": {"data": [0.5], "type": "<f4", "shape": [1]}}) + "\n")
    stream = squirrel.open(tmp_path / "a.jsonl")
    for copy in (True, False):
        with stream.iterator(copy=copy) as iterator:
            got = list(iterator)
        assert all(np.array_equal(g["x"], a) and g["x"].dtype == a.dtype for g, a in zip(got, arrays))
        assert got[0]["f"].dtype == np.float32 and got[0]["x"].flags.writeable is copy
    (batch,) = stream.batch(20)
    assert np.array_equal(batch["x"], np.stack(arrays))
    squirrel.pack(stream, tmp_path / "d")
    assert all(np.array_equal(g["x"], a) for g, a in zip(squirrel.open(tmp_path / "d"), arrays))
