"""Parts of a data set: disjoint, stable when data are appended, by fields, keys or samples alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import squirrel

N = 600


def rows(begin: int = 0, count: int = N) -> list[dict[str, Any]]:
    return [{"i": i, "name": f"n{i}", "patient": i * 7919 % 40} for i in range(begin, begin + count)]


def ids(stream: Any) -> list[int]:
    return [sample["i"] for sample in stream]


def pack(target: Path, begin: int = 0, count: int = N, **more: Any) -> squirrel.Stream:
    squirrel.pack(rows(begin, count), target, samples_per_shard=150, block_bytes=400, **more)
    return squirrel.open(target)


def check(parts: list[squirrel.Stream], fractions: list[float]) -> None:
    got = [ids(part) for part in parts]
    assert sorted(sum(got, [])) == list(range(N))
    for part, fraction in zip(got, fractions):
        assert part == sorted(part)  # in the order of the source
        assert abs(len(part) - fraction * N) < 5 * (N * fraction) ** 0.5


def test_by_sample(tmp_path: Path) -> None:
    stream = pack(tmp_path / "d")
    parts = stream.split([0.7, 0.2, 0.1], seed=5)
    check(parts, [0.7, 0.2, 0.1])
    before = [ids(part) for part in parts]
    for part, wanted in zip(parts, before):  # sources again
        assert len(part) == len(wanted)
        assert ids([part[0], part[-1]]) == [wanted[0], wanted[-1]]
        assert sorted(ids(part.shuffle_all(1))) == wanted
        shares = [ids(part.distribute(r, 3, tail="uneven")) for r in range(3)]
        assert sorted(sum(shares, [])) == wanted
        iterator = part.shuffle_all(2).iterator()
        first = [next(iterator)["i"] for _ in range(20)]
        rest = [s["i"] for s in part.shuffle_all(2).iterator(state=json.loads(json.dumps(iterator.state_dict())))]
        assert sorted(first + rest) == wanted
    assert ids(stream.split([0.7, 0.2, 0.1], seed=6)[0]) != before[0]
    assert [ids(part) for part in squirrel.open(tmp_path / "d").split([0.7, 0.2, 0.1], seed=5)] == before
    squirrel.pack(rows(N, 300), tmp_path / "d", append=True)
    after = [ids(part) for part in squirrel.open(tmp_path / "d").split([0.7, 0.2, 0.1], seed=5)]
    assert [[i for i in part if i < N] for part in after] == before
    assert sorted(sum(after, [])) == list(range(N + 300))


def test_as_specified(tmp_path: Path) -> None:
    """A sample's place is its seed in epoch 0, before the repeat is mixed in."""
    xxhash = pytest.importorskip("xxhash")
    from test_augment import mix64

    stream = pack(tmp_path / "d")
    inside = set(ids(stream.split(2, seed=9)[0]))
    for i in range(0, N, 13):
        path, number = stream.locate(i)
        key = mix64(mix64(mix64(9 ^ 0x5371756972726C21) ^ 0) ^ 5)
        key = mix64(key ^ xxhash.xxh3_64_intdigest(Path(path).name.encode()))
        assert (i in inside) == (mix64(mix64(key ^ number)) < 1 << 63)


def test_folds_of_samples(tmp_path: Path) -> None:
    stream = pack(tmp_path / "d")
    validated = []
    for training, validation in stream.k_fold(4, seed=2):
        assert sorted(ids(training) + ids(validation)) == list(range(N))
        validated += ids(validation)
    assert sorted(validated) == list(range(N))


def test_by_key(tmp_path: Path) -> None:
    stream = pack(tmp_path / "d", key="name")
    parts = stream.split(3, seed=1)
    check(parts, [1 / 3] * 3)
    assert [ids(part) for part in parts] == [ids(part) for part in stream.split(3, seed=1, by="name")]


def test_by_an_indexed_field_no_sample_is_read(tmp_path: Path) -> None:
    plain, indexed = pack(tmp_path / "a"), pack(tmp_path / "b", index=["patient"])
    before = squirrel.metrics()
    parts = indexed.split([0.5, 0.5], seed=3, by="patient")
    folds = indexed.k_fold(3, by="patient")
    assert sum(len(part) for part in parts) == N
    assert all(len(one) + len(other) == N for one, other in folds)
    assert squirrel.metrics()["blocks"] == before["blocks"]
    assert [ids(part) for part in parts] == [ids(part) for part in plain.split([0.5, 0.5], seed=3, by="patient")]
    for training, validation in folds:
        assert not {i * 7919 % 40 for i in ids(training)} & {i * 7919 % 40 for i in ids(validation)}
    below = indexed.where("patient < 20").split(2, by="patient")
    assert sorted(sum(map(ids, below), [])) == [i for i in range(N) if i * 7919 % 40 < 20]
    assert sum(map(len, below)) == len(indexed.where("patient < 20"))


def test_where_behind_where(tmp_path: Path) -> None:
    stream = pack(tmp_path / "d", index=["patient", "i"])
    both = stream.where("patient < 20 or i == 3").where("i >= 100").where("i != 250")
    wanted = [i for i in range(100, N) if i * 7919 % 40 < 20 and i != 250]
    assert len(both) == len(wanted) and ids(both) == wanted
    assert both[5]["i"] == wanted[5] and sorted(ids(both.shuffle_all(1))) == wanted
    iterator = both.shuffle_all(3).distribute(0, 1).iterator()
    first = [next(iterator)["i"] for _ in range(50)]
    state = iterator.state_dict()
    halves = [both.shuffle_all(3).distribute(r, 2, tail="pad").iterator(state=state) for r in range(2)]
    assert set(first).isdisjoint(s["i"] for s in halves[0]) and len(first) == 50
    other = stream.where("patient < 20").shuffle_all(3).distribute(0, 1)
    with pytest.raises(squirrel.StateError):
        other.iterator(state=state)


def test_refusals(tmp_path: Path) -> None:
    stream = pack(tmp_path / "d")
    with pytest.raises(TypeError, match="in front of all other stages"):
        stream.shuffle_all(1).split(2)
    (tmp_path / "a.jsonl").write_text('{"i": 1}\n')
    with pytest.raises(squirrel.UnsupportedError, match="squirrel index"):
        squirrel.open(tmp_path / "a.jsonl").split(2)
    with pytest.raises(ValueError, match="sum to 1"):
        stream.split([0.5, 0.6])
