"""Stages and callables that other processes import."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from squirrel.iterstream import Composable, IterableSource


def double(x: int) -> int:
    return 2 * x


def add(x: int, by: int) -> int:
    return x + by


def even(x: int) -> bool:
    return x % 2 == 0


def slow_double(x: int) -> int:
    time.sleep(0.002 * (7 * x % 5))
    return 2 * x


class Pairs(Composable):
    """A stage as users write them, without __init__."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        items = iter(self.source)
        return zip(items, items)


class Every(Composable):
    """A stage with arguments of its own."""

    def __init__(self, n: int, first: int = 0) -> None:
        super().__init__()
        self.n = n
        self.first = first

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(self.source):
            if i % self.n == self.first:
                yield item


class WithSource(Composable):
    """compose() refuses it: the source is given twice."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)

    def __iter__(self) -> Iterator[Any]:
        yield from self.source


class Counter:
    """A callable with a state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: int) -> tuple[int, int]:
        self.calls += 1
        return self.calls, x


def long_chain(count: int) -> Composable:
    """One of each stage that pickles."""
    stream = IterableSource(range(count)).map(double).filter(even).map(add, by=1).shuffle(50, seed=5)
    stream = stream.batched(3, drop_last_if_not_full=False).flatten().async_map(double, buffer=5)
    return stream.zip_index().sliding(2, deepcopy=False).take(count).compose(Pairs).compose(Every, 2)


def collected(stream: Composable) -> list[Any]:
    return list(stream)


def shuffled_keys(count: int, split: str) -> Composable:
    """Keys in random order without a seed, in front of a split."""
    stream = IterableSource(range(count)).shuffle(count)
    return stream.split_by_worker_pytorch() if split == "worker" else stream.split_by_rank_pytorch()
