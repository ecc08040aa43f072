"""mix, sample, concat, interleave and zip against what they promise: counts of prefixes, each source's
own order, ends, epochs, weights that change, states, and batches against the dicts they are made of."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import squirrel
from squirrel.iterstream import IterableSource
from squirrel.mixing import Mix

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=5)
some_weights = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 1))


def sources(counts):
    """Source i is (i, 0), (i, 1) ..."""
    return [[(i, k) for k in range(n)] for i, n in enumerate(counts)]


def check_prefixes(draws, weights):
    shares = [w / sum(weights) for w in weights]
    counts = [0] * len(weights)
    for n, source in enumerate(draws, 1):
        counts[source] += 1
        for count, share in zip(counts, shares):
            assert abs(count - n * share) < 1 + 1e-9, (n, counts, shares)


@settings(max_examples=150, deadline=None)
@given(sizes, st.data())
def test_proportions_and_orders(counts, data):
    weights = data.draw(st.lists(some_weights, min_size=len(counts), max_size=len(counts)))
    stop = data.draw(st.sampled_from(["first", "all", "forever"]))
    mix = squirrel.mix(sources(counts), weights, data.draw(st.integers(0, 2**64 - 1)), stop)
    items = list(itertools.islice(mix, 3000))
    check_prefixes([i for i, _ in items], weights)
    for i, count in enumerate(counts):
        mine = [k for source, k in items if source == i]
        assert mine == [k % count for k in range(len(mine))]
        passes = len(mine) // count
        assert mix.epochs[i] in (passes, max(passes - 1, 0))  # an end is seen when it is drawn
        assert mix.drawn[i] == len(mine)
    if stop == "first":
        assert mix.epochs == [0] * len(counts)
        assert any(mix.drawn[i] == n for i, n in enumerate(counts))
    elif stop == "all" and len(items) < 3000:
        assert all(mix.epochs)
        assert any(mix.drawn[i] == n for i, n in enumerate(counts))  # the last one came just once
    elif stop == "forever":
        assert len(items) == 3000
    assert list(itertools.islice(mix, 3000)) == items  # the same seed, the same order


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 1000))
def test_quota(weights, seed):
    quota = 4 * sum(weights)
    mix = squirrel.mix(sources([7] * len(weights)), weights, seed, "forever", quota=quota)
    draws = [i for i, _ in itertools.islice(mix, 10 * quota)]
    for batch in range(0, len(draws), quota):
        assert [draws[batch : batch + quota].count(i) for i in range(len(weights))] == [4 * w for w in weights]


def test_sample_is_by_chance():
    n = 20_000
    draws = [i for i, _ in itertools.islice(squirrel.sample(sources([5, 5]), [3, 1], 1, "forever"), n)]
    assert abs(draws.count(0) - n * 0.75) < 5 * (n * 0.75 * 0.25) ** 0.5
    pairs = sum(a == b == 1 for a, b in itertools.pairwise(draws))  # a mix has none of these
    assert abs(pairs - n / 16) < 5 * (n / 16) ** 0.5
    mixed = [i for i, _ in itertools.islice(squirrel.mix(sources([5, 5]), [3, 1], 1, "forever"), n)]
    assert abs(mixed.count(0) - n * 0.75) < 1


@settings(max_examples=100, deadline=None)
@given(sizes, st.data())
def test_state(counts, data):
    """Kill points, weights changed on the way; the rest is what would have come."""
    weights = [data.draw(some_weights) for _ in counts]
    stop = data.draw(st.sampled_from(["first", "all", "forever"]))
    seed, epoch = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 2))
    make = data.draw(st.sampled_from([squirrel.mix, squirrel.sample]))

    def new():
        streams = [IterableSource(s).shuffle(10, initial=5, seed=3) for s in sources(counts)]
        return make(streams, weights, seed, stop).set_epoch(epoch)

    mix = new()
    items = iter(mix)
    for _ in range(data.draw(st.integers(0, 2))):
        list(itertools.islice(items, data.draw(st.integers(0, 150))))
        mix.set_weights([data.draw(some_weights) for _ in counts])
    list(itertools.islice(items, data.draw(st.integers(0, 150))))
    state = json.loads(json.dumps(mix.state_dict()))
    drawn = mix.drawn
    rest = list(itertools.islice(items, 200))
    again = new()
    again.load_state_dict(state)
    assert again.state_dict() == state
    more = iter(again)
    assert again.drawn == drawn
    assert list(itertools.islice(more, 200)) == rest
    assert again.epochs == mix.epochs
    assert again.drawn == mix.drawn


def test_weights_change_while_running():
    mix = squirrel.mix(sources([1000, 1000]), [1, 0])
    items = iter(mix)
    assert {next(items)[0] for _ in range(100)} == {0}
    mix.set_weights([1, 3])
    draws = [next(items)[0] for _ in range(400)]
    check_prefixes(draws, [1, 3])
    with pytest.raises(ValueError, match="from 0 on"):
        mix.set_weights([1, -1])
    with pytest.raises(ValueError, match="2 streams"):
        mix.set_weights([1])
    assert mix.weights == [1, 3]
    check_prefixes(draws + [next(items)[0] for _ in range(100)], [1, 3])


def test_states_that_do_not_fit():
    mix = squirrel.mix(sources([50, 50]), [2, 1], 4)
    with pytest.raises(squirrel.StateError):
        mix.state_dict()
    list(itertools.islice(iter(mix), 20))
    state = mix.state_dict()
    for change, said in (
        ({"seed": 5}, "seed"), ({"squirrel_several": 9}, "version"), ({"streams": 3}, "streams"),
        ({"drawn": [20, 0]}, "weights"), ({"parts": [1]}, "its streams"), ({"stop": "all"}, "stop='all'"),
    ):
        other = squirrel.mix(sources([50, 50]), [2, 1], 4)
        with pytest.raises(squirrel.StateError, match=said):
            other.load_state_dict({**state, **change})
        assert len(list(other)) > 0


def test_epochs_of_the_sources():
    """Each pass of a source has an order of its own; epochs of the mix do, too."""
    source = IterableSource(range(30)).shuffle(30, initial=30, seed=1)
    other = IterableSource(range(60))
    mix = squirrel.mix([source, other], stop="all")

    def passes():
        mine = [x for x in mix if mix.last == 0]
        return [mine[:30], mine[30:60]]

    one, two = passes()
    assert sorted(one) == sorted(two) == list(range(30))
    assert one == source.collect()
    assert two == source.set_epoch(1).collect()
    source._epoch = None
    mix.set_epoch(1)
    three, four = passes()
    assert len({tuple(p) for p in (one, two, three, four)}) == 4
    assert three == source.set_epoch(1 << 32).collect()


def test_refusals():
    with pytest.raises(ValueError, match="as many weights"):
        squirrel.mix([[1], [2]], [1])
    with pytest.raises(ValueError, match="at least one"):
        squirrel.mix([])
    with pytest.raises(ValueError, match="stop"):
        squirrel.mix([[1]], stop="last")
    with pytest.raises(ValueError, match="all weights are 0"):
        squirrel.mix([[1]], [0])
    with pytest.raises(ValueError, match="larger quota"):
        squirrel.mix([[1], [2]], [1000, 1], quota=100)
    with pytest.raises(TypeError, match="a stream or an iterable"):
        squirrel.concat([3])
    with pytest.raises(ValueError, match="stream 1 of the mix .* gave nothing"):
        list(itertools.islice(squirrel.mix([[1, 2], []], stop="forever"), 10))
    with pytest.raises(ValueError, match="passed through once"):
        list(itertools.islice(squirrel.mix([iter([1, 2])], stop="forever"), 10))


def test_a_callable_that_stops_is_no_end():
    def stop(item):
        raise StopIteration

    for several in (
        squirrel.mix([IterableSource([1]).map(stop), [2]], stop="all"),
        squirrel.zip([IterableSource([1]).map(stop)]),
        squirrel.concat([IterableSource([1]).map(stop), [2]]),
        squirrel.interleave([IterableSource([1]).map(stop), [2]]),
    ):
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(several)


def test_an_error_takes_its_place():
    def odd(item):
        if item == 3:
            raise LookupError("three")
        return item

    mix = squirrel.mix([IterableSource(range(5)).map(odd), range(5)])
    with pytest.raises(LookupError) as caught:
        list(mix)
    assert "in stage map(" in "".join(caught.value.__notes__)
    assert mix.drawn[0] == 3


def test_copies_and_pickles():
    mix = squirrel.mix([list(range(9)), list(range(20, 26))], [2, 1], 7)
    items = mix.collect()
    assert pickle.loads(pickle.dumps(mix)).collect() == items
    assert copy.deepcopy(mix).collect() == items
    assert isinstance(copy.copy(mix), Mix)
    assert mix.map(lambda x: x).take(4).collect() == items[:4]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_concat_interleave_zip(counts, block):
    lists = sources(counts)
    assert squirrel.concat(lists).collect() == sum(lists, [])
    expected, left = [], [list(x) for x in lists]
    while any(left):
        for x in left:
            expected += x[:block]
            del x[:block]
    assert squirrel.interleave(lists, block).collect() == expected
    assert squirrel.zip(lists, strict=False).collect() == list(zip(*lists))
    if len(set(counts)) > 1:
        with pytest.raises(ValueError):
            squirrel.zip(lists).collect()
    assert len(squirrel.concat(lists)) == len(squirrel.interleave(lists)) == sum(counts)
    assert len(squirrel.zip(lists)) == min(counts)


# --- native streams ---


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Two data sets whose samples differ in fields and lengths."""
    folder = tmp_path_factory.mktemp("mixed")
    rng = np.random.default_rng(1)
    for name, count in (("a", 500), ("b", 300)):
        samples = [
            {
                "id": k + (1000 if name == "b" else 0),
                "image": rng.integers(0, 255, (3, 4), np.uint8),
                "text": "x" * int(rng.integers(0, 9)) + name,
                "tokens": rng.integers(0, 99, int(rng.integers(0, 6))).astype(np.int32),
                **({"score": k / 2} if name == "b" else {}),
            }
            for k in range(count)
        ]
        squirrel.pack(samples, str(folder / name), block_bytes=4096)
    return [squirrel.open(folder / "a"), squirrel.open(folder / "b")]


@pytest.mark.parametrize("stop", ["first", "all"])
@pytest.mark.parametrize("drop", [False, True])
def test_native_batches_are_the_dicts(packed, stop, drop):
    a, b = packed
    streams = [a.shuffle_all(seed=2), b.filter("id != 1007").shuffle_all(seed=3)]
    mix = squirrel.mix(streams, [0.7, 0.3], 5, stop)
    samples = mix.collect()
    batches = mix.batch(64, drop_remainder=drop).collect()
    assert [batch.rows for batch in batches[:-1]] == [64] * (len(batches) - 1)
    given = sum(batch.rows for batch in batches)
    assert given == len(samples) - (len(samples) % 64 if drop else 0)
    rows = iter(samples)
    for batch in batches:
        assert all(name in batch for name in ("id", "image", "text", "tokens", "score"))
        for r in range(batch.rows):
            sample = next(rows)
            assert batch["id"][r] == sample["id"]
            assert (batch["image"][r] == sample["image"]).all()
            assert batch["text"][r] == sample["text"]
            assert (batch["tokens"][r] == sample["tokens"]).all()
            assert batch.valid["score"][r] == ("score" in sample)
            assert batch["score"][r] == sample.get("score", 0)


def test_native_quota_and_state(packed):
    mix = squirrel.mix(packed, [3, 1], 9, "forever", quota=40)
    items = iter(mix.batch(40))
    for _ in range(50):
        batch = next(items)
        assert (batch["id"] < 1000).sum() == 30
    state = mix.state_dict()
    rest = [next(items)["id"].tolist() for _ in range(20)]
    again = squirrel.mix(packed, [3, 1], 9, "forever", quota=40)
    again.load_state_dict(state)
    more = iter(again.batch(40))
    assert [next(more)["id"].tolist() for _ in range(20)] == rest
    items.close()
    more.close()


def test_ranks_have_equal_steps(packed):
    """Each rank mixes its own part of each source."""
    counts, seen = [], []
    for rank in range(3):
        streams = [s.distribute(rank, 3, tail="drop") for s in packed]
        mix = squirrel.mix(streams, [1, 1], 1, "all")
        items = mix.collect()
        counts.append(len(items))
        seen.append({x["id"] for x in items})
    assert len(set(counts)) == 1
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
    assert sum(map(len, seen)) == 3 * (500 // 3) + 300


def test_columns_that_clash(tmp_path):
    squirrel.pack([{"x": 1}] * 5, str(tmp_path / "int"))
    squirrel.pack([{"x": 1.5}] * 5, str(tmp_path / "float"))
    mix = squirrel.mix([squirrel.open(tmp_path / "int"), squirrel.open(tmp_path / "float")])
    with pytest.raises(squirrel.SampleTypeError, match='fields={"x": \'float64\'}'):
        mix.batch(4).collect()
    batches = mix.batch(4, fields={"x": "float64"}).collect()
    assert sorted(np.concatenate([b["x"] for b in batches])) == [1] * 5 + [1.5] * 5
    with pytest.raises(ValueError, match="max_bytes"):
        mix.batch(4, max_bytes=100)


def test_padded_batches_are_made_in_python(packed):
    batch = next(iter(squirrel.mix(packed, seed=1).select("tokens").batch(30, ragged="pad")))
    assert batch["tokens"].shape[0] == 30


def test_the_page(tmp_path):
    """The examples of docs/mixing.md, one after another."""
    page = (Path(__file__).parents[2] / "docs" / "mixing.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
