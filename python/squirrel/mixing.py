"""One stream out of several: mixed by weights, in turn, one after another, side by side.

Nothing is copied: each source is read where it lies, by its own native threads, and its items pass
through. The schedule of a mix is sqrl/mix.h's. Where a pass stands is where each stream's own state
says, and a few numbers beside: see squirrel.iterstream.parts.
"""

from __future__ import annotations

import builtins
import itertools
import reprlib

from squirrel import _native
from squirrel._errors import ArgumentError, StateError
from squirrel.iterstream.base import Composable, Run
from squirrel.iterstream.parts import KEY, Part, beginning, gather, is_count, saved_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Literal

    from squirrel.iterstream.parts import Saved, Start

    Stop = Literal["first", "all", "forever"]

__all__ = ["Mix", "concat", "interleave", "mix", "sample", "zip"]

_STATE = 2  # version of the states


def mix(
    streams: Sequence[Iterable[Any]],
    weights: Sequence[float] | None = None,
    seed: int = 0,
    stop: Stop = "first",
    *,
    quota: int = 0,
) -> Mix:
    """Items of several streams in fixed proportions.

    Of every first n items, stream i gave more than n * w[i] - 1 and less than n * w[i] + 1, where w
    are the weights divided by their sum. Which comes when is decided by the seed, within that.

    Args:
        streams: any streams or iterables; iterators can be passed through once only.
        weights: from 0 on, not all 0; None: equal ones. 0: not drawn until :meth:`Mix.set_weights`.
        seed: 0 to 2**64-1. Every pass of the mix, whatever its epoch, follows the same schedule.
        stop: the mix ends when a stream is drawn that is at its end ("first"), when each stream
            that has a weight came to its end once ("all"), or never ("forever"). Streams that end
            earlier begin anew, as another epoch: what is shuffled by a seed has another order.
        quota: each run of so many items from the first on (a batch, say) holds exactly as many of
            each stream: the weights are rounded to multiples of 1/quota. A weight that would be
            rounded to 0 is an error. 0: not rounded.

    Pass p (from 0) of a stream in epoch e of the mix is epoch e * 2**32 + p of the stream, added to
    the epoch it was set to itself.
    """
    return Mix(streams, weights, seed, stop, quota=quota)


def sample(
    streams: Sequence[Iterable[Any]],
    weights: Sequence[float] | None = None,
    seed: int = 0,
    stop: Stop = "first",
) -> Mix:
    """As :func:`mix`, but each item's stream is drawn by chance alone, independently of the others:
    after n items the numbers are off by about the square root of n."""
    return Mix(streams, weights, seed, stop, independent=True)


def concat(streams: Sequence[Iterable[Any]]) -> Composable:
    """One stream after another."""
    return _Concat(streams)


def interleave(streams: Sequence[Iterable[Any]], block: int = 1) -> Composable:
    """`block` items of each stream in turn; streams that have ended are left out."""
    return _Interleave(streams, block)


def zip(streams: Sequence[Iterable[Any]], strict: bool = True) -> Composable:
    """Tuples of one item of each stream.

    Args:
        streams: of the same length.
        strict: one that ends before the others is a ValueError; False: the end of the whole.
    """
    return _Zip(streams, strict)


class _Several(Composable):
    """A stage over several streams."""

    _is_root = True
    _kind = ""

    def __init__(self, streams: Sequence[Iterable[Any]]) -> None:
        super().__init__(source=())
        if isinstance(streams, (str, bytes)) or not hasattr(streams, "__len__"):
            raise TypeError(f"streams must be a list of streams, not {type(streams).__name__}")
        if not len(streams):
            raise ValueError("at least one stream is needed")
        self.streams = [stream if isinstance(stream, Composable) else _plain(stream) for stream in streams]

    def _sources(self) -> list[Any]:
        return builtins.list(self.streams)

    def _functions(self) -> list[Any]:
        return []

    def __repr__(self) -> str:
        return f"{self._call}: " + ", ".join(f"[{stream!r}]" for stream in self.streams)

    # --- states ---

    def _plan(self) -> dict[str, Any]:
        """What must be the same where a state goes on."""
        return {"kind": self._kind, "streams": len(self.streams)}

    def _numbers(self) -> dict[str, int]:
        """Names of the counts in a state, and what they are below."""
        return {}

    def _names_of_parts(self) -> list[str]:
        return [f"stream {i}" for i in range(len(self.streams))]

    def _before_pass(self, epoch: int, number: int, consumers: int) -> Saved | None:
        """A part's state before a pass that no consumer stood in; None: as those of its other passes."""
        return None

    def _progress(self, state: Saved) -> Any:
        """Grows while a pass goes on."""
        return ()

    def _check(self, state: Any) -> None:
        """Refuses what no pass of such a stage can have given."""
        if state.get(KEY) != _STATE:
            version = reprlib.repr(state.get(KEY))
            raise StateError(f"a state of several streams of version {version}: this release reads {_STATE}")
        for name, mine in self._plan().items():
            if type(state.get(name)) is not type(mine) or state[name] != mine:
                was = reprlib.repr(state.get(name))
                raise StateError(f"the state is of a {self._kind} with {name}={was}, this one has {mine!r}")
        for name, below in {"epoch": 1 << 64, **self._numbers()}.items():
            value = state.get(name)
            if type(value) is not int or not 0 <= value < below:
                raise StateError(f"the state of a {self._kind} is damaged: its {name} is {reprlib.repr(value)}")
        if not isinstance(state.get("finished"), bool):
            raise StateError(f"the state of a {self._kind} is damaged: it does not say whether it had ended")
        parts = state.get("parts")
        if not isinstance(parts, builtins.list) or len(parts) != len(self._names_of_parts()):
            raise StateError(f"the state of a {self._kind} is damaged: its streams are not there")
        for part in parts:
            saved_part(part)

    def _saved_for(self, run: Run) -> tuple[Saved, builtins.list[Saved]] | None:
        """Where a pass goes on; None: it begins."""
        saved, run.states = run.states if run.states is not None else self._saved, None
        if saved is None:
            return None
        lead, parts = gather(self, saved)
        run.epoch = lead["epoch"]
        return lead, parts


class _Pass:
    """A pass through several streams: what a state is taken of."""

    counter: Any  # the native iterator that counts what came

    def __init__(self, of: _Several, run: Run) -> None:
        self.of = of
        self.run = run
        self.saved = of._saved_for(run)
        self.epoch = of._epoch_of(run)
        self.finished = bool(self.saved and self.saved[0]["finished"])
        run.root = self

    @property
    def delivered(self) -> int:
        """How many items came in this pass."""
        return int(self.counter.delivered)

    def parts(self, start: Start | None = None) -> tuple[builtins.list[Part], builtins.list[Iterator[Any]]]:
        """A part for each stream, and their items."""
        streams = self.of.streams
        parts = [
            Part(i, lambda _, stream=stream: stream, self.run, self._epoch, start)  # type: ignore[misc]
            for i, stream in enumerate(streams)
        ]
        if self.saved is None:
            return parts, [part._begin(0, None) for part in parts]
        return parts, [part.go_on(saved) for part, saved in builtins.zip(parts, self.saved[1])]

    def _epoch(self, number: int) -> int:
        return self.epoch

    def state_dict(self, back: int = 0) -> Saved:
        """Where it stands, or stood one item ago."""
        if back > 1 or (back and not self.delivered):
            raise ArgumentError("several streams go back one item at most")
        head = {KEY: _STATE, **self.of._plan(), "epoch": self.epoch, "finished": self.finished and not back}
        return {**head, **self._state(back)}

    def _state(self, back: int) -> Saved:
        raise NotImplementedError


def _plain(items: Iterable[Any]) -> Composable:
    from squirrel.iterstream.source import IterableSource

    if not hasattr(items, "__iter__") and not callable(items):
        raise TypeError(f"a stream or an iterable is needed, not {type(items).__name__}")
    return IterableSource(items)


class Mix(_Several):
    """What :func:`mix` and :func:`sample` give: a stream over weighted streams.

    Besides the methods of all streams it tells what its present (or last) pass has drawn, changes
    its weights, and saves where it is.
    """

    def __init__(
        self,
        streams: Sequence[Iterable[Any]],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: Stop = "first",
        *,
        quota: int = 0,
        independent: bool = False,
    ) -> None:
        super().__init__(streams)
        if stop not in ("first", "all", "forever"):
            raise ValueError(f'stop must be "first", "all" or "forever", not {stop!r}')
        if not hasattr(seed, "__index__"):
            raise TypeError(f"mix: the seed must be an int, not {seed!r}")
        if quota < 0:
            raise ValueError(f"mix: the quota is a number of items, not {quota}")
        self.weights = self._weights([1] * len(self.streams) if weights is None else weights)
        self.seed = int(seed) % (1 << 64)
        self.stop = stop
        self.quota = quota
        self.independent = independent
        self._pass: _MixPass | None = None
        self._mixed(tuple(iter(()) for _ in self.streams), _never, self.weights)  # refuses bad weights now

    def _weights(self, weights: Sequence[float]) -> list[float]:
        weights = [float(weight) for weight in weights]
        if len(weights) != len(self.streams):
            raise ValueError(f"mix: {len(self.streams)} streams need as many weights, not {len(weights)}")
        return weights

    def _mixed(
        self, iterators: tuple[Iterator[Any], ...], again: Any, weights: Sequence[float]
    ) -> _native.Mixed:
        return _native.Mixed(
            iterators, weights, again, seed=self.seed, quota=self.quota, independent=self.independent
        )

    @property
    def _call(self) -> str:
        return f"{'sample' if self.independent else 'mix'}({len(self.streams)} streams)"

    _kind = "mix"
    # The item in hand is of one stream; the others are ahead of what they gave.
    _holds_items = True

    def _start(self, run: Run) -> Iterator[Any]:
        self._pass = _MixPass(self, run, None)
        return self._pass.counter

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> Composable:
        """Dicts of items become columns; see :meth:`squirrel.Stream.batch`.

        Where all streams are native, so is the work on rows; `ragged` may be "offsets" or "error",
        and `fields` declares types that the streams have in common. Fields that a stream lacks are
        missing in its rows (``batch.valid``). Otherwise as for other Python stages.
        """
        from squirrel.stream import Stream

        native = all(isinstance(s, Stream) and not s._plan.batched for s in self.streams)
        if not native or options.get("ragged") == "pad":
            return super().batch(batch_size, drop_remainder, **options)
        from squirrel._mixed_batches import MixedBatches

        refused = sorted(set(options) & {"length_by", "boundaries", "max_tokens", "max_bytes", "drop_last"})
        if refused:
            raise ValueError(f"a mix's batches have a fixed size: {', '.join(refused)} can't be given")
        return MixedBatches(self, batch_size, drop_remainder, options)

    # --- while it runs ---

    def set_weights(self, weights: Sequence[float]) -> None:
        """Other weights from the next item on, in the pass that began last and in later ones.

        The promise of :func:`mix` then holds for the items from here on.

        Raises:
            ValueError: they are not one for each stream, negative, or all 0; the old ones stay.
        """
        checked = self._weights(weights)
        self._mixed(tuple(iter(()) for _ in self.streams), _never, checked)
        self.weights = checked
        if self._pass is not None:
            self._pass.counter.set_weights(checked)

    @property
    def epochs(self) -> list[int]:
        """Which pass each stream is in, from 0: how often it came to its end."""
        return [part.number for part in self._pass.streams] if self._pass else [0] * len(self.streams)

    @property
    def drawn(self) -> list[int]:
        """Items that each stream gave, in all its passes."""
        return self._pass.drawn() if self._pass else [0] * len(self.streams)

    @property
    def last(self) -> int:
        """Number of the stream that gave the item in hand."""
        if self._pass is None:
            raise StateError("no item has been drawn yet")
        return self._pass.counter.source

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Where the pass that began last is, between two items: a small dict that JSON takes."""
        if self._pass is None:
            if self._saved is not None:
                return dict(gather(self, self._saved)[0])
            raise StateError("no pass of this mix has begun: iterate it, then save its state")
        return self._pass.state_dict()

    def load_state_dict(self, saved: Any) -> None:
        """Passes of the saved epoch go on where the state stands, with the weights of then, until
        set_epoch() names another.

        Args:
            saved: one state of an equal mix, or those of all ranks and workers, in any nesting.

        Raises:
            StateError: the state is of another mix, and what differs.
        """
        lead, _ = gather(self, saved)
        probe = self._mixed(tuple(iter(()) for _ in self.streams), _never, lead["weights"])
        _resume(probe, lead)
        super().load_state_dict(saved)
        self.weights = builtins.list(lead["weights"])
        self._pass = None

    def _plan(self) -> dict[str, Any]:
        more = {"seed": self.seed, "quota": self.quota, "independent": self.independent, "stop": self.stop}
        return {**super()._plan(), **more}

    def _numbers(self) -> dict[str, int]:
        return {"changes": 1 << 63}

    def _progress(self, state: Saved) -> Any:
        return state["changes"], sum(state["drawn"])

    def _check(self, state: Any) -> None:
        super()._check(state)
        count = len(self.streams)
        for name in ("drawn", "before", "weights"):
            values = state.get(name)
            whole = name != "weights"
            if not isinstance(values, (builtins.list, tuple)) or len(values) != count:
                raise StateError(f"the state of a mix is damaged: {name} are not {count} numbers")
            for value in values:
                if not is_count(value) and (whole or not isinstance(value, float)):
                    raise StateError(f"the state of a mix is damaged: {reprlib.repr(value)} in {name}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None}


def _resume(mixed: _native.Mixed, state: Saved) -> None:
    taken = tuple(part["taken"] for part in state["parts"])
    try:
        mixed.resume(tuple(state["drawn"]), taken, state["changes"], state["finished"])
    except (ValueError, OverflowError) as error:
        raise StateError(str(error)) from None


class _MixPass(_Pass):
    """A pass of a mix: which pass each stream is in, and what they gave before."""

    counter: _native.Mixed

    def __init__(self, of: Mix, run: Run, start: Start | None) -> None:
        super().__init__(of, run)
        self.mix = of
        self.before = builtins.list(self.saved[0]["before"]) if self.saved else [0] * len(of.streams)
        if self.saved:
            of.weights = builtins.list(self.saved[0]["weights"])
        self.streams, items = self.parts(start)
        self.counter = of._mixed(tuple(items), self.again, of.weights)
        if self.saved:
            _resume(self.counter, self.saved[0])

    def _epoch(self, number: int) -> int:
        return (self.epoch << 32) + number

    def drawn(self) -> list[int]:
        _, taken, _ = self.counter.state()
        return [past + now for past, now in builtins.zip(self.before, taken)]

    def again(self, i: int, items: int) -> Iterator[Any] | None:
        """Stream i is at its end: its next pass, or None when that ends the mix."""
        mix, part = self.mix, self.streams[i]
        if mix.stop == "first":
            self.finished = True
            return None
        if not items and not part.resumed:
            raise ValueError(
                f"stream {i} of the mix ({mix.streams[i]!r}) gave nothing in its pass {part.number}: it is "
                "empty, or an iterator, which can be passed through once; give a list, a stream or a callable "
                "that makes an iterator, or leave it out"
            )
        ended = [p.number + (p is part) for p in self.streams]
        if mix.stop == "all" and all(n for n, weight in builtins.zip(ended, mix.weights) if weight > 0):
            part.number += 1
            self.finished = True
            return None
        self.before[i] += items
        return part.again()

    def _state(self, back: int) -> Saved:
        drawn, taken, changes = self.counter.state()
        backs = [0] * len(drawn)
        if back:
            last = self.counter.source
            if not drawn[last] or not taken[last]:
                raise ArgumentError("there is no state in front of an item behind which weights or passes changed")
            backs[last] = 1
        parts = [part.state(n, b) for part, n, b in builtins.zip(self.streams, taken, backs)]
        return {
            "weights": builtins.list(self.mix.weights),
            "changes": changes,
            "drawn": [n - b for n, b in builtins.zip(drawn, backs)],
            "before": builtins.list(self.before),
            "parts": parts,
        }


def _never(i: int, items: int) -> None:
    return None


class _Concat(_Several):
    _kind = "concat"

    @property
    def _call(self) -> str:
        return f"concat({len(self.streams)} streams)"

    def _names_of_parts(self) -> list[str]:
        return ["the streams"]  # one part, whose passes they are

    def _before_pass(self, epoch: int, number: int, consumers: int) -> Saved | None:
        if number >= len(self.streams):
            raise StateError(f"the state stands in stream {number} of {len(self.streams)}")
        return beginning(self.streams[number], epoch, consumers)

    def _start(self, run: Run) -> Iterator[Any]:
        return _ConcatPass(self, run).counter

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams)


class _ConcatPass(_Pass):
    def __init__(self, of: _Concat, run: Run) -> None:
        super().__init__(of, run)
        self.part = Part(0, lambda number: of.streams[number], run, self._epoch)
        self.taken = self.began_at = 0  # items of the present stream by an earlier run, and before it
        first = self._first()
        self.counter: _native.Counted = _native.Counted(itertools.chain.from_iterable(self._streams(first)))

    def _first(self) -> Iterator[Any]:
        if self.saved is None:
            return self.part._begin(0, None)
        saved = self.saved[1][0]
        if saved["pass"] >= len(self.of.streams):
            raise StateError(f"the state stands in stream {saved['pass']} of {len(self.of.streams)}")
        self.taken = saved["taken"]
        return self.part.go_on(saved)

    def _streams(self, first: Iterator[Any]) -> Iterator[Iterator[Any]]:
        yield first
        while self.part.number < len(self.of.streams) - 1:
            self.taken, self.began_at = 0, self.delivered
            yield self.part.again()
        self.finished = True

    def _state(self, back: int) -> Saved:
        return {"parts": [self.part.state(self.taken + self.delivered - self.began_at, back)]}


class _Interleave(_Several):
    _holds_items = True
    _kind = "interleave"

    def __init__(self, streams: Sequence[Iterable[Any]], block: int) -> None:
        super().__init__(streams)
        if block < 1:
            raise ValueError(f"interleave: a block has at least 1 item, not {block}")
        self.block = block

    @property
    def _call(self) -> str:
        return f"interleave({len(self.streams)} streams)"

    def _plan(self) -> dict[str, Any]:
        return {**super()._plan(), "block": self.block}

    def _numbers(self) -> dict[str, int]:
        return {"turn": len(self.streams), "given": self.block + 1}

    def _progress(self, state: Saved) -> Any:
        return sum(part["taken"] for part in state["parts"])

    def _start(self, run: Run) -> Iterator[Any]:
        return _InterleavePass(self, run).counter

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams)


class _InterleavePass(_Pass):
    def __init__(self, of: _Interleave, run: Run) -> None:
        super().__init__(of, run)
        self.block = of.block
        self.streams, items = self.parts()
        self.ended = [False] * len(items)
        self.taken = [part["taken"] for part in self.saved[1]] if self.saved else [0] * len(items)
        self.turn = self.saved[0]["turn"] if self.saved else 0
        self.before = self.saved[0]["given"] if self.saved else 0  # items of this turn, by an earlier run
        self.began_at = 0
        self.counter: _native.Counted = _native.Counted(
            itertools.chain.from_iterable(self._turns([self._to_the_end(i, its) for i, its in enumerate(items)]))
        )

    def _to_the_end(self, i: int, items: Iterator[Any]) -> Iterator[Any]:
        def end() -> Iterator[Any]:
            self.ended[i] = True
            yield from ()

        return itertools.chain(items, end())

    def _turns(self, items: list[Iterator[Any]]) -> Iterator[Iterator[Any]]:
        while not all(self.ended):
            self.began_at = self.delivered
            if not self.ended[self.turn]:
                yield itertools.islice(items[self.turn], self.block - self.before)
            self.taken[self.turn] += self.delivered - self.began_at
            self.began_at = self.delivered
            self.before = 0
            self.turn = (self.turn + 1) % len(items)
        self.finished = True

    def _state(self, back: int) -> Saved:
        given = self.delivered - self.began_at
        taken = builtins.list(self.taken)
        taken[self.turn] += given
        backs = [back * (i == self.turn) for i in range(len(taken))]
        if back and not given:  # the end
            raise ArgumentError("there is no state in front of the last item")
        parts = [part.state(n, b) for part, n, b in builtins.zip(self.streams, taken, backs)]
        return {"turn": self.turn, "given": self.before + given - back, "parts": parts}


class _Zip(_Several):
    _kind = "zip"

    def __init__(self, streams: Sequence[Iterable[Any]], strict: bool) -> None:
        super().__init__(streams)
        self.strict = strict

    @property
    def _call(self) -> str:
        return f"zip({len(self.streams)} streams)"

    def _plan(self) -> dict[str, Any]:
        return {**super()._plan(), "strict": self.strict}

    def _progress(self, state: Saved) -> Any:
        return state["parts"][0]["taken"]

    def _start(self, run: Run) -> Iterator[Any]:
        return _ZipPass(self, run).counter

    def __len__(self) -> int:
        return min(len(stream) for stream in self.streams)


class _ZipPass(_Pass):
    def __init__(self, of: _Zip, run: Run) -> None:
        super().__init__(of, run)
        self.streams, items = self.parts()
        self.taken = self.saved[1][0]["taken"] if self.saved else 0
        tuples = builtins.zip(*items, strict=of.strict)
        self.counter: _native.Counted = _native.Counted(
            itertools.chain(() if self.finished else tuples, self._end())
        )

    def _end(self) -> Iterator[Any]:
        self.finished = True
        yield from ()

    def _state(self, back: int) -> Saved:
        taken = self.taken + self.delivered
        return {"parts": [part.state(taken, back) for part in self.streams]}
