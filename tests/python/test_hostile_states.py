"""States that were changed by hand or damaged: one clear error, no hang, no endless stream."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import squirrel
from squirrel import StateError

COUNT = 500


@pytest.fixture
def data(tmp_path: Path) -> str:
    target = tmp_path / "data"
    squirrel.pack(({"i": i} for i in range(COUNT)), target, block_bytes=500)
    return str(target)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def deep_text(depth: int) -> str:
    return '{"squirrel_state": ' + "[" * depth + "]" * depth + "}"


def test_deep_nesting_is_one_error(data: str) -> None:
    for hostile in (nested(100_000), deep_text(100_000), {"squirrel_state": nested(100_000)}):
        with pytest.raises(StateError):
            squirrel.open(data).iterator(state=hostile)


def test_a_cycle_ends(data: str) -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(StateError, match="nested"):
        squirrel.open(data).iterator(state=ring)


def test_values_that_are_no_json(data: str) -> None:
    state = squirrel.open(data).iterator().state_dict()
    for value in (b"x", object(), 10**5000):
        with pytest.raises(StateError, match="damaged"):
            squirrel.open(data).iterator(state={**state, "epoch": value})


def test_counts_of_results_are_checked(data: str) -> None:
    def twice(sample: dict[str, Any]) -> list[int]:
        return [sample["i"]] * 2

    flat = squirrel.open(data).map(twice).flatten()
    iterator = flat.iterator()
    assert [next(iterator) for _ in range(3)] == [0, 0, 1]
    state = iterator.state_dict()
    assert state["skip"] == 1
    assert list(flat.iterator(state=state)) == list(iterator)
    for skip in (3, 2**62, -1, "1", None, True, 1.0):
        with pytest.raises(StateError):
            flat.iterator(state={**state, "skip": skip})
    plain = squirrel.open(data).map(twice)
    state = plain.iterator().state_dict()
    with pytest.raises(StateError):
        plain.iterator(state={**state, "skip": 2**31})
    for stages in (None, 7, "map", ["x" * 100_000], [nested(100_000)]):
        with pytest.raises(StateError) as caught:
            plain.iterator(state={**state, "stages": stages})
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("quota", [None, COUNT + 1, 2**63])
def test_a_quota_above_the_data_is_refused(data: str, quota: int | None) -> None:
    stream = squirrel.open(data).shuffle_all(seed=1).distribute(rank=0, world_size=2)
    iterator = stream.iterator()
    next(iterator)  # where nothing was delivered, no quota means that of the data
    state = iterator.state_dict()
    state["share"]["quota"] = quota
    with pytest.raises(squirrel.Error):
        stream.iterator(state=state)


def test_other_steps_are_another_plan(data: str) -> None:
    def stream(steps: int | None) -> Any:
        one = squirrel.open(data).shuffle_all(seed=1)
        return one.distribute(rank=0, world_size=2, steps=steps).batch(4)

    for before, now in ((7, None), (None, 7), (7, 8)):
        state = stream(before).iterator().state_dict()
        with pytest.raises(StateError, match="stage 2"):
            stream(now).iterator(state=state)
    iterator = stream(7).iterator()
    next(iterator)
    assert len(list(stream(7).iterator(state=iterator.state_dict()))) == 6


def test_another_tail_is_another_plan(data: str) -> None:
    def stream(tail: str, ranks: int = 2) -> Any:
        return squirrel.open(data).shuffle_all(seed=1).distribute(rank=0, world_size=ranks, tail=tail)

    for before, now in (("pad", "drop"), ("drop", "uneven"), ("uneven", "pad")):
        state = stream(before).iterator().state_dict()
        with pytest.raises(StateError, match="stage 2 was distribute.*now it is distribute"):
            stream(now).iterator(state=state)
        assert len(list(stream(before).iterator(state=state))) == COUNT // 2


def test_numbers_of_a_shuffle_are_checked(data: str) -> None:
    """However large: at once, without replaying them."""
    stream = squirrel.open(data).map(dict).shuffle(20, seed=1)
    iterator = stream.iterator()
    got = [next(iterator)["i"] for _ in range(200)]
    state = json.loads(json.dumps(iterator.state_dict()))
    assert sorted(got + [s["i"] for s in stream.iterator(state=state)]) == list(range(COUNT))
    for change in (
        {"pulled": 10**15, "given": 10**15 - 20}, {"given": 0}, {"pulled": COUNT + 1, "given": COUNT - 10},
        {"from": 10**15, "pulled": 10**15 + 20, "given": 10**15}, {"from": 0, "pulled": 10**15, "given": 10**15},
        {"pulled": 2**70, "given": 2**70}, {"from": True}, {"given": -1}, {"given": 1.5},
    ):
        with pytest.raises(StateError, match="shuffle"):
            list(stream.iterator(state={**state, "shuffle": {**state["shuffle"], **change}}))


@pytest.mark.parametrize("now", [{}, {"seed": 2}, {"seed": "1"}, {"seed": 1, "initial": 5}])
def test_another_shuffle_is_another_plan(data: str, now: dict[str, Any]) -> None:
    """Its buffer would hold other samples: some would come twice, others never."""
    iterator = squirrel.open(data).shuffle(20, seed=1).iterator()
    next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    with pytest.raises(StateError, match=r"stage 1 was shuffle\(20, .*seed=1\), now it is shuffle\(20, "):
        squirrel.open(data).shuffle(20, **now).iterator(state=state)
    unseeded = squirrel.open(data).shuffle(20)
    state = json.loads(json.dumps(unseeded.iterator().state_dict()))
    for seed in (None, {}, -1, 2**64, 1.5, True):
        with pytest.raises(StateError, match="is no seed"):
            unseeded.iterator(state={**state, "shuffle": {**state["shuffle"], "seed": seed}})


def test_states_of_mixes_are_checked(data: str) -> None:
    def mix() -> Any:
        return squirrel.mix([squirrel.open(data), squirrel.open(data).shuffle_all(seed=1)], [0.5, 0.5], seed=3)

    mixed = mix()
    items = iter(mixed)
    for _ in range(9):
        next(items)
    good = json.loads(json.dumps(mixed.state_dict()))
    rest = [sample["i"] for sample in items]
    again = mix()
    again.load_state_dict(good)
    assert [sample["i"] for sample in again] == rest
    for state in (None, 7, [], "x"):
        with pytest.raises(StateError):
            mix().load_state_dict(state)
    values = (-1, 2**70, 10**400, "x", None, [], {}, nested(100_000), "gone")
    for name in good:
        for value in values:
            state = copy.deepcopy(good)
            if value == "gone":
                del state[name]
            else:
                state[name] = value
            with pytest.raises(StateError):
                mix().load_state_dict(state)
            if isinstance(good[name], list):
                state = copy.deepcopy(good)
                state[name][1] = value
                with pytest.raises(StateError):
                    mix().load_state_dict(state)
    for name in good["parts"][1]:
        state = copy.deepcopy(good)
        del state["parts"][1][name]
        with pytest.raises(StateError):
            mix().load_state_dict(state)
