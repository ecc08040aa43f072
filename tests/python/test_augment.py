"""Random numbers that belong to a sample: the same whoever draws them, and whenever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squirrel

N = 300
MASK = (1 << 64) - 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    squirrel.pack(({"i": i} for i in range(N)), tmp_path / "data", samples_per_shard=70, block_bytes=200)
    return tmp_path / "data"


def noise(sample: dict[str, Any], rng: np.random.Generator) -> tuple[int, int]:
    return sample["i"], int(rng.integers(1 << 40))


def mix64(x: int) -> int:
    """splitmix64 with its increment."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def test_as_specified() -> None:
    xxhash = pytest.importorskip("xxhash")
    for seed, epoch, sample, repeat in ((0, 0, 0, 0), (7, 3, 12345, 2), (2**64 - 1, 1, 2**40, 0)):
        key = mix64(mix64(mix64(seed ^ 0x5371756972726C21) ^ epoch) ^ 5)
        key = mix64(key ^ xxhash.xxh3_64_intdigest(b"a-000001.sqrl"))
        wanted = mix64(mix64(key ^ sample) ^ repeat)
        meta = {"shard": "s3://bucket/x/a-000001.sqrl", "sample": sample}
        assert squirrel.sample_seed(meta, seed, epoch, repeat) == wanted
        again = np.random.Generator(np.random.Philox(key=wanted)).random(3)
        assert (squirrel.sample_rng(meta, seed, epoch, repeat).random(3) == again).all()


def test_it_never_changes() -> None:
    meta = {"shard": "data/a-000000.sqrl", "sample": 5}
    assert squirrel.sample_seed(meta, 1) == 0x8f9863e5f037bed2


def test_whoever_draws(folder: Path) -> None:
    stream = squirrel.open(folder)
    wanted = dict(stream.augment(noise, seed=3))
    assert len(set(wanted.values())) == N
    for meta in stream.get_many(range(0, N, 17), meta=True):
        assert wanted[meta["i"]] == noise(meta, squirrel.sample_rng(meta["__meta__"], 3))[1]
    for window in ("1 KiB", 0, None):
        shuffled = stream.shuffle_all(9, window)
        assert dict(shuffled.augment(noise, seed=3)) == wanted
        parts = [list(shuffled.distribute(r, 3, tail="uneven").augment(noise, seed=3)) for r in range(3)]
        assert dict(sum(parts, [])) == wanted
    assert dict(stream.filter("i > 100").augment(noise, 3)) == {i: x for i, x in wanted.items() if i > 100}
    assert dict(stream.augment(noise, seed=4)) != wanted
    other = stream.shuffle_all(9).set_epoch(1).augment(noise, seed=3).collect()
    assert dict(other) != wanted and set(dict(other)) == set(wanted)


def test_wherever_it_was_stopped(folder: Path) -> None:
    stream = squirrel.open(folder).shuffle_all(1, "1 KiB").augment(noise, seed=3).set_epoch(2)
    whole = stream.collect()
    iterator = stream.iterator()
    first = [next(iterator) for _ in range(111)]
    state = json.loads(json.dumps(iterator.state_dict()))
    assert first + list(stream.iterator(state=state)) == whole
    with pytest.raises(squirrel.StateError, match="augment"):
        squirrel.open(folder).shuffle_all(1, "1 KiB").augment(noise, seed=4).iterator(state=state)
    mixed = squirrel.mix([stream, [(-1, 0)] * 50], seed=1)
    assert set(mixed) - {(-1, 0)} <= set(squirrel.mix([stream, [(-1, 0)] * 50], seed=1))


def test_results_of_one_sample(folder: Path) -> None:
    def twice(sample: dict[str, Any]) -> list[Any]:
        return [sample, sample]

    stream = squirrel.open(folder).flat_map(twice).augment(noise, seed=3)
    items = stream.collect()
    assert len({x for _, x in items}) == 2 * N
    assert dict(items[::2]) == dict(squirrel.open(folder).augment(noise, seed=3))
    iterator = stream.iterator()
    first = [next(iterator) for _ in range(41)]
    assert first + list(stream.iterator(state=iterator.state_dict())) == items

    failed = set()

    def flaky(sample: dict[str, Any], rng: np.random.Generator) -> tuple[int, int]:
        drawn = noise(sample, rng)
        if sample["i"] % 7 == 0 and sample["i"] not in failed:
            failed.add(sample["i"])
            raise OSError("once")
        return drawn

    assert squirrel.open(folder).augment(flaky, seed=3, on_error="retry").collect() == items[::2]


def test_where_the_sample_is_not_known(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="behind stages that hold items"):
        squirrel.open(folder).map(dict).shuffle(10).augment(noise, 1).collect()
    with pytest.raises(TypeError, match="into each stream of a mix"):
        squirrel.mix([squirrel.open(folder)]).augment(noise, 1).collect()
    with pytest.raises(TypeError, match="native samples"):
        squirrel.zip([squirrel.open(folder)]).augment(noise, 1).collect()
    (tmp_path / "a.jsonl").write_text("".join(f'{{"i": {i}}}\n' for i in range(50)))
    assert len(dict(squirrel.open(tmp_path / "a.jsonl").augment(noise, 1))) == 50
    with pytest.raises(ValueError, match="counted"):
        squirrel.sample_seed({"shard": "a.jsonl", "sample": None}, 1)
