"""Composable over plain Python items."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from squirrel.iterstream import Composable, IterableSource


def double(x: int, by: int = 2) -> int:
    return x * by


def odd(x: int) -> bool:
    return x % 2 == 1


class Windows(Composable):
    """A stage as users write them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        items = list(self.source)
        for i in range(len(items) - self.size + 1):
            yield tuple(items[i : i + self.size])


def test_stages() -> None:
    s = IterableSource(range(10))
    assert s.collect() == list(range(10))
    assert s.map(double).filter(lambda x: x > 10).collect() == [12, 14, 16, 18]
    assert s.map(double, by=3).take(2).collect() == [0, 3]
    assert s.batched(4).collect() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert s.batched(4, sum, drop_last_if_not_full=False).collect() == [6, 22, 17]
    assert IterableSource([[1], [], [2, 3]]).flatten().collect() == [1, 2, 3]
    assert s.flat_map(range).take(4).collect() == [0, 0, 1, 0]
    assert s.take(3).loop(2).collect() == [0, 1, 2, 0, 1, 2]
    assert list(itertools.islice(s.take(2).loop(), 5)) == [0, 1, 0, 1, 0]
    assert s.to(itertools.pairwise).take(2).collect() == [(0, 1), (1, 2)]
    assert s.to(lambda items, n: (x + n for x in items), n=5).take(2).collect() == [5, 6]
    assert s.skip(8).collect() == [8, 9]
    assert s.join() is None


def test_sources() -> None:
    assert IterableSource(lambda: iter("ab")).loop(2).collect() == ["a", "b", "a", "b"]
    assert IterableSource().collect() == []
    assert IterableSource().source_([1]).collect() == [1]
    assert IterableSource(IterableSource([1, 2]).map(double)).collect() == [2, 4]
    with pytest.raises(NotImplementedError):
        iter(Composable([1]))


def test_compose() -> None:
    s = IterableSource(range(4))
    assert s.compose(Windows, 2).map(sum).collect() == [1, 3, 5]
    with pytest.raises(ValueError, match="source"):
        s.compose(Windows, 2, source=[1])


def test_shuffle_is_a_permutation_and_repeats_with_a_seed() -> None:
    s = IterableSource(range(1000))
    a, b = s.shuffle(100, seed=3).collect(), s.shuffle(100, seed=3).collect()
    assert a == b != s.shuffle(100, seed=4).collect()
    assert sorted(a) == list(range(1000)) != a
    assert s.shuffle(100, rng=random.Random(3)).collect() == a
    assert s.shuffle(1) is s and s.shuffle(0) is s
    assert sorted(s.shuffle(50, initial=500).collect()) == list(range(1000))
    assert sorted(s.shuffle(5000).collect()) == list(range(1000))


# The first draws of squirrel-core 0.20.2: IterableSource(range(20)).shuffle(8, initial=4, seed=1)
REFERENCE = [1, 5, 0, 2, 3, 12, 13, 14, 10, 4, 11, 18, 7, 15, 16, 8, 19, 9, 17, 6]


def test_shuffle_draws_as_the_reference() -> None:
    got = IterableSource(range(20)).shuffle(8, initial=4, seed=1).collect()
    assert sorted(got) == list(range(20))
    assert got == REFERENCE


def test_wrong_arguments() -> None:
    s = IterableSource(range(3))
    for call in (
        lambda: s.take(-1),
        lambda: s.skip(-2),
        lambda: s.loop(-1),
        lambda: s.batched(0),
        lambda: s.parallel_map(double, workers=0),
        lambda: s.parallel_map(double, lookahead=0),
        lambda: s.parallel_map(double, pool="fibres"),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        s.parallel_map(double, pool=3)  # type: ignore[arg-type]


def test_pickle_and_deepcopy() -> None:
    chain = IterableSource([1, 2, 3]).map(double, by=5).filter(odd).batched(1)
    assert pickle.loads(pickle.dumps(chain)).collect() == [[5], [15]]
    assert copy.deepcopy(chain).collect() == [[5], [15]]


def test_exceptions_name_the_innermost_stage() -> None:
    chain = IterableSource([1, 0]).map(lambda x: 1 // x).map(double).filter(odd)
    with pytest.raises(ZeroDivisionError) as caught:
        chain.collect()
    assert len(caught.value.__notes__) == 1 and "map(" in caught.value.__notes__[0]
    assert "lambda" in caught.value.__notes__[0]


def test_keyboard_interrupt_gets_no_note() -> None:
    def stop(x: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        IterableSource([1]).map(stop).collect()
    assert not getattr(caught.value, "__notes__", [])


def test_stages_are_the_builtin_iterators() -> None:
    """What keeps the speed: no Python frame stands between two stages."""
    import sys

    depths = []

    def look(x: int) -> int:
        depth, frame = 0, sys._getframe()
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        depths.append(depth)
        return x

    for _ in IterableSource([1]).map(look).filter(odd).map(look).flat_map(lambda x: [x]):
        pass
    look(1)
    assert depths == [depths[-1]] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.map(_slowly).batched(3),
        lambda s: s.batched(3, collation_fn=list),
        lambda s: s.map(_as_sample).batch(3),
        lambda s: s.parallel_map(_slowly, workers=2),
        lambda s: s.parallel_map(_slowly, workers=2, ordered=False),
        lambda s: s.shuffle(50, seed=1).map(_slowly).batched(3),
    ],
    ids=["batched", "collated", "batch", "parallel_map", "unordered", "shuffled"],
)
def test_threads_share_an_iterator(make: Callable[[Composable], Composable]) -> None:
    items = iter(make(IterableSource(range(300))))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: list(items), range(4)))
    found: list[int] = []
    for item in itertools.chain.from_iterable(parts):
        found += item["x"].tolist() if isinstance(item, dict) else item if isinstance(item, list) else [item]
    assert sorted(found) == list(range(300))


def _slowly(x: int) -> int:
    time.sleep(0.0002)
    return x


def _as_sample(x: int) -> dict[str, int]:
    return {"x": _slowly(x)}


def test_a_stream_that_may_leave_items_out_has_no_len() -> None:
    assert len(IterableSource([1, 2]).map(str)) == len(IterableSource([1, 2]).parallel_map(str)) == 2
    for verb in ("map", "parallel_map"):
        with pytest.raises(TypeError, match="on_error"):
            len(getattr(IterableSource([1, 2]), verb)(str, on_error="skip"))
