"""Columns beside the data, and sources that are found by them."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import squirrel

pytestmark = pytest.mark.once
COUNT = 12_000


def samples() -> list[dict]:
    rng = np.random.default_rng(4)
    kinds = ["tumour", "stroma", "fat", "blood"]
    scores, picks = rng.random(COUNT), rng.integers(0, 4, COUNT)
    return [
        {
            "n": i,
            "label": kinds[picks[i]],
            "score": float(scores[i]),
            "flag": bool(i % 7 == 0),
            "meta": {"patient": i // 100},
            "note": None if i % 3 else f"note {i}",
            "data": np.full(9, i % 251, np.uint8),
        }
        for i in range(COUNT)
    ]


SAMPLES = samples()
COLUMNS = ["n", "label", "score", "flag", "meta.patient", "note"]

QUERIES = {
    "label == 'tumour' and score < 0.3": lambda s: s["label"] == "tumour" and s["score"] < 0.3,
    "flag": lambda s: s["flag"],
    "meta.patient in [3, 50, 119] or n < 2": lambda s: s["meta"]["patient"] in (3, 50, 119) or s["n"] < 2,
    "note is not null and note contains '99'": lambda s: s["note"] is not None and "99" in s["note"],
    "n >= 0": lambda s: True,
    "n < 0": lambda s: False,
    "label in ['fat', 'blood'] and not flag": lambda s: s["label"] in ("fat", "blood") and not s["flag"],
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("where") / "d"
    squirrel.pack(SAMPLES, folder, index=COLUMNS, key="n", samples_per_shard=2500, block_bytes="16 KiB")
    return folder


def numbers(items) -> list[int]:
    return [sample["n"] for sample in items]


@pytest.mark.parametrize("query", QUERIES)
def test_as_a_plain_filter_finds(packed, query) -> None:
    wanted = [s["n"] for s in SAMPLES if QUERIES[query](s)]
    source = squirrel.open(packed)
    view = source.where(query)
    assert len(view) == len(wanted)
    assert numbers(view) == wanted == numbers(source.filter(query))
    assert sorted(numbers(view.shuffle_all(seed=3))) == wanted
    assert sorted(numbers(view.shuffle_all(seed=3, window=None))) == wanted
    assert [n for batch in view.batch(100) for n in batch["n"].tolist()] == wanted
    if not wanted:
        with pytest.raises(IndexError):
            view[0]
        return
    assert view[-1]["n"] == wanted[-1] and numbers(view[1:9]) == wanted[1:9]
    order = np.random.default_rng(0).integers(0, len(wanted), 300)
    assert numbers(view.get_many(order)) == [wanted[i] for i in order]
    np.testing.assert_array_equal(view[0]["data"], SAMPLES[wanted[0]]["data"])
    dealt = [numbers(view.distribute(r, 3, tail="uneven")) for r in range(3)]
    assert sorted(n for part in dealt for n in part) == wanted


def test_stages_behind_pickle_and_places(packed) -> None:
    source = squirrel.open(packed)
    view = source.where("score > 0.9").select("n")
    copy = pickle.loads(pickle.dumps(view))
    assert list(copy) == list(view) and set(view[0]) == {"n"}
    for sample in source.where("flag").with_meta():
        meta = sample["__meta__"]
        assert meta["index"] == sample["n"] and source[meta["index"]]["n"] == sample["n"]
    for batch in source.where("flag").batch(50):
        shards, rows = np.asarray(batch.places).T
        assert (shards * 2500 + rows).tolist() == batch["n"].tolist()
    flagged = source.where("flag")
    assert flagged.locate(100) == source.locate(700)
    assert flagged.find(700) == 100
    with pytest.raises(KeyError):
        flagged.find(701)


def test_errors(packed, tmp_path) -> None:
    source = squirrel.open(packed)
    with pytest.raises(squirrel.NotFoundError, match='"data" has no column here.*index='):
        source.where("data is null")
    with pytest.raises(ValueError):
        source.where("label ==")
    with pytest.raises(TypeError, match="in front of all"):
        source.select("n").where("flag")
    for bad, text in ((["data"], "no number, boolean or text"), (["n", "n"], "twice"), (["x,"], "commas")):
        with pytest.raises(squirrel.Error, match=text):
            squirrel.pack(SAMPLES[:10], tmp_path / "bad", index=bad)
    with pytest.raises(squirrel.SampleTypeError, match="several kinds"):
        squirrel.pack([{"a": 1}, {"a": "x"}], tmp_path / "bad", index=["a"])


def test_the_frames_are_as_specified(tmp_path) -> None:
    msgpack = pytest.importorskip("msgpack")
    values = {"i": [1, -5, None], "u": [2**63, 0, 1], "f": [1, 0.5, None]}
    values |= {"b": [True, None, False], "s": ["é", "", "xyz"]}
    rows = [{k: v[i] for k, v in values.items() if v[i] is not None} for i in range(3)]
    squirrel.pack(rows, tmp_path / "one.sqrl", index=list(values))
    data = (tmp_path / "one.sqrl").read_bytes()
    offset, size = struct.unpack("<QQ", data[-40:-24])
    frames = msgpack.unpackb(data[offset + 16 : offset + size])["frames"]
    types = {"i": ("int64", "q"), "u": ("uint64", "Q"), "f": ("float64", "d"), "b": ("bool", "?")}
    for frame in (f for f in frames if f["kind"] == "column"):
        body = data[frame["offset"] + 8 : frame["offset"] + frame["size"]]
        assert body[:8] == b"sqrlcolm"
        body, want = body[8:], values[frame["field"]]
        assert frame["valid"] == (None in want)
        if frame["valid"]:
            assert body[:8] == bytes([sum(1 << i for i, v in enumerate(want) if v is not None)]) + bytes(7)
            body = body[8:]
        if frame["field"] == "s":
            assert struct.unpack("<4Q", body[:32]) == (0, 2, 2, 5) and body[32:] == "éxyz".encode()
            continue
        dtype, letter = types[frame["field"]]
        assert frame["dtype"] == dtype
        assert struct.unpack(f"<3{letter}", body) == tuple(v or 0 for v in want)


def test_damage(packed, tmp_path) -> None:
    import shutil

    shutil.copytree(packed, tmp_path / "d")
    msgpack = pytest.importorskip("msgpack")
    path = sorted((tmp_path / "d").glob("*.sqrl"))[1]
    data = bytearray(path.read_bytes())
    offset, size = struct.unpack("<QQ", data[-40:-24])
    frames = msgpack.unpackb(bytes(data[offset + 16 : offset + size]))["frames"]
    (frame,) = (f for f in frames if f.get("field") == "score")
    data[frame["offset"] + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(squirrel.CorruptError, match='frame "column" of field "score"'):
        squirrel.open(tmp_path / "d").where("score < 2")
    assert len(squirrel.open(tmp_path / "d").where("n >= 0")) == COUNT


def test_frames_that_another_implementation_wrote() -> None:
    source = squirrel.open(Path(__file__).parents[1] / "golden" / "native" / "frames.sqrl")
    assert [s["id"] for s in source.where("id >= 7 and id < 30 and id != 9")] == [7, 8, *range(10, 30)]
    # Its keys are in no field of the samples.
    assert [source.find(f"key {i}") for i in range(40)] == list(range(40))
    with pytest.raises(KeyError):
        source.find("key 40")


def test_an_expression_is_a_str(tmp_path: Path) -> None:
    squirrel.pack([{"n": 1}], tmp_path / "d", index=["n"])
    for other in (b"n > 0", None, lambda sample: True):
        with pytest.raises(TypeError, match=r"filter\(\)"):
            squirrel.open(tmp_path / "d").where(other)
