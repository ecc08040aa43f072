"""The native iterators of streams, against CPython's and NumPy's own, and what keeps them safe."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import random
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import squirrel
from squirrel import _native
from squirrel.iterstream import IterableSource
from squirrel.iterstream.iterators import getsize, twister

S = IterableSource


def failing(count: int) -> Any:
    yield from range(count)
    raise OSError("source")


def numpy_twister(rng: np.random.RandomState) -> _native.MersenneTwister:
    _, key, position, _, _ = rng.get_state()
    return _native.MersenneTwister(key.astype(np.uint32).tobytes(), position)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 1000, 2**20 + 1])
@pytest.mark.parametrize("ahead", [0, 1, 623, 624])
def test_choices_are_those_of_random_state(count: int, ahead: int) -> None:
    rng = np.random.RandomState(5)
    rng.randint(0, 2**32, ahead, dtype=np.uint32)
    ours = _native.Choices(numpy_twister(rng), count)
    assert list(itertools.islice(ours, 2000)) == [int(rng.choice(count, 1, replace=True)[0]) for _ in range(2000)]


@pytest.mark.parametrize("weights", [[1.0], [0.9, 0.1], [0.25] * 4, [0.0, 1.0, 0.0], [1e-9, 0.3, 0.7 - 1e-9]])
def test_weighted_choices(weights: list[float]) -> None:
    rng = np.random.RandomState(6)
    p = np.array(weights) / np.sum(weights)
    cumulative = p.cumsum()
    ours = _native.Choices(numpy_twister(rng), len(weights), (cumulative / cumulative[-1]).tolist())
    theirs = [int(rng.choice(len(p), 1, replace=True, p=p)[0]) for _ in range(2000)]
    assert list(itertools.islice(ours, 2000)) == theirs


def test_a_twister_keeps_its_state() -> None:
    state = twister(random.Random(3))
    draws = _native.Choices(state, 50)
    list(itertools.islice(draws, 700))
    copied = pickle.loads(pickle.dumps(state))
    assert copied.state() == state.state()
    again = _native.Choices(copied, 50)
    assert list(itertools.islice(draws, 100)) == list(itertools.islice(again, 100))
    for wrong in ((b"short", 0), (bytes(2496), 625)):
        with pytest.raises(ValueError):
            _native.MersenneTwister(*wrong)


@pytest.mark.parametrize("rng", [random.Random(1), random, random.SystemRandom()])
def test_shuffles_with_any_rng(rng: Any) -> None:
    assert sorted(S(range(500)).shuffle(100, rng=rng)) == list(range(500))


def test_an_rng_that_lies_is_refused() -> None:
    class Wrong:
        def randint(self, a: int, b: int) -> int:
            return b + 1

    with pytest.raises(ValueError, match="randint"):
        S(range(50)).shuffle(10, rng=Wrong()).collect()  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda s: s.batched(4), lambda s: s.shuffle(50), lambda s: s.monitor(len),
                                  lambda s: s.async_map(str), lambda s: s.sliding(2, deepcopy=False)])
def test_an_error_of_the_source_ends_the_pass(make: Any) -> None:
    items = iter(make(S(lambda: failing(6))))
    with pytest.raises(OSError, match="source"):
        for _ in items:
            pass
    assert next(items, "end") == "end"


def test_what_iterators_hold_is_let_go() -> None:
    class Item:
        pass

    for make in (lambda s: s.batched(100), lambda s: s.shuffle(100, initial=50), lambda s: s.async_map(lambda x: x)):
        made = [Item() for _ in range(60)]
        seen = [weakref.ref(item) for item in made]
        source = iter(made)
        items = iter(make(S(source)))
        next(items, None)
        del made, items, source
        gc.collect()
        deadline = time.monotonic() + 60
        while any(ref() is not None for ref in seen) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert all(ref() is None for ref in seen)


def test_a_callback_cannot_pull_from_its_own_pass() -> None:
    items: Any = None
    stream = S(range(10)).map(lambda x: next(items)).batched(2)
    items = iter(stream)
    with pytest.raises(RuntimeError, match="this very thread"):
        next(items)


@pytest.mark.parametrize("make", [lambda s: s.shuffle(20, seed=1), lambda s: s.async_map(lambda x: x, buffer=7),
                                  lambda s: s.monitor(lambda m: None)])
def test_threads_share_native_iterators(make: Any) -> None:
    def slow(x: int) -> int:
        time.sleep(0.0002)
        return x

    items = iter(make(S(range(400)).map(slow)))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: list(items), range(4)))
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(400))


def test_closing_ends_async_work() -> None:
    started = threading.Event()

    def wait(x: int) -> int:
        started.set()
        time.sleep(0.05)
        return x

    with S(range(1000)).async_map(wait, max_workers=2).iterator() as items:
        assert next(items) == 0
    assert started.is_set() and next(items, "end") == "end"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_an_async_pass_ends_in_a_fork() -> None:
    items = iter(S(range(100)).async_map(lambda x: x, buffer=4))
    assert next(items) == 0
    child = os.fork()
    if child == 0:
        try:
            next(items)
        except squirrel.StateError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(items) == list(range(1, 100))


@pytest.mark.parametrize("item", [0, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -(2**31), 1.5, None, True, "",
                                  "abc", "x" * 255, "x" * 256, "ä€😀", b"", b"x" * 300, "x" * 70000, [1], np.zeros(7)])
def test_monitor_measures_items_as_getsize(item: Any) -> None:
    """Bytes per second over items per second are bytes."""
    reports: list[dict[str, float]] = []
    native = _native.Monitored(iter([item] * 2), reports.append, None, 2, "n", True, "b", 1, getsize)
    list(native)
    assert round(reports[-1]["b"] / reports[-1]["n"]) == getsize(item)
