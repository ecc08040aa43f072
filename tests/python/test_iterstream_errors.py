"""Failing callables: what the exception says, and the policies of on_error."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

import squirrel
from squirrel.iterstream import SKIP, IterableSource, OnError

S = IterableSource


def inverse(x: int) -> float:
    return 12 / x


def odd_fails(sample: dict[str, Any]) -> int:
    if sample["label"] == 301:
        raise ValueError("no good")
    return int(sample["label"])


class Flaky:
    """Fails `times` times for each item."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls: dict[int, int] = {}

    def __call__(self, x: int) -> int:
        self.calls[x] = self.calls.get(x, 0) + 1
        if self.calls[x] <= self.times:
            raise OSError(f"call {self.calls[x]}")
        return 10 * x


# --- what the exception says ---


def notes_of(stream: Any, error: type[Exception]) -> list[str]:
    with pytest.raises(error) as caught:
        stream.collect()
    return list(getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize("make", [
    lambda s: s.map(inverse).map(str).batched(1),
    lambda s: s.filter(inverse).map(str),
    lambda s: s.async_map(inverse).map(str),
    lambda s: s.parallel_map(inverse, ordered=False).map(str),
    lambda s: s.map(str).map(int).flat_map(lambda x: [inverse(x)]),
    lambda s: s.batched(1, lambda xs: inverse(xs[0])).map(str),
    lambda s: s.to(lambda items: (inverse(x) for x in items)).map(str),
    lambda s: s.monitor(lambda m: inverse(0), window_size=2).map(str),
])
def test_the_stage_that_failed_is_named_not_its_neighbours(make: Any) -> None:
    stream = make(S([3, 0]).map(lambda x: x).filter(lambda x: True))
    middle = stream.source if stream._call == "batched(1)" else stream
    expected = middle.source._call if middle._call == "map(str)" else middle._call
    if "flat_map" not in repr(stream):
        assert notes_of(stream, ZeroDivisionError) == [f"in stage {expected}"]
    else:
        assert "flat_map" in notes_of(stream, ZeroDivisionError)[0]


def test_callables_without_python_code_are_named_too() -> None:
    assert notes_of(S(["1", "x"]).map(int).map(float), ValueError) == ["in stage map(int)"]
    assert notes_of(S(["1", "x"]).map(str.upper).map(str.lower).map(int), ValueError) == ["in stage map(int)"]


def test_what_the_source_raises_is_not_blamed_on_a_stage() -> None:
    def numbers() -> Any:
        yield "1"
        raise KeyError("source")

    (note,) = notes_of(S(numbers).map(int).map(lambda x: x), KeyError)
    assert "numbers" in note and "map" not in note
    assert notes_of(S(iter(numbers())).map(int), KeyError) == []


@pytest.mark.parametrize("parallel", [False, True])
def test_shard_and_sample_are_named(images: Path, parallel: bool) -> None:
    stream = squirrel.open(images).map(dict)
    stream = stream.async_map(odd_fails, buffer=20) if parallel else stream.map(odd_fails)
    (note,) = notes_of(stream, ValueError)
    assert "odd_fails" in note and "sample 1 of shard" in note and ".sqrl" in note


def test_no_place_is_named_where_items_are_held_back(images: Path) -> None:
    (note,) = notes_of(squirrel.open(images).map(dict).shuffle(50, seed=1).map(odd_fails), ValueError)
    assert note == "in stage map(odd_fails)"


def test_a_builtin_that_stops_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        S([iter([1]), iter([])]).map(next).collect()


# --- policies ---


@pytest.mark.parametrize("verb", ["map", "async_map", "parallel_map"])
def test_policies(verb: str) -> None:
    def stream(on_error: Any) -> list[Any]:
        return getattr(S([3, 0, 4, 0]), verb)(inverse, on_error=on_error).collect()

    assert stream("skip") == [4, 3]
    assert stream("substitute") == [4, 4, 3, 3]
    assert stream(OnError("substitute", value=-1)) == [4, -1, 3, -1]
    assert stream(lambda error, item: (type(error).__name__, item)) == [4, ("ZeroDivisionError", 0), 3,
                                                                       ("ZeroDivisionError", 0)]
    assert stream(lambda error, item: SKIP) == [4, 3]
    for last in ("raise", OnError("raise"), "retry", OnError("retry", retries=1)):
        with pytest.raises(ZeroDivisionError):
            stream(last)


@pytest.mark.parametrize("verb", ["map", "async_map"])
def test_retries(verb: str) -> None:
    flaky = Flaky(2)
    assert getattr(S([1, 2]), verb)(flaky, on_error=OnError("retry", retries=2)).collect() == [10, 20]
    assert flaky.calls == {1: 3, 2: 3}
    flaky = Flaky(5)
    skipping = OnError("retry", retries=2, then="skip")
    assert getattr(S([1]), verb)(flaky, on_error=skipping).collect() == [] and flaky.calls == {1: 3}


def test_filter_and_flat_map() -> None:
    assert S([3, 0, 4]).filter(lambda x: 4 / x > 1, on_error="skip").collect() == [3]
    assert S([3, 0, 4]).filter(inverse, on_error=OnError("substitute", value=True)).collect() == [3, 0, 4]
    assert S([2, -1, 1]).flat_map(lambda x: [x] * x if x > 0 else 1 / 0, on_error="skip").collect() == [2, 2, 1]


def test_budgets() -> None:
    def got(items: list[int], **budget: Any) -> list[float]:
        out = []
        with pytest.raises(ZeroDivisionError) as caught:
            for x in S(items).map(inverse, on_error=OnError("skip", **budget)):
                out.append(x)
        assert any("budget" in note and "map(inverse)" in note for note in caught.value.__notes__)
        return out

    assert got([1, 0, 0, 2, 0, 0, 0, 3], consecutive=3) == [12, 6]
    assert got([1, 0, 2, 0, 3, 0, 4], total=3) == [12, 6, 4]
    within = S([1, 0, 0, 2] * 5).map(inverse, on_error=OnError("skip", consecutive=3, total=None))
    assert within.collect() == within.collect() == [12, 6] * 5


def test_the_first_skipped_items_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "squirrel"):
        S([0] * 20).map(inverse, on_error="skip").join()
    assert len(caplog.messages) == 5 and "map(inverse)" in caplog.messages[0]


def test_substitute_without_anything_good_raises() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        S([0]).map(inverse, on_error="substitute").collect()
    assert any("value=" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("wrong", [
    lambda: OnError("ignore"), lambda: OnError("skip", consecutive=0), lambda: OnError("skip", total=0),
    lambda: OnError("retry", retries=-1), lambda: OnError("retry", then="retry"), lambda: OnError("retry", delay=-1),
    lambda: S([]).map(inverse, on_error="ignore"),
])
def test_wrong_policies(wrong: Any) -> None:
    with pytest.raises(ValueError):
        wrong()


def test_policies_pickle_and_work_in_processes() -> None:
    stream = S([3, 0, 4]).parallel_map(inverse, workers=1, pool="processes", on_error=OnError("skip", total=5))
    assert pickle.loads(pickle.dumps(stream)).collect() == [4, 3]
