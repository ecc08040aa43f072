"""The streams that a stage over several draws from, each in a pass of its own that has a state.

A part stands where its own state says; nothing of it is held anywhere else. When a run goes on with
other numbers of ranks and workers, the states of a stream that all of them had are given to each of
the new ones, pass by pass: a rank that had begun the next pass has nothing left of the one before,
and one that had not has all of its share of the next.
"""

from __future__ import annotations

import copy
import functools
import reprlib

from squirrel import _native
from squirrel._errors import StateError
from squirrel._state import find
from squirrel.iterstream.base import Run
from squirrel.iterstream.trace import _note, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Start = Callable[[int, Any, Run], tuple[Iterator[Any], Callable[..., dict[str, Any]]]]
    Saved = dict[str, Any]

__all__ = ["Part", "fresh", "gather", "is_count", "saved_part"]

KEY = "squirrel_several"
_MOST_APART = 10_000  # passes that ranks may be apart


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def fresh(number: int = 0) -> Saved:
    """The state of a part that has not begun its pass."""
    return {"pass": number, "taken": 0, "state": None, "begun": []}


class Part:
    """Stream number i of several, in one pass after another.

    Attributes:
        number: which pass it is in.
        resumed: whether it may give nothing, since an earlier run gave it all.
    """

    def __init__(
        self, i: int, streams: Callable[[int], Any], run: Run, epoch: Callable[[int], int], start: Start | None = None
    ) -> None:
        self.i = i
        self.streams = streams  # the stream of a pass
        self.epoch = epoch  # and its epoch
        self.run = run
        self.start = start
        self.number = 0
        self.resumed = False
        self._begun: dict[int, Saved] = {}
        self._state_of: Callable[..., dict[str, Any]] | None = None
        self._closer: Callable[[], object] | None = None

    def go_on(self, saved: Saved) -> Iterator[Any]:
        """Where :func:`shares` says."""
        self.number = saved["pass"]
        for later in saved["begun"]:
            states = later["states"]
            if len(states) > 1:  # of all ranks there were: this one's share of them
                self._begin(later["pass"], states)
                state = self._state(0)
                assert state is not None
                states = [state]
            self._begun[later["pass"]] = states[0]
        states = saved["states"]
        self.resumed = bool(states or saved["taken"])
        return self._begin(self.number, states or None, saved["taken"])

    def again(self) -> Iterator[Any]:
        """The next pass."""
        self.number += 1
        state = self._begun.pop(self.number, None)
        self.resumed = state is not None
        return self._begin(self.number, None if state is None else [state])

    def _begin(self, number: int, states: list[Saved] | None, taken: int = 0) -> Iterator[Any]:
        from squirrel.iterstream.resume import Resumable
        from squirrel.iterstream.resume import begin as begin_pass
        from squirrel.stream import Stream

        self.close()
        stream = self.streams(number)
        inner = Run(self.epoch(number) + (stream._epoch or 0), self.run.shared)
        self._closer = inner.close
        self.run.closers.append(self._closer)
        self._state_of = None
        if states is None and taken:  # a stream that can't go on: it is passed through again
            stream = stream.skip(taken)
        if self.start is not None:
            inner.states = states
            items, self._state_of = self.start(self.i, stream, inner)
            return items
        if isinstance(stream, Stream):
            inner.states = states
            items = stream._start(inner)
            self._state_of = items.state_dict  # type: ignore[attr-defined]
            return items
        items = begin_pass(stream, inner, states)
        if isinstance(items, Resumable):
            self._state_of = items.state_dict
        return _native.Guard(items, functools.partial(_note, stream, inner))

    def _start_of(self, number: int) -> Saved | None:
        """The state before the first item of a pass."""
        self._begin(number, None)
        return self._state(0)

    def close(self) -> None:
        closer, self._closer = self._closer, None
        if closer is not None:
            if closer in self.run.closers:
                self.run.closers.remove(closer)
            closer()

    def _state(self, back: int) -> Saved | None:
        if self._state_of is None:
            return None
        state: Saved = self._state_of(back=back) if back else self._state_of()
        return state

    def state(self, taken: int, back: int = 0) -> Saved:
        """Where it stands, or stood one item ago; `taken`: items it gave in this pass."""
        begun = [{"pass": number, "state": state} for number, state in sorted(self._begun.items())]
        return {"pass": self.number, "taken": taken - back, "state": self._state(back), "begun": begun}


# --- what was saved ---


def saved_part(saved: Any) -> None:
    """Refuses what no part's state can look like."""
    good = isinstance(saved, dict) and is_count(saved.get("pass")) and is_count(saved.get("taken"))
    good = good and isinstance(saved.get("state", ""), (dict, type(None))) and isinstance(saved.get("begun"), list)
    if not good:
        raise StateError(f"the state of several streams is damaged: {reprlib.repr(saved)} is no stream's")
    for later in saved["begun"]:
        if (
            not isinstance(later, dict)
            or not is_count(later.get("pass"))
            or not isinstance(later.get("state"), dict)
            or later["pass"] <= saved["pass"]
        ):
            raise StateError(f"the state of several streams is damaged: {reprlib.repr(later)} is no later pass")


def gather(stage: Any, saved: Any) -> tuple[Saved, list[Saved]]:
    """Of the states of `stage` in `saved`: the one that its next pass goes on from, and what each of
    its streams does (see :func:`shares`)."""
    states = find(saved, KEY)
    if not states:
        raise StateError(
            f"there is no state of {stage._call} in this {type(saved).__name__}: "
            "give what state_dict() gave, or a list of those"
        )
    for state in states:
        stage._check(state)
    lead, own = _choose(stage, states)
    before = functools.partial(stage._before_pass, lead["epoch"])
    found = []
    for i, name in enumerate(stage._names_of_parts()):
        parts = [state["parts"][i] for state in states]
        found.append(shares(name, states, parts, before) if own is None else _own(name, own, states, parts, before))
    return lead, found


def beginning(stream: Any, epoch: int, consumers: int) -> Saved:
    """The state of `stream` before its first item, as one of so many consumers has it. Nothing is read."""
    from squirrel.stream import Stream

    run = Run(epoch)
    try:
        state = copy.deepcopy(Part(0, lambda _: stream, run, lambda _: epoch)._start_of(0))
    finally:
        run.close()
    natives = [] if state is None else find(state, "squirrel_state")
    dealt = [node for node in walk(stream) if isinstance(node, Stream)]
    if len(natives) == 1 and len(dealt) == 1 and dealt[0].distributed:
        with dealt[0]._dealt_to(consumers).iterate(epoch=natives[0]["epoch"]) as items:
            natives[0].update(items.state_dict())
    return state or {}


def _choose(stage: Any, states: list[Saved]) -> tuple[Saved, int | None]:
    """The state whose schedule goes on: where rank and worker are what they were its own, and which
    that is, else the one that was furthest on."""
    if len(states) == 1:
        return states[0], 0
    mine = _consumer(stage)
    if mine is None:
        raise StateError(
            f"{len(states)} states of several streams without distribute: give the one of this process"
        )
    for n, state in enumerate(states):
        if _share(state) == mine:
            return state, n
    for n, state in enumerate(states, 1):
        if state["epoch"] != states[0]["epoch"]:
            raise StateError(f"states 1 and {n} are of different epochs")
    lead = dict(max(states, key=stage._progress))
    lead["finished"] = all(state["finished"] for state in states)
    return lead, None


def _consumer(stage: Any) -> tuple[int, int] | None:
    """How many consumers share the streams, and which one this process is."""
    from squirrel.stream import Stream

    for node in walk(stage):
        if isinstance(node, Stream) and node.distributed:
            return node._consumer()
    return None


def _share(state: Any) -> tuple[int, int] | None:
    """The same of whoever saved a state."""
    for native in find(state, "squirrel_state"):
        share = native.get("share")
        if isinstance(share, dict):
            return share.get("consumers"), share.get("consumer")  # type: ignore[return-value]
    return None


def shares(
    name: str, states: list[Saved], parts: list[Saved], before_pass: Callable[[int, int], Saved | None]
) -> Saved:
    """One stream's states of all ranks and workers as one: for each pass the states of all.

    `before_pass` gives the state before a pass that nobody stands in, where another pass's does not tell.
    """
    if len(parts) == 1:
        return _single(parts[0])
    known: dict[int, list[tuple[int, Saved]]] = {}  # of each pass who stands in it, and where
    for n, part in enumerate(parts):
        if part["state"] is not None:
            known.setdefault(part["pass"], []).append((n, part["state"]))
        for later in part["begun"]:
            known.setdefault(later["pass"], []).append((n, later["state"]))
    stateless = not known or any(part["state"] is None for part in parts)
    if stateless or any(_share(state) is None for some in known.values() for _, state in some):
        if any((p["pass"], p["taken"]) != (parts[0]["pass"], parts[0]["taken"]) for p in parts):
            raise StateError(
                f"{name} is not dealt by distribute(), and its ranks and workers stand at different items: "
                "such a stream goes on with the numbers of ranks and workers it had"
            )
        return _single(parts[0])
    low, high = min(part["pass"] for part in parts), max(known)
    if high - low > _MOST_APART:
        raise StateError(f"the states stand {high - low} passes of {name} apart: they are damaged")
    passes = []
    for number in range(low, high + 1):
        standing = dict(known.get(number, ()))
        unbegun = None if standing else before_pass(number, len(parts))
        pattern = known.get(number, known[high])[0][1] if unbegun is None else unbegun
        back = 0 if standing or unbegun is not None else high - number
        for n, part in enumerate(parts):
            if n not in standing:
                standing[n] = _edge(name, pattern, _share(states[n]), part["pass"] > number, back)
        passes.append({"pass": number, "states": [standing[n] for n in range(len(parts))]})
    return {"pass": low, "taken": parts[0]["taken"], "states": passes[0]["states"], "begun": passes[1:]}


def _own(
    name: str, n: int, states: list[Saved], parts: list[Saved], before_pass: Callable[[int, int], Saved | None]
) -> Saved:
    """What is of one's own of a stream's states. Of passes that others had begun, too, where those
    are given: shards that were appended since are not theirs."""
    own = _single(parts[n])
    latest = max([part["pass"] for part in parts] + [later["pass"] for part in parts for later in part["begun"]])
    dealt = all(part["state"] is not None and _share(part["state"]) is not None for part in parts)
    ruled = any("distribute(split)" in str(state.get("plan")) for state in find(parts[n], "squirrel_state"))
    if latest == own["pass"] or not dealt or ruled:
        return own
    try:
        everybody = shares(name, states, parts, before_pass)
    except StateError:  # such a stream goes on with the numbers it had
        return own
    known = {later["pass"] for later in parts[n]["begun"]}
    own["begun"] = []
    for later in everybody["begun"]:
        state = later["states"][n]
        if later["pass"] > own["pass"]:
            if later["pass"] not in known:  # all of its share is to come
                find(state, "squirrel_state")[0]["share"]["quota"] = None
            own["begun"].append({"pass": later["pass"], "states": [state]})
    return own


def _single(part: Saved) -> Saved:
    begun = [{"pass": later["pass"], "states": [later["state"]]} for later in part["begun"]]
    states = [] if part["state"] is None else [part["state"]]
    return {"pass": part["pass"], "taken": part["taken"], "states": states, "begun": begun}


def _edge(name: str, pattern: Saved, share: tuple[int, int] | None, ended: bool, before: int) -> Saved:
    """The state of one who has given all of a pass, or nothing yet, made of somebody else's, who
    stands in the same pass, or so many passes behind it, which nobody resumed then."""
    state = copy.deepcopy(pattern)
    natives = find(state, "squirrel_state")
    if find(state, KEY) or len(natives) != 1 or share is None:
        raise StateError(
            f"the states stand in different passes of {name}, of which one is not dealt by distribute(), or "
            "is of several streams itself: save all ranks and workers at the same step"
        )
    own = natives[0]["share"]
    if not isinstance(own, dict):
        raise StateError("the state's share is damaged")
    if not is_count(natives[0].get("epoch")) or natives[0]["epoch"] < before:
        raise StateError("the state's epoch is damaged")
    natives[0]["epoch"] -= before
    own.update(consumer=share[1], left=[], at=0, window=None if ended else 0)
    own["pass"] = 0
    if "skip" in state:
        state["skip"] = 0
    return state
