"""Going on behind Python stages: where the native iterator below them stands, and little more.

A stage like map() holds nothing between two items, so the point behind the last native item is the
whole state. flat_map() may be in the middle of what it made of one: then the state is the point in
front of that item and how many of its results were given, which are made again and left out.

shuffle() holds objects. Its state are numbers: how many items came and went, and the native
iterator's state some buffers ago. Which items are held follows from the seed: the same shuffle over
plain numbers says so; they are read again, and the shuffle runs once more without the others.
"""

from __future__ import annotations

import functools
import itertools
import os
import reprlib
from collections import deque

from squirrel import _native
from squirrel._errors import ArgumentError, StateError
from squirrel._state import find, texts
from squirrel.iterstream.parts import KEY, is_count
from squirrel.iterstream.stages import Augment, Batched, Filter, Flatten, Map, NumbaMap, Shuffle
from squirrel.iterstream.trace import _note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from squirrel.iterstream.base import Composable, Run

__all__ = ["Resumable", "begin"]

_VERSION = 1
_SLICE = 1 << 16
_END = object()


def _stages(top: Composable) -> tuple[list[str], bool, str | None]:
    """The Python stages that decide what comes; whether flat_map is there; why there is no state."""
    names: list[str] = []
    flat = batched = shuffled = False
    node: Any = top
    while not getattr(node, "_is_root", False):
        kind = type(node)
        if kind in (Map, Augment, NumbaMap, Filter, Flatten):
            names.append(node._call)
            flat = flat or kind is Flatten
        elif kind is Batched:
            batched = True
        elif kind is Shuffle and node.rng is None and not shuffled:
            seeded = "" if node.seed is None else f", seed={node.seed!r}"
            names.append(f"shuffle({node.size}, initial={node.initial}{seeded})")
            shuffled = True
        elif kind.__name__ != "TorchIterable":
            what = getattr(node, "_call", kind.__name__)
            return names, flat, (
                f"{what} has no state to go on from: a stream goes on where it is native stages, then "
                "map, filter, flat_map, batches and one shuffle without an rng only (take and skip in "
                "front of the first callable)"
            )
        node = node.source
    if flat and shuffled:
        return names, flat, "shuffle with flat_map: such a stream has no state; shuffle_all has"
    if flat and batched:
        return names, flat, "batches behind flat_map may end within one item: such a stream has no state"
    return names, flat, None


class _Stateless(_native.Guard):
    """A pass of a stream that can't go on: state_dict() says why."""

    _why: str

    def state_dict(self) -> dict[str, Any]:
        raise StateError(self._why)

    get_state = state_dict


class Resumable(_native.Guard):
    """A pass through Python stages over a native stream, with a state."""

    _top: Composable
    _run: Run

    def state_dict(self, back: int = 0) -> dict[str, Any]:
        """Where it stands, between two items, as a dict that JSON takes.

        Args:
            back: 1 in front of what came last.
        """
        names, flat, _ = _stages(self._top)
        root = self._run.root
        if root is None:
            raise StateError("this iterator was closed")
        chain = {"squirrel_chain": _VERSION, "stages": names, "skip": 0}
        if self._run.buffer is not None:
            if back:
                raise StateError("behind shuffle() there is no state in front of an item")
            native_state, shuffle = self._run.buffer.state()
            return {**chain, "shuffle": shuffle, "native": native_state}
        ahead = root.delivered - self._seen  # pulled, but nothing came of it: the end, or a failure
        if back:
            if any(isinstance(node, Batched) for node in _python_stages(self._top)):
                raise StateError("there is no state in front of a batch that was made in Python")
            state = _in_front(root, ahead + 1, self._top)
            return {**chain, "skip": self._since - 1 if flat else 0, "native": state}
        skip = self._since if flat and not ahead else 0
        state = root.state_dict()
        if not state["finished"] and (skip or ahead):
            state = _in_front(root, ahead or 1, self._top)
        elif skip and hasattr(root, "counter"):  # it was asked for more: nothing is left of the last item
            skip = 0
        elif skip:  # the end of the data, perhaps within the last item
            state = root.state_dict(back=1)
        return {**chain, "skip": skip, "native": state}

    def load_state_dict(self, saved: Any) -> None:
        """Goes on where a state stood: one, or all of a run with other ranks and workers."""
        run = self._run
        run.close()
        run.states, run.epoch = saved, epoch_of(saved)
        run.buffer = _buffer(saved)
        skip = _skip(self._top, saved)
        inner = self._top._start(run)
        self._replace(inner, _counter(run.root))
        self._forward(skip)

    def _forward(self, skip: int) -> None:
        for n in range(1, skip + 1):
            if next(self, _END) is _END or self._since != n:
                raise StateError(
                    f"the state stands behind {skip} results of one sample, of which flat_map makes fewer now: "
                    "it was changed, or the callables were"
                )

    get_state = state_dict
    set_state = load_state_dict


def _counter(root: Any) -> Any:
    """The native iterator that counts what the root gave."""
    return getattr(root, "counter", root)


def _in_front(root: Any, back: int, top: Composable) -> dict[str, Any]:
    """The root's state in front of the last `back` items that it gave. Where it can go back one
    only, that is enough: those before were left out by a filter, and will be again."""
    batched = any(isinstance(node, Batched) for node in _python_stages(top))
    if back > 1 and not batched and hasattr(root, "counter"):
        back = 1
    try:
        state: dict[str, Any] = root.state_dict(back=back)
    except ArgumentError:
        raise StateError("a callable failed within a batch: there is no state until the next") from None
    return state


def _python_stages(top: Any) -> Iterator[Any]:
    while not getattr(top, "_is_root", False):
        yield top
        top = top.source


def _skip(top: Composable, saved: Any) -> int:
    """How many results of the first item were given already. Refuses other stages."""
    names, flat, why = _stages(top)
    if why is not None:
        raise StateError(why)
    chains = find(saved, "squirrel_chain", without=KEY)
    for chain in chains:
        if chain["squirrel_chain"] != _VERSION:
            version = reprlib.repr(chain["squirrel_chain"])
            raise StateError(f"a state of version {version}: this squirrel knows {_VERSION}")
        was = chain.get("stages")
        if not isinstance(was, list):
            raise StateError("the state is damaged: its list of Python stages is missing")
        for n, (before, now) in enumerate(zip([*was[::-1], None], [*names[::-1], None]), 1):
            if before != now:
                raise StateError(
                    f"the state belongs to another stream: its Python stage {n} was {_name(before)}, "
                    f"now it is {now or 'none'}"
                )
    if not chains and names:
        raise StateError("there is no state of a stream with Python stages here")
    skips = [chain.get("skip", 0) for chain in chains]
    if any(type(skip) is not int or skip < 0 or (skip and not flat) for skip in skips):
        raise StateError("the state is damaged: its count of results of one sample does not fit the stream")
    if len(skips) == 1:
        return int(skips[0])
    if any(skips):
        raise StateError(
            "some states stand within what flat_map made of one sample: other numbers of ranks and workers "
            "can go on from states between samples only"
        )
    return 0


def _name(stage: Any) -> str:
    """A saved stage for a message; it may be anything, of any size."""
    return (stage[:200] if isinstance(stage, str) else reprlib.repr(stage)) if stage else "none"


def begin(top: Composable, run: Run, saved: Any) -> _native.Guard:
    """One pass, from the beginning or from a state on."""
    why = _stages(top)[2]
    skip = 0
    if saved is not None:
        skip = _skip(top, saved)
        run.states, run.epoch = saved, epoch_of(saved)
        run.buffer = _buffer(saved)
    inner = top._start(run)
    note = functools.partial(_note, top, run)
    if why is None and run.root is not None:
        guard = Resumable(inner, note, run.close, _counter(run.root))
        guard._top, guard._run = top, run
        guard._forward(skip)
        return guard
    stateless = _Stateless(inner, note, run.close)
    stateless._why = why or "this stream has no native iterator to go on from"
    return stateless


def _buffer(saved: Any) -> dict[str, Any] | None:
    """The numbers of a saved shuffle, with the native state they count from."""
    found = [chain for chain in find(saved, "squirrel_chain", without=KEY) if "shuffle" in chain]
    if not found:
        return None
    if len(found) > 1:
        raise StateError(
            "shuffle() holds items of its rank and worker: such a stream goes on with the numbers it had, "
            "each from its own state; shuffle_all() in front has no such limit"
        )
    numbers = found[0]["shuffle"]
    good = isinstance(numbers, dict) and all(is_count(numbers.get(name)) for name in ("from", "pulled", "given"))
    if not good or not numbers["from"] <= numbers["pulled"] >= numbers["given"]:
        raise StateError("the state's shuffle is damaged")
    return {**numbers, "native": found[0].get("native")}


class Buffer:
    """A running shuffle, with points in front of blocks of items to go back to."""

    POINTS = 32  # buffers: that an item waits longer has a chance of e**-32

    def __init__(self, stage: Shuffle, items: Iterator[Any], seed: Any, run: Run) -> None:
        saved, run.buffer = run.buffer, self
        self._stage = stage
        self._native: Any = run.root
        self._items = items
        self._saved: dict[str, Any] | None = saved
        self._drawn: int | str | None = None  # a seed of nobody's
        if stage.seed is None:
            fresh = int.from_bytes(os.urandom(8), "little") if seed is None else seed
            seed = self._drawn = fresh if saved is None else saved.get("seed")
            if not isinstance(seed, str) and not (type(seed) is int and 0 <= seed < 1 << 64):
                raise StateError(f"the state's shuffle is damaged: {reprlib.repr(seed)} is no seed")
        self._seed = seed
        self._shuffled: _native.Shuffled
        self._points: deque[tuple[int, dict[str, Any]]] = deque(maxlen=self.POINTS)

    def _shuffle(self, items: Any) -> _native.Shuffled:
        from squirrel.iterstream.iterators import shuffle_

        return shuffle_(  # type: ignore[return-value]
            items, self._stage.size, self._stage.initial, None, self._seed
        )

    def _blocks(self, number: int) -> Iterator[Iterator[Any]]:
        """The items in blocks of a buffer's size; a point in front of each."""
        size = self._stage.size
        while True:
            self._points.append((number, self._native.state_dict()))
            first = list(itertools.islice(self._items, 1))
            if not first:
                return
            yield itertools.chain(first, itertools.islice(self._items, size - 1))
            number += size

    def _again(self, begin: int, pulled: int, held: set[int]) -> Iterator[Any]:
        size = self._stage.size
        for number in range(begin, pulled):
            if number > begin and (number - begin) % size == 0:
                self._points.append((number, self._native.state_dict()))
            item = next(self._items, None)
            yield item if number in held else None

    def start(self) -> Iterator[Any]:
        saved = self._saved
        if saved is None:
            self._shuffled = self._shuffle(itertools.chain.from_iterable(self._blocks(0)))
            return self._shuffled
        begin, pulled, given = saved["from"], saved["pulled"], saved["given"]
        self._check(begin, pulled, given)
        numbers = self._shuffle(range(pulled))
        for done in range(0, given, _SLICE):  # between two of them Ctrl-C is seen
            deque(itertools.islice(numbers, min(_SLICE, given - done)), maxlen=0)
        held = set(numbers)
        if len(held) != pulled - given or (held and min(held) < begin):
            raise StateError("the state's shuffle is damaged, or an item waited in it for very long")
        self._points.append((begin, saved["native"]))
        self._shuffled = self._shuffle(
            itertools.chain(
                itertools.repeat(None, begin),
                self._again(begin, pulled, held),
                itertools.chain.from_iterable(self._blocks(pulled)),
            )
        )
        deque(itertools.islice(self._shuffled, given), maxlen=0)
        return self._shuffled

    def _check(self, begin: int, pulled: int, given: int) -> None:
        """Refuses numbers that no run can have come to, before they are run through."""
        size, source = self._stage.size, _bottom(self._stage)
        most = source._most() if source is not None else None
        if pulled - given > size or pulled - begin > (self.POINTS + 2) * size or (most is not None and pulled > most):
            raise StateError(
                f"the state's shuffle is damaged: {pulled} items came and {given} went, of "
                f"{'an unknown number' if most is None else most}, through a buffer of {size}"
            )

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The native state that the numbers count from, and the numbers."""
        given, held = self._shuffled.given, self._shuffled.held
        if not self._points:  # nothing was asked for yet
            self._points.append((0, self._native.state_dict()))
        begin, native = self._points[0]
        numbers = {"from": begin, "pulled": given + held, "given": given, "seed": self._drawn}
        return native, numbers


def _bottom(stage: Any) -> Any:
    """The native stream below a stage; None: there are several."""
    while not getattr(stage, "_is_root", False):
        stage = stage.source
    return stage if hasattr(stage, "_most") else None


def states_of(run: Run, own: Any) -> tuple[str, ...] | None:
    """What the native iterator of a pass goes on from."""
    saved, run.states = run.states if run.states is not None else own, None
    return None if saved is None else texts(saved)


def epoch_of(saved: Any) -> int:
    """The epoch that a state was in."""
    import json

    several = find(saved, KEY)
    epoch = several[0].get("epoch") if several else json.loads(texts(saved)[0]).get("epoch")
    if type(epoch) is not int or not 0 <= epoch < 1 << 64:
        raise StateError("the state is damaged: its epoch is no number from 0 on")
    return epoch
