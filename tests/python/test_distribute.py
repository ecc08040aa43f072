"""distribute(): who gets what, how many, and where ranks and workers are found."""

from __future__ import annotations

import collections
import os
import random
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream import Composable

N = 2000


def labels(stream: Composable) -> list[int]:
    return [sample["label"] for sample in stream]


def parts(stream: squirrel.Stream, ranks: int, workers: int = 1, **kw: object) -> list[list[int]]:
    return [
        labels(stream.distribute(rank, ranks, worker, workers, **kw))  # type: ignore[arg-type]
        for worker in range(workers)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("window", ["60 KiB", 0, None, "plain"])
@pytest.mark.parametrize("ranks, workers", [(1, 1), (2, 1), (3, 2), (7, 1), (5, 5)])
def test_every_sample_goes_to_one(
    images: Path, window: str | int | None, ranks: int, workers: int
) -> None:
    stream = squirrel.open(images).select("label")
    if window != "plain":
        stream = stream.shuffle_all(7, window)
    got = parts(stream, ranks, workers, tail="uneven")
    assert sorted(sum(got, [])) == list(range(N))
    assert max(map(len, got)) - min(map(len, got)) <= 1
    padded = parts(stream, ranks, workers)
    assert {len(part) for part in padded} == {-(-N // (ranks * workers))}
    assert set(sum(padded, [])) == set(range(N))
    assert all(part[: len(one)] == one for part, one in zip(padded, got))
    dropped = parts(stream, ranks, workers, tail="drop")
    assert {len(part) for part in dropped} == {N // (ranks * workers)}
    assert all(one[: len(part)] == part for part, one in zip(dropped, got))


def test_more_ranks_than_shards_and_than_samples(tmp_path: Path) -> None:
    squirrel.pack(({"label": i} for i in range(30)), tmp_path / "one")
    stream = squirrel.open(tmp_path / "one").shuffle_all(1)
    got = parts(stream, 20, tail="uneven")
    assert sorted(sum(got, [])) == list(range(30)) and {len(part) for part in got} == {1, 2}
    assert all(len(part) == 1 for part in parts(stream, 50))
    assert sum(map(len, parts(stream, 50, tail="uneven"))) == 30
    squirrel.pack([], tmp_path / "none")
    assert parts(squirrel.open(tmp_path / "none"), 3) == [[], [], []]


def test_global_batches_are_the_same_for_divisors(images: Path) -> None:
    """like= fixes the order; 8 ranks of 30 and 2 ranks of 120 see the same 240 at each step."""
    stream = squirrel.open(images).select("label").shuffle_all(3, "100 KiB")
    expected = None
    for ranks in (1, 2, 4, 8, 3, 12, 24):
        batches = []
        for rank in range(ranks):
            mine = stream.distribute(rank, ranks, like=8).batch(240 // ranks)
            batches.append([batch["label"].tolist() for batch in mine])
        steps = [sorted(sum(step, [])) for step in zip(*batches)]
        expected = expected or steps
        assert steps[:8] == expected[:8]  # the last one is padded


def test_ranks_read_their_own_part(tmp_path: Path) -> None:
    """Of 200 blocks each of 4 ranks loads its 50 and at most one more at each cut."""
    squirrel.pack(
        ({"label": i, "pad": os.urandom(1000)} for i in range(4000)), tmp_path / "d",
        block_bytes=20_000, samples_per_shard=1000,
    )
    stream = squirrel.open(tmp_path / "d").shuffle_all(2, "400 KiB")
    whole = sum(s["raw_bytes"] for s in squirrel.open(tmp_path / "d").shards)
    for rank in range(4):
        iterator = stream.distribute(rank, 4).iterator()
        assert sum(1 for _ in iterator) == 1000
        loaded = iterator.stats()[0]
        assert loaded["name"] == "load" and loaded["bytes"] < 1.35 * whole / 4


def test_filters_and_steps(images: Path) -> None:
    stream = squirrel.open(images).shuffle_all(3).filter("text endswith '7'").select("label")
    got = [labels(stream.distribute(rank, 3, tail="uneven")) for rank in range(3)]
    assert sorted(sum(got, [])) == list(range(7, N, 10))
    for rank in range(3):
        many = stream.distribute(rank, 3, steps=190)
        assert len(many) == 190
        assert labels(many) == (got[rank] * 9)[:190]
        assert labels(stream.distribute(rank, 3, steps=10)) == got[rank][:10]
        batches = list(stream.distribute(rank, 3, steps=7).batch(20))
        assert [batch.rows for batch in batches] == [20] * 7
        assert [x for b in batches for x in b["label"].tolist()] == (got[rank] * 8)[:140]
    with pytest.raises(squirrel.ArgumentError, match="passes"):
        labels(squirrel.open(images).filter("label < 0").distribute(0, 2, steps=3))


def test_take_and_skip_count_per_consumer(images: Path) -> None:
    stream = squirrel.open(images).select("label").shuffle_all(3)
    whole = labels(stream.distribute(1, 4))
    assert labels(stream.distribute(1, 4).skip(20).take(30)) == whole[20:50]
    assert len(stream.distribute(1, 4).skip(20).take(30)) == 30
    with pytest.raises(ValueError, match="take and skip"):
        stream.take(5).distribute()


def test_found_in_the_environment(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = squirrel.open(images).select("label").shuffle_all(3)
    third = labels(stream.distribute(2, 3))
    pairs = [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
    pairs.append(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
    for names in pairs:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    assert sorted(labels(stream.distribute())) == list(range(N))
    for rank, world_size in reversed(pairs):  # the first pair that is there counts
        monkeypatch.setenv(rank, "2")
        monkeypatch.setenv(world_size, "3")
        assert labels(stream.distribute()) == third and len(stream.distribute()) == len(third)
        monkeypatch.setenv(rank, "3")
        with pytest.raises(ValueError, match="rank 3"):
            labels(stream.distribute())
        monkeypatch.setenv(rank, "x")
        with pytest.raises(ValueError, match=rank):
            labels(stream.distribute())
        monkeypatch.setenv(rank, "2")
    assert labels(stream.distribute(0, 1)) != third
    with pytest.raises(ValueError, match="together"):
        stream.distribute(rank=1)
    with pytest.raises(ValueError, match="tail"):
        stream.distribute(tail="cut")
    with pytest.raises(ValueError, match="twice"):
        stream.distribute().distribute()
    with pytest.raises(AttributeError, match="native"):
        stream.map(dict).distribute()


def test_found_from_torch(images: Path) -> None:
    torch_data = pytest.importorskip("torch.utils.data")

    class Samples(torch_data.IterableDataset):
        def __init__(self, stream: Composable) -> None:
            self.stream = stream

        def __iter__(self):
            return iter(self.stream)

    stream = squirrel.open(images).select("label").shuffle_all(3)
    dataset = Samples(stream.distribute(1, 2))
    loader = torch_data.DataLoader(dataset, batch_size=None, num_workers=2)
    got = [int(sample["label"]) for sample in loader]
    expected = [labels(stream.distribute(1, 2, worker, 2)) for worker in range(2)]
    assert collections.Counter(got) == collections.Counter(sum(expected, []))


def test_threads_do_not_matter(images: Path) -> None:
    """One order for all numbers of threads and all sizes of batches."""
    stream = squirrel.open(images).select("label").shuffle_all(9, "50 KiB")
    draw = random.Random(1)
    for _ in range(20):
        ranks = draw.randrange(1, 9)
        rank = draw.randrange(ranks)
        mine = stream.distribute(rank, ranks)
        one = labels(mine.prefetch(draw.choice([1, 10**5, 10**7])))
        batches = mine.batch(draw.randrange(1, 200))
        assert [x for b in batches for x in b["label"].tolist()] == one


def test_needs_counts(tmp_path: Path) -> None:
    squirrel.pack(({"label": i} for i in range(50)), tmp_path / "a.jsonl.gz")
    with pytest.raises(squirrel.UnsupportedError, match="squirrel convert"):
        labels(squirrel.open(tmp_path / "a.jsonl.gz").distribute(0, 2))


def by_number(path: str, consumers: int) -> int:
    """Shards of 300 samples, numbered in their names: the first three go to consumer 0."""
    return min(int(path.rsplit("-", 1)[1].split(".")[0]) // 3, consumers - 1)


def test_a_split_of_ones_own(images: Path) -> None:
    """7 shards: 900, 900 and 200 samples for 3 consumers."""
    stream = squirrel.open(images).select("label").shuffle_all(2, "40 KiB")
    got = parts(stream, 3, tail="uneven", split=by_number)
    assert [sorted(part) for part in got] == [
        list(range(900)), list(range(900, 1800)), list(range(1800, 2000))
    ]
    padded = parts(stream, 3, split=by_number)
    assert [len(part) for part in padded] == [900] * 3 and padded[:2] == got[:2]
    assert padded[2] == (got[2] * 5)[:900]  # its own, again and again
    assert parts(stream, 3, tail="drop", split=by_number) == [part[:200] for part in got]
    one = stream.distribute(2, 3, split=by_number)
    assert len(one) == 900 and len(one.batch(64)) == 15
    iterator = one.iterator()
    before = [next(iterator)["label"] for _ in range(333)]
    state = iterator.state_dict()
    assert before + [s["label"] for s in one.iterator(state=state)] == padded[2]
    with pytest.raises(squirrel.StateError, match="rank 2 of 3.*rank 1 of 3"):
        stream.distribute(1, 3, split=by_number).iterator(state=state)
    for wrong in (-1, 3, "x", None):
        with pytest.raises(ValueError, match="split gave"):
            labels(stream.distribute(0, 3, split=lambda path, n: wrong))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="has no shard"):
        labels(stream.distribute(1, 3, split=lambda path, n: 0))
    assert labels(stream.distribute(1, 3, tail="uneven", split=lambda path, n: 0)) == []
