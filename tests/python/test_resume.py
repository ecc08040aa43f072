"""States: stop anywhere, go on with other threads, batches, ranks; refusals; appended shards."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream import Composable


def labels(stream: Composable) -> list[int]:
    return [sample["label"] for sample in stream]


def some(iterator: object, n: int) -> list[int]:
    """The labels of the next n items, samples or batches."""
    got: list[int] = []
    for _ in range(n):
        item = next(iterator, None)  # type: ignore[call-overload]
        if item is None:
            break
        got += item["label"].tolist() if isinstance(item, squirrel.Batch) else [item["label"]]
    return got


@pytest.fixture(scope="module")
def stream(images: Path) -> squirrel.Stream:
    return squirrel.open(images).select("label")


def test_a_state_is_a_small_dict(stream: squirrel.Stream) -> None:
    iterator = stream.shuffle_all(5).distribute(1, 3).iterator()
    some(iterator, 100)
    text = json.dumps(iterator.state_dict())
    assert len(text) < 1000 and json.loads(text)["squirrel_state"] == 1
    assert iterator.get_state() == iterator.state_dict()


def test_machine(images: Path) -> None:
    """Random plans, stops, batches and ways to load: the run without stops is the model."""
    draw = random.Random(11)
    for _ in range(150):
        base = squirrel.open(images)
        if draw.random() < 0.7:
            base = base.shuffle_all(draw.randrange(99), draw.choice([0, "30 KiB", "90 KiB", None]))
        if draw.random() < 0.5:
            base = base.distribute(draw.randrange(3), 3, tail=draw.choice(["pad", "drop", "uneven"]))
        if draw.random() < 0.5:
            base = base.filter("text endswith '1' or score > 100")
        if draw.random() < 0.3:
            base = base.skip(draw.randrange(300)).take(draw.randrange(900))
        base = base.select("label").set_epoch(draw.randrange(3))
        whole = labels(base)
        got: list[int] = []
        state = None
        for stop in range(6):
            batch = draw.choice([None, 1, 7, 64, 500, "2 KiB"])
            one = base.set_epoch(0 if state else base._epoch or 0)
            if isinstance(batch, str):
                one = one.batch(max_bytes=batch)
            elif batch is not None:
                one = one.batch(batch)
            if state is not None and draw.random() < 0.5:
                iterator = one.iterator()
                some(iterator, draw.randrange(3))
                iterator.load_state_dict(state)
            else:
                iterator = one.iterator(state=state)
            got += some(iterator, draw.randrange(700 if batch is None else 6) if stop < 5 else 10**9)
            assert got == whole[: len(got)]
            state = json.loads(json.dumps(iterator.state_dict()))
            iterator.close()
        assert got == whole


def test_ranks_change(stream: squirrel.Stream) -> None:
    """2 ranks x 2 workers become 3 x 1 become 1: the epoch, each sample once."""
    base = stream.shuffle_all(4, "50 KiB").set_epoch(2)
    draw = random.Random(2)
    for _ in range(20):
        states: list[object] = []
        got: list[int] = []
        for ranks, workers in [(2, 2), (3, 1), (1, 1)]:
            saved = []
            for consumer in range(ranks * workers):
                part = base.distribute(consumer % ranks, ranks, consumer // ranks, workers, tail="uneven")
                iterator = part.iterator(state={"all": states} if states else None)
                got += some(iterator, draw.randrange(300) if ranks > 1 else 10**9)
                saved.append({"checkpoint": [{"data": json.dumps(iterator.state_dict())}]})
            states = saved
        assert sorted(got) == list(range(2000))


def test_the_end_of_an_epoch(stream: squirrel.Stream) -> None:
    base = stream.shuffle_all(4)
    iterator = base.set_epoch(3).iterator()
    whole = some(iterator, 10**9)
    end = iterator.state_dict()
    assert end["finished"] and end["epoch"] == 3
    assert some(base.iterator(state=end), 10) == []
    assert some(base.set_epoch(4).iterator(), 10**9) != whole
    before = base.set_epoch(3).iterator().state_dict()  # nothing read yet
    assert some(base.set_epoch(0).iterator(state=before), 10**9) == whole


def test_back(stream: squirrel.Stream) -> None:
    """back=1: in front of what came last, a sample or a batch."""
    for one in (stream.shuffle_all(2), stream.shuffle_all(2).batch(100), stream.batch(30)):
        iterator = one.iterator()
        some(iterator, 7)
        last = some(iterator, 1)
        state = iterator.state_dict(back=1)
        assert some(one.iterator(state=state), 1) == last


def test_length_buckets(images: Path) -> None:
    """Samples that wait in buckets come all the same, in the same batches."""
    base = squirrel.open(images).shuffle_all(3)
    stream = base.batch(40, length_by="text", boundaries=[8, 9, 10, 11])  # "sample 7" .. "sample 1999"
    whole = [batch["label"].tolist() for batch in stream]
    for stop in (0, 1, 5, 30, len(whole) - 1, len(whole)):
        iterator = stream.iterator()
        got = [next(iterator)["label"].tolist() for _ in range(stop)]
        state = json.loads(json.dumps(iterator.state_dict()))
        assert got + [batch["label"].tolist() for batch in stream.iterator(state=state)] == whole
    with pytest.raises(squirrel.StateError, match="length buckets"):
        iterator = stream.iterator()
        next(iterator)
        base.iterator(state=iterator.state_dict())


def test_other_plans_are_refused(stream: squirrel.Stream) -> None:
    base = stream.shuffle_all(1).filter("label > 5")
    iterator = base.iterator()
    some(iterator, 10)
    state = iterator.state_dict()
    with pytest.raises(squirrel.StateError, match=r"stage 2 was shuffle_all\(seed=1\), now .*seed=2"):
        stream.shuffle_all(2).filter("label > 5").iterator(state=state)
    with pytest.raises(squirrel.StateError, match="stage 3 was filter.*label > 5.*now it is none"):
        stream.shuffle_all(1).iterator(state=state)
    with pytest.raises(squirrel.StateError, match="stage 4 was none, now it is take"):
        base.take(5).iterator(state=state)
    for nonsense in ({}, [], "x", None, {"squirrel_state": 1}, {"squirrel_state": 99}):
        with pytest.raises((squirrel.StateError, squirrel.DataError, squirrel.UnsupportedError)):
            base.iterator().load_state_dict(nonsense)
    iterator.close()
    with pytest.raises(squirrel.StateError, match="closed"):
        iterator.state_dict()


def test_appended_and_replaced_data(tmp_path: Path) -> None:
    """Appended shards come with the next epoch; the saved one ends with the old set."""
    folder = tmp_path / "d"
    squirrel.pack(({"label": i} for i in range(900)), folder, samples_per_shard=100)
    for dealt in (False, True):
        def plan() -> squirrel.Stream:
            base = squirrel.open(folder).shuffle_all(6, "4 KiB")
            return base.distribute(1, 2, tail="uneven") if dealt else base

        whole = labels(plan())
        iterator = plan().iterator()
        got = some(iterator, 123)
        state = iterator.state_dict()
        appended = [{"label": i, "new": 1} for i in range(5000, 5200)]
        squirrel.pack(appended, folder, append=True, samples_per_shard=100)
        got += some(plan().iterator(state=state), 10**9)
        assert got == whole
        assert len(labels(plan())) > len(whole)
    squirrel.pack(({"label": -i} for i in range(900)), folder, samples_per_shard=100, overwrite=True)
    with pytest.raises(squirrel.StateError, match="replaced or removed"):
        plan().iterator(state=state)


def test_formats_without_counts(tmp_path: Path) -> None:
    samples = [{"label": i, "text": "x" * (i % 50)} for i in range(5000)]
    (tmp_path / "many").mkdir()
    for k in range(5):
        squirrel.pack(samples[k * 1000 : (k + 1) * 1000], tmp_path / "many" / f"{k}.jsonl.gz")
    squirrel.pack(samples, tmp_path / "one.jsonl")
    draw = random.Random(3)
    for name in ("many", "one.jsonl"):
        for base in (squirrel.open(tmp_path / name), squirrel.open(tmp_path / name).shuffle_all(1, 90_000)):
            whole, got, state = labels(base), [], None
            while len(got) < 5000:
                iterator = base.iterator(state=state)
                got += some(iterator, draw.randrange(2500))
                state = iterator.state_dict()
                iterator.close()
            assert got == whole


# Of 1,000 samples in 4 shards: the first eight, and the sum of position * sample. These orders are
# promised: a change of this table is a change of what seeds give.
GOLDEN = {
    "window": ([918, 946, 636, 288, 206, 88, 696, 322], 242937640),
    "small": ([271, 889, 255, 557, 730, 884, 295, 731], 239717978),
    "single": ([591, 261, 719, 354, 262, 687, 392, 320], 251457307),
    "dealt": ([303, 133, 321, 652, 311, 142, 118, 663], 28125823),
    "dealt-single": ([261, 262, 320, 683, 178, 685, 139, 300], 27850837),
}


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> squirrel.Stream:
    folder = tmp_path_factory.mktemp("golden") / "g"
    samples = ({"label": i, "pad": b"x" * 100} for i in range(1000))
    # 36 samples a block (of 114 to 116 bytes): orders are those of blocks as they lie.
    squirrel.pack(samples, folder, samples_per_shard=250, block_bytes=4200, codec="lz4")
    return squirrel.open(folder).select("label")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_orders(thousand: squirrel.Stream, name: str) -> None:
    order = labels(
        {
            "window": thousand.shuffle_all(1),
            "small": thousand.shuffle_all(1, 40_000).set_epoch(1),
            "single": thousand.shuffle_all(1, None),
            "dealt": thousand.shuffle_all(1, 20_000).distribute(1, 3),
            "dealt-single": thousand.shuffle_all(1, None).distribute(1, 3),
        }[name]
    )
    first, total = GOLDEN[name]
    assert order[:8] == first
    assert sum(at * label for at, label in enumerate(order)) == total


M = (1 << 64) - 1


def mix64(x: int) -> int:
    """splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & M
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M
    return x ^ x >> 31


def permuted(i: int, n: int, key: int) -> int:
    """docs/order-and-resume.md, "The permutation", word by word."""
    bits = max((n - 1).bit_length(), 2)
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << bits - low_bits) - 1
    keys = []
    for r in range(6):
        key = mix64(key + r & M)
        keys.append(key)

    def scramble(half: int, key: int) -> int:
        h = (half + 1) * 0x9E3779B97F4A7C15 & M ^ key
        h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 & M
        return h ^ h >> 32

    while True:
        low, high = i & low_mask, i >> low_bits
        for r in range(0, 6, 2):
            low ^= scramble(high, keys[r]) & low_mask
            high ^= scramble(low, keys[r + 1]) & high_mask
        i = high << low_bits | low
        if i < n:
            return i


def test_the_order_of_single_samples_is_as_written(thousand: squirrel.Stream) -> None:
    for seed, epoch in ((1, 0), (2**64 - 1, 7), (12345, 3)):
        key = mix64(mix64(mix64(mix64(seed ^ 0x5371756972726C21) ^ epoch) ^ 3) ^ 0)
        order = [permuted(i, 1000, key) for i in range(1000)]
        assert sorted(order) == list(range(1000))
        base = thousand.shuffle_all(seed, None).set_epoch(epoch)
        assert labels(base) == order
        for rank in range(5):
            assert labels(base.distribute(rank, 5)) == order[rank::5]
