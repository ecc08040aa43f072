"""parallel_map: order, bounds, failures, ends."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream import IterableSource


def slow_when_even(x: int) -> int:
    if x % 2 == 0:
        time.sleep(0.002)
    return x * 10


def own_pid(x: int) -> int:
    return os.getpid()


def fail_on_seven(x: int) -> int:
    if x == 7:
        raise ValueError("seven")
    return x


def label_fails(sample: dict, at: int) -> int:
    if sample["label"] == at:
        raise ValueError("bad label")
    return sample["label"]


def test_results_come_in_order() -> None:
    s = IterableSource(range(60)).parallel_map(slow_when_even, workers=4)
    assert s.collect() == [x * 10 for x in range(60)] == s.collect()


def test_unordered_gives_everything_once() -> None:
    s = IterableSource(range(60)).parallel_map(slow_when_even, workers=4, ordered=False)
    got = s.collect()
    assert sorted(got) == [x * 10 for x in range(60)]


def test_it_runs_in_parallel() -> None:
    met = threading.Barrier(3)

    def meet(x: int) -> int:
        met.wait(60)
        return x

    assert IterableSource(range(6)).parallel_map(meet, workers=3).collect() == list(range(6))


def test_look_ahead_is_bounded() -> None:
    taken = []

    def items():
        for i in range(100):
            taken.append(i)
            yield i

    with IterableSource(items).parallel_map(lambda x: x, workers=2, lookahead=5).iterator() as it:
        assert next(it) == 0
        time.sleep(0.05)
        assert len(taken) <= 6
        assert [next(it) for _ in range(10)] == list(range(1, 11))
        assert len(taken) <= 16


def test_processes() -> None:
    s = IterableSource(range(8)).parallel_map(own_pid, workers=2, pool="processes")
    pids = set(s.collect())
    assert os.getpid() not in pids and 1 <= len(pids) <= 2


def test_what_cannot_be_sent_to_processes_is_explained() -> None:
    s = IterableSource(range(3)).parallel_map(lambda x: x, workers=1, pool="processes")
    with pytest.raises(ValueError, match="top of a module"):
        s.collect()
    items = IterableSource([1, lambda: 2]).parallel_map(own_pid, workers=1, pool="processes")
    got = []
    with pytest.raises(Exception, match="(?i)pickle|local object"):
        for pid in items:
            got.append(pid)
    assert len(got) == 1


def test_an_executor_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(2) as executor:
        s = IterableSource(range(9)).parallel_map(slow_when_even, pool=executor)
        assert s.collect() == [x * 10 for x in range(9)]
        assert executor.submit(own_pid, 1).result() == os.getpid()


@pytest.mark.parametrize("ordered", [True, False])
def test_an_exception_takes_its_place(ordered: bool) -> None:
    got = []
    with pytest.raises(ValueError, match="seven") as caught:
        for x in IterableSource(range(50)).parallel_map(fail_on_seven, 2, ordered=ordered):
            got.append(x)
    if ordered:
        assert got == list(range(7))
    assert "parallel_map(fail_on_seven)" in caught.value.__notes__[0]
    assert caught.traceback[-1].name == "fail_on_seven"


def test_an_exception_names_the_failing_sample(images: Path) -> None:
    s = squirrel.open(images).parallel_map(label_fails, workers=2, lookahead=20, at=301)
    with pytest.raises(ValueError) as caught:
        s.collect()
    (note,) = caught.value.__notes__
    assert "sample 1 of" in note and ".sqrl" in note  # the second sample of the second shard


def test_an_exception_of_the_source_comes_behind_what_was_good() -> None:
    def items():
        yield from range(5)
        raise OSError("source")

    for ordered in (True, False):
        got = []
        with pytest.raises(OSError, match="source"):
            for x in IterableSource(items).parallel_map(lambda x: x, 2, ordered=ordered):
                got.append(x)
        assert sorted(got) == list(range(5))


def test_closing_early_stops_the_threads() -> None:
    ran = []

    def work(x: int) -> int:
        ran.append(x)
        time.sleep(0.01)
        return x

    with IterableSource(range(10_000)).parallel_map(work, workers=2).iterator() as it:
        assert next(it) == 0
    count = len(ran)
    assert count < 5000  # it waited for what was begun, not for all
    time.sleep(0.1)
    assert len(ran) <= count + 2
    assert list(it) == []


def test_an_abandoned_iterator_ends_its_threads() -> None:
    it = iter(IterableSource(range(1000)).parallel_map(slow_when_even, workers=3))
    next(it)
    del it
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not any(t.name.startswith("squirrel-map") for t in threading.enumerate()):
            return
        time.sleep(0.01)
    pytest.fail("threads are still there")
