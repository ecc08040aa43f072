"""States of streams of several streams: exact, between any two items, across numbers of ranks and workers."""

from __future__ import annotations

import collections
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import squirrel
from squirrel import StateError
from squirrel.iterstream import IterableSource

SIZES = (97, 31, 240)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three data sets; "from" says which, "i" the number within it."""
    where = tmp_path_factory.mktemp("several")
    for number, count in enumerate(SIZES):
        groups = {"words": ["text"], "numbers": ["i"]} if number == 2 else None  # one is kept in groups of fields
        squirrel.pack(
            samples(number, 0, count), where / str(number), samples_per_shard=40, block_bytes=200, groups=groups
        )
    return where


def samples(number: int, first: int, end: int) -> Any:
    return ({"from": number, "i": i, "text": "x" * (i % 7)} for i in range(first, end))


def opened(folder: Path) -> list[squirrel.Stream]:
    return [squirrel.open(folder / str(number)) for number in range(len(SIZES))]


def saved(iterator: Any) -> Any:
    return json.loads(json.dumps(iterator.state_dict()))


def tag(sample: dict[str, Any]) -> tuple[int, int]:
    return sample["from"], sample["i"]


class Run:
    """A mix on a number of ranks, and what each pass of each stream gave on all of them."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder = folder
        self.seed = draw.randrange(100)
        self.chosen = draw.sample(range(len(SIZES)), draw.randint(1, len(SIZES)))
        self.weights = [draw.choice([0.2, 1, 1, 3]) for _ in self.chosen]
        self.shuffled = draw.choice([None, "2 KiB", 0])
        self.python = draw.random() < 0.3
        self.independent = draw.random() < 0.3
        self.quota = 0
        self.filtered = draw.random() < 0.3
        self.selected = draw.random() < 0.3
        self.given: collections.Counter[Any] = collections.Counter()

    def mix(self, rank: int, ranks: int) -> Any:
        streams: list[Any] = []
        for number in self.chosen:
            stream = squirrel.open(self.folder / str(number))
            if self.shuffled is not None:
                stream = stream.shuffle_all(self.seed + number, self.shuffled)
            stream = stream.distribute(rank, ranks, tail="uneven")
            if self.filtered:
                stream = stream.filter("i > 5")
            if self.selected:  # of groups, those that are needed
                stream = stream.select("from", "i")
            streams.append(stream.map(dict) if self.python else stream)
        make = squirrel.sample if self.independent else squirrel.mix
        return make(streams, self.weights, self.seed, "forever")

    def draws(self, mix: Any, iterator: Any, count: int) -> None:
        for sample in itertools.islice(iterator, count):
            source = mix.last
            self.given[(sample["from"], mix.epochs[source], sample["i"])] += 1

    def check(self, last: dict[int, int]) -> None:
        """Every sample once in each pass up to the last one that was begun."""
        lowest = 6 if self.filtered else 0
        for number in self.chosen:
            for number_of_pass in range(last[number] + 1):
                got = {i: n for (f, p, i), n in self.given.items() if (f, p) == (number, number_of_pass)}
                assert got == {i: 1 for i in range(lowest, SIZES[number])}, (number, number_of_pass)


def run_once(folder: Path, draw: random.Random, copies: Path) -> None:
    """Where shards are appended, between the last stop and the end, passes that had begun end with the old ones."""
    run = Run(folder, draw)
    if draw.random() < 0.3:
        run.folder = copies / str(len(list(copies.iterdir())))
        shutil.copytree(folder, run.folder)
    states: list[Any] | None = None
    last = dict.fromkeys(run.chosen, 0)
    topologies = [draw.randint(1, 4) for _ in range(draw.randint(2, 3))]
    for turn, ranks in enumerate(topologies):
        final = turn == len(topologies) - 1
        if final and run.folder != folder:
            for number in run.chosen:
                groups = {"words": ["text"], "numbers": ["i"]} if number == 2 else None
                more = samples(number, SIZES[number], SIZES[number] + 17)
                squirrel.pack(more, run.folder / str(number), append=True, groups=groups)
        count = draw.randrange(120)
        fresh = []
        for rank in range(ranks):
            mix = run.mix(rank, ranks)
            iterator = mix.iterator(state=states)
            if final:
                for _ in range(60_000):
                    if all(epoch > last[n] for n, epoch in zip(run.chosen, mix.epochs)):
                        break
                    run.draws(mix, iterator, 1)
            else:  # ranks need not be in step
                run.draws(mix, iterator, count + draw.randrange(8))
            for number, epoch in zip(run.chosen, mix.epochs):
                if not final:
                    last[number] = max(last[number], epoch)
            fresh.append(saved(iterator))
            iterator.close()
        draw.shuffle(fresh)
        states = fresh
    run.check(last)


@pytest.mark.parametrize("seed", range(60))
def test_ranks_come_and_go(folder: Path, seed: int, tmp_path: Path) -> None:
    run_once(folder, random.Random(seed), tmp_path)


@pytest.mark.soak
def test_ranks_come_and_go_for_long(folder: Path, tmp_path: Path) -> None:
    for seed in range(1000, 4000):
        run_once(folder, random.Random(seed), tmp_path)


# --- the same ranks: the rest is what would have come ---


def twice(item: Any) -> list[Any]:
    return [item, item]


def leaf(folder: Path, draw: random.Random, elastic: bool = False) -> Any:
    kind = draw.randrange(4 if elastic else 6)
    stream: Any = squirrel.open(folder / str(draw.randrange(len(SIZES)))).select("from", "i")
    if draw.random() < 0.5:
        stream = stream.shuffle_all(draw.randrange(9), draw.choice(["1 KiB", 0]))
    if elastic or draw.random() < 0.3:
        stream = stream.distribute()
    if kind == 0:
        return stream.filter("i > 3")
    if kind == 1:
        return stream.map(dict)
    if kind == 2 and not elastic:
        return stream.map(twice).flatten().filter(lambda s: s["i"] % 3)
    if kind == 4:
        return [{"from": 9, "i": i} for i in range(draw.randrange(1, 50))]
    if kind == 5:
        return IterableSource([{"from": 8, "i": i} for i in range(40)]).shuffle(10, seed=1)
    return stream


def tree(folder: Path, draw: random.Random, depth: int = 2) -> Any:
    streams = [
        tree(folder, draw, depth - 1) if depth > 1 and draw.random() < 0.3 else leaf(folder, draw)
        for _ in range(draw.randint(1, 3))
    ]
    kind = draw.randrange(5)
    if kind == 0:
        return squirrel.concat(streams)
    if kind == 1:
        return squirrel.interleave(streams, draw.randint(1, 5))
    if kind == 2:
        return squirrel.zip(streams, strict=False).map(lambda items: items[0])
    make = squirrel.mix if kind == 3 else squirrel.sample
    return make(streams, None, draw.randrange(9), draw.choice(["first", "all"]))


def same_ranks(folder: Path, seed: int) -> None:
    def new() -> Any:
        draw = random.Random(seed)
        stream = tree(folder, draw)
        above = draw.randrange(5)
        if above == 0:
            stream = stream.map(dict)
        elif above == 1:
            stream = stream.map(dict).batched(draw.randint(1, 9), drop_last_if_not_full=False)
        elif above == 2:
            stream = stream.map(twice).flatten()
        elif above == 3:
            stream = stream.filter(lambda s: s["i"] % 2).shuffle(draw.randint(2, 30), seed=draw.choice([None, 3]))
        return stream.set_epoch(draw.randrange(3)), draw

    stream, draw = new()
    iterator = stream.iterator()
    for _ in range(draw.randint(1, 3)):
        list(itertools.islice(iterator, draw.choice([0, 1, draw.randrange(60), draw.randrange(700)])))
        try:
            state = saved(iterator)
        except StateError as error:
            assert "in front of" in str(error), (seed, error)
            return
        if draw.random() < 0.5:
            iterator = new()[0].iterator(state=state)
    rest = list(iterator)
    assert list(new()[0].iterator(state=state)) == rest, seed
    other = new()[0].iterator()
    list(itertools.islice(other, 5))
    other.load_state_dict(state)
    assert list(other) == rest, seed


def test_any_nesting_goes_on(folder: Path) -> None:
    for seed in range(150):
        same_ranks(folder, seed)


@pytest.mark.soak
def test_any_nesting_goes_on_for_long(folder: Path) -> None:
    for seed in range(1000, 9000):
        same_ranks(folder, seed)


# --- other ranks: nothing is lost, nothing comes twice ---


@pytest.mark.parametrize("seed", range(20))
def test_batches_of_rows(folder: Path, seed: int) -> None:
    """Native batches of a mix: their states lie between rows of its streams' own batches."""
    draw = random.Random(seed)
    filtered = draw.random() < 0.5

    def mix(rank: int, ranks: int) -> Any:
        streams = [
            stream.shuffle_all(n, "2 KiB").distribute(rank, ranks, tail="uneven")
            for n, stream in enumerate(opened(folder))
        ]
        if filtered:
            streams = [stream.filter("i != 7") for stream in streams]
        return squirrel.mix(streams, [3, 1, 8], 5, "forever")

    given: collections.Counter[Any] = collections.Counter()
    states: Any = None
    for ranks in (2, 3, 1):
        fresh = []
        for rank in range(ranks):
            iterator = mix(rank, ranks).batch(draw.choice([1, 7, 16])).iterator(state=states)
            for _ in range(draw.randrange(4) if ranks > 1 else 500):
                batch = next(iterator)
                given.update(zip(batch["from"].tolist(), batch["i"].tolist()))
            fresh.append(saved(iterator))
        states = fresh
    assert len(given) == sum(SIZES) - 3 * filtered
    for number, count in enumerate(SIZES):  # the last rank went through the data several times
        of_this = [n for (f, _), n in given.items() if f == number]
        assert max(of_this) - min(of_this) <= 1


@pytest.mark.parametrize("kind", ["concat", "interleave", "zip", "nested"])
@pytest.mark.parametrize("seed", range(8))
def test_other_stages_on_other_ranks(folder: Path, kind: str, seed: int) -> None:
    draw = random.Random(seed)

    def several(rank: int, ranks: int) -> Any:
        streams = [stream.shuffle_all(1, "2 KiB").distribute(rank, ranks, tail="uneven") for stream in opened(folder)]
        if kind == "concat":
            return squirrel.concat(streams)
        if kind == "interleave":
            return squirrel.interleave([streams[0], streams[2].map(dict)], 3)
        if kind == "zip":
            return squirrel.zip([streams[0], streams[0].map(dict)])
        return squirrel.concat([squirrel.interleave(streams[:2], 2).map(dict), streams[2]])

    given: collections.Counter[Any] = collections.Counter()
    states: Any = None
    step = draw.randrange(40)
    for ranks in (3, 2, 4):
        fresh = []
        for rank in range(ranks):
            iterator = several(rank, ranks).iterator(state=states)
            for item in itertools.islice(iterator, None if ranks == 4 else step):
                if kind == "zip":
                    assert item[0] == item[1]
                    item = item[0]
                given[tag(item)] += 1
            fresh.append(saved(iterator))
        states = fresh
    wanted = {"zip": [0], "interleave": [0, 2]}.get(kind, [0, 1, 2])
    assert given == {(number, i): 1 for number in wanted for i in range(SIZES[number])}


def apart(folder: Path, counts: tuple[int, int], second: Any) -> tuple[Any, list[Any], list[Any]]:
    """A concat whose ranks gave so many items, `second` making its second stream; what they gave; their states."""

    def several(rank: int, ranks: int) -> Any:
        streams: list[Any] = [
            stream.set_epoch(3).shuffle_all(1, "2 KiB").distribute(rank, ranks, tail="uneven")
            for stream in opened(folder)
        ]
        return squirrel.concat([streams[0], second(streams[1]), streams[2]]).set_epoch(2)

    given, states = [], []
    for rank, count in enumerate(counts):
        iterator = several(rank, 2).iterator()
        given += map(tag, itertools.islice(iterator, count))
        states.append(saved(iterator))
    return several, given, states


@pytest.mark.parametrize("mapped", [False, True])
def test_nobody_stands_in_a_stream_between(folder: Path, mapped: bool) -> None:
    """Of a concat one rank is in the first stream and another in the third."""
    counts = (5, SIZES[0] // 2 + SIZES[1] // 2 + 7)
    several, given, states = apart(
        folder, counts, lambda stream: stream.map(dict).filter(lambda sample: True) if mapped else stream
    )
    assert [state["native"]["parts"][0]["pass"] for state in states] == [0, 2]
    for rank in range(3):
        given += map(tag, several(rank, 3).iterator(state=states))
    assert sorted(given) == [(number, i) for number, size in enumerate(SIZES) for i in range(size)]


@pytest.mark.parametrize(("more", "passes"), [(7, [0, 1]), (SIZES[1] + 7, [0, 2])])
def test_ranks_apart_around_what_is_not_dealt(folder: Path, more: int, passes: list[int]) -> None:
    """Of a list each rank gives all: what others have given of it means nothing."""
    listed = [{"from": 1, "i": i} for i in range(SIZES[1])]
    several, _, states = apart(folder, (5, SIZES[0] // 2 + more), lambda _: listed)
    assert [state["native"]["parts"][0]["pass"] for state in states] == passes
    with pytest.raises(StateError, match="not dealt by distribute"):
        several(0, 3).iterator(state=states)


def test_in_step_the_schedule_goes_on(folder: Path) -> None:
    """Ranks that stood at the same item have equal steps, and every prefix keeps its promise."""

    def mix(rank: int, ranks: int) -> Any:
        streams = [stream.shuffle_all(3).distribute(rank, ranks, tail="drop") for stream in opened(folder)[::2]]
        return squirrel.mix(streams, [1, 3], 2, "all")

    states = []
    for rank in range(4):
        iterator = mix(rank, 4).iterator()
        list(itertools.islice(iterator, 30))
        states.append(saved(iterator))
    assert len({json.dumps(state["native"]["drawn"]) for state in states}) == 1
    lengths = []
    for rank in range(3):
        one = mix(rank, 3)
        rest = list(one.iterator(state=states))
        lengths.append(len(rest))
        drawn = states[0]["native"]["drawn"]
        for n, sample in enumerate(rest, 31):
            drawn = [drawn[0] + (sample["from"] == 0), drawn[1] + (sample["from"] == 2)]
            assert abs(drawn[0] - n / 4) < 1
    assert len(set(lengths)) == 1 and lengths[0] > 50


def test_what_does_not_fit_says_so(folder: Path) -> None:
    def mix(rank: int, ranks: int, **more: Any) -> Any:
        streams = [stream.distribute(rank, ranks) for stream in opened(folder)[:2]]
        return squirrel.mix([*streams, *more.get("streams", [])], seed=1, stop=more.get("stop", "all"))

    states = []
    for rank in range(3):
        iterator = mix(rank, 3).iterator()
        next(iterator)
        states.append(saved(iterator))
    with pytest.raises(StateError, match="the state of each of the 3 before"):
        mix(0, 2).iterator(state=states[0])
    with pytest.raises(StateError, match="each of the 3 before.*2 are given"):
        mix(0, 2).iterator(state=states[:2])
    with pytest.raises(StateError, match="two of the states are of consumer 0"):
        mix(0, 2).iterator(state=[states[0], states[0], states[1]])
    with pytest.raises(StateError, match="stop='all', this one has 'first'"):
        mix(0, 3, stop="first").iterator(state=states[0])
    with pytest.raises(StateError, match="there is no state"):
        mix(0, 3).iterator(state={"a": 1})
    with pytest.raises(StateError, match="without distribute"):
        squirrel.mix(opened(folder)[:2], seed=1, stop="all").iterator(state=states)
    assert next(mix(1, 3).iterator(state=states)) == next(mix(1, 3).iterator(state=states[1]))

    own = [{"from": 9, "i": i} for i in range(100)]  # every rank passes through all of it
    uneven = []
    for rank in range(2):
        iterator = mix(rank, 2, streams=[own]).iterator()
        list(itertools.islice(iterator, 10 + 5 * rank))
        uneven.append(saved(iterator))
    with pytest.raises(StateError, match="stream 2 is not dealt"):
        mix(0, 3, streams=[own]).iterator(state=uneven)


def test_a_failing_callable_is_tried_again(folder: Path) -> None:
    """A state behind an exception stands in front of the item that failed."""
    broken = True

    def pick(sample: dict[str, Any]) -> Any:
        if broken and tag(sample) == (1, 12):
            raise LookupError("twelve")
        return tag(sample)

    def new() -> Any:
        return squirrel.mix(opened(folder)[:2], seed=3).filter(lambda s: s["i"] % 4 == 0).map(pick)

    wanted = [tag(s) for s in squirrel.mix(opened(folder)[:2], seed=3) if s["i"] % 4 == 0]
    iterator = new().iterator()
    got = []
    with pytest.raises(LookupError):
        for item in iterator:
            got.append(item)
    state = saved(iterator)
    broken = False
    assert got + list(new().iterator(state=state)) == wanted


def test_a_state_does_not_grow(folder: Path) -> None:
    sizes = []
    for count in (1, 5000):
        iterator = squirrel.mix([s.shuffle_all(1) for s in opened(folder)], seed=1, stop="forever").iterator()
        list(itertools.islice(iterator, count))
        sizes.append(len(json.dumps(iterator.state_dict())))
    assert sizes[1] < sizes[0] + 60 and sizes[1] < 2500


@pytest.mark.filterwarnings("ignore")
def test_torch_with_other_workers(folder: Path) -> None:
    torch = pytest.importorskip("torch.utils.data")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def data() -> Any:
        streams = [s.shuffle_all(1).distribute(tail="uneven") for s in opened(folder)]
        return squirrel.concat([squirrel.interleave(streams[:2]), streams[2]]).map(tag).to_torch_iterable()

    loader = stateful.StatefulDataLoader(data(), batch_size=None, num_workers=2)
    first = [tuple(item) for item in itertools.islice(loader, 101)]
    checkpoint = loader.state_dict()
    again = stateful.StatefulDataLoader(data(), batch_size=None, num_workers=2)
    again.load_state_dict(checkpoint)
    everything = sorted((n, i) for n, count in enumerate(SIZES) for i in range(count))
    assert sorted(first + [tuple(item) for item in again]) == everything
    dataset = data()
    dataset.load_state_dict(checkpoint)
    rest = [tuple(item) for item in torch.DataLoader(dataset, batch_size=None, num_workers=3)]
    assert sorted(first + rest) == everything
