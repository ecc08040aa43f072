"""One stream out of several: mixed by weights, in turn, one after another, side by side.

Nothing is copied: each source is read where it lies, by its own native threads, and its items pass
through. The schedule of a mix is sqrl/mix.h's.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import reprlib

from squirrel import _native
from squirrel._errors import StateError
from squirrel.iterstream.base import Composable, Run
from squirrel.iterstream.trace import _note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Literal

    from squirrel.stream import Stream

    Start = Callable[[int, Any, Run], Iterator[Any]]
    Stop = Literal["first", "all", "forever"]

__all__ = ["Mix", "concat", "interleave", "mix", "sample", "zip"]

_STATE = 1  # version of Mix.state_dict()


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

    def _begin(
        self, i: int, run: Run, epoch: int, skip: int = 0, start: Start | None = None
    ) -> tuple[Iterator[Any], Run]:
        """A pass of stream i, in a run of its own that ends with this one."""
        stream = self.streams[i]
        inner = Run(epoch + (stream._epoch or 0), run.shared)
        run.closers.append(inner.close)
        if skip:
            stream = stream.skip(skip)
        return (start or _items)(i, stream, inner), inner


def _items(i: int, stream: Any, run: Run) -> Iterator[Any]:
    from squirrel.stream import Stream

    items: Iterator[Any] = stream._start(run)
    if isinstance(stream, Stream):
        return items
    return _native.Guard(items, functools.partial(_note, stream, run))  # a callable's StopIteration is no end


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
        self._pass: _Pass | None = None
        self._resumed: dict[str, Any] | None = None
        self._mixed(tuple(iter(()) for _ in self.streams), _never)  # refuses bad weights now

    def _weights(self, weights: Sequence[float]) -> list[float]:
        weights = [float(weight) for weight in weights]
        if len(weights) != len(self.streams):
            raise ValueError(f"mix: {len(self.streams)} streams need as many weights, not {len(weights)}")
        return weights

    def _mixed(self, iterators: tuple[Iterator[Any], ...], again: Any) -> _native.Mixed:
        return _native.Mixed(
            iterators, self.weights, again, seed=self.seed, quota=self.quota, independent=self.independent
        )

    @property
    def _call(self) -> str:
        return f"{'sample' if self.independent else 'mix'}({len(self.streams)} streams)"

    # The item in hand is of one stream; the others are ahead of what they gave.
    _holds_items = True

    def _start(self, run: Run) -> Iterator[Any]:
        return self._start_pass(run, None)

    def _start_pass(self, run: Run, start: Start | None) -> Iterator[Any]:
        state, self._resumed = self._resumed, None
        if state is not None:
            run.epoch = state["epoch"]
        self._pass = _Pass(self, run, self._epoch_of(run), state, start)
        return self._pass.mixed

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
        checked, old = self._weights(weights), self.weights
        self.weights = checked
        try:
            self._mixed(tuple(iter(()) for _ in self.streams), _never)
        except ValueError:
            self.weights = old
            raise
        if self._pass is not None:
            self._pass.mixed.set_weights(checked)

    @property
    def epochs(self) -> list[int]:
        """Which pass each stream is in, from 0: how often it came to its end."""
        return builtins.list(self._pass.passes) if self._pass else [0] * len(self.streams)

    @property
    def drawn(self) -> list[int]:
        """Items that each stream gave, in all its passes."""
        return self._pass.drawn() if self._pass else [0] * len(self.streams)

    @property
    def last(self) -> int:
        """Number of the stream that gave the item in hand."""
        if self._pass is None:
            raise StateError("no item has been drawn yet")
        return self._pass.mixed.source

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Where the pass that began last is, between two items: a few numbers a stream, for JSON."""
        if self._pass is None:
            if self._resumed is not None:
                return dict(self._resumed)
            raise StateError("no pass of this mix has begun: iterate it, then save its state")
        drawn, taken, changes = self._pass.mixed.state()
        return {
            "version": _STATE,
            "streams": len(self.streams),
            "seed": self.seed,
            "quota": self.quota,
            "independent": self.independent,
            "weights": builtins.list(self.weights),
            "epoch": self._pass.epoch,
            "changes": changes,
            "drawn": builtins.list(drawn),
            "taken": builtins.list(taken),
            "before": builtins.list(self._pass.before),
            "epochs": builtins.list(self._pass.passes),
            "ended": self._pass.ended,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next pass goes on where the state was saved, with the very next item.

        Sources are passed over up to their positions: native streams that are not shuffled do that
        without reading.

        Raises:
            ValueError: the state is of another mix, and what differs.
        """
        _check_state(state, len(self.streams))
        for name, mine in (
            ("streams", len(self.streams)), ("seed", self.seed), ("quota", self.quota),
            ("independent", self.independent),
        ):
            if state.get(name) != mine:
                was = reprlib.repr(state.get(name))
                raise ValueError(f"the state is of a mix with {name}={was}, this one has {mine!r}")
        old, self.weights = self.weights, self._weights(state["weights"])
        try:
            probe = self._mixed(tuple(iter(()) for _ in self.streams), _never)
            probe.resume(tuple(state["drawn"]), tuple(state["taken"]), state["changes"], bool(state["ended"]))
        except (ValueError, TypeError, OverflowError):
            self.weights = old
            raise
        self._resumed = dict(state)
        self._pass = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None}


def _check_state(state: Any, streams: int) -> None:
    """Refuses what no mix of so many streams can have given."""
    if not isinstance(state, dict):
        raise ValueError(f"a mix's state is a dict, not {type(state).__name__}: give what state_dict() gave")
    if state.get("version") != _STATE:
        version = reprlib.repr(state.get("version"))
        raise ValueError(f"a mix's state of version {version}: this release reads {_STATE}")
    if state.get("streams") != streams:
        return  # another mix: that is what there is to say
    for name in ("drawn", "taken", "before", "epochs", "weights"):
        values = state.get(name)
        if not isinstance(values, (builtins.list, tuple)) or len(values) != streams:
            raise ValueError(f"the mix's state is damaged: {name} are not {streams} numbers")
        whole = name != "weights"
        for value in values:
            if not _is_count(value) and (whole or not isinstance(value, float)):
                raise ValueError(f"the mix's state is damaged: {reprlib.repr(value)} in {name}")
    for name in ("epoch", "changes"):
        if not _is_count(state.get(name)):
            raise ValueError(f"the mix's state is damaged: its {name} is {reprlib.repr(state.get(name))}")
    if not isinstance(state.get("ended"), bool):
        raise ValueError("the mix's state is damaged: it does not say whether the mix had ended")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


class _Pass:
    """A pass of a mix: its native iterator, and which pass each stream is in."""

    def __init__(
        self, of: Mix, run: Run, epoch: int, state: dict[str, Any] | None, start: Start | None
    ) -> None:
        self.of = of
        self.run = run
        self.start = start
        self.closers: list[Any] = [None] * len(of.streams)
        self.ended = bool(state and state["ended"])
        self.epoch = epoch
        count = len(of.streams)
        self.passes = builtins.list(state["epochs"]) if state else [0] * count
        self.before = builtins.list(state["before"]) if state else [0] * count  # items of former passes
        skips = state["taken"] if state else [0] * count
        self.mixed = of._mixed(tuple(self.begin(i, skips[i]) for i in range(count)), self.again)
        if state:
            self.mixed.resume(tuple(state["drawn"]), tuple(skips), state["changes"], self.ended)

    def begin(self, i: int, skip: int = 0) -> Iterator[Any]:
        former = self.closers[i]
        if former is not None:  # of the pass that ended
            self.run.closers.remove(former)
            former()
        epoch = (self.epoch << 32) + self.passes[i]
        items, inner = self.of._begin(i, self.run, epoch, skip, self.start)
        self.closers[i] = self.run.closers[-1]
        return items

    def drawn(self) -> list[int]:
        _, taken, _ = self.mixed.state()
        return [past + now for past, now in builtins.zip(self.before, taken)]

    def again(self, i: int, items: int) -> Iterator[Any] | None:
        """Stream i is at its end: its next pass, or None when that ends the mix."""
        mix = self.of
        if mix.stop == "first":
            self.ended = True
            return None
        if not items:
            raise ValueError(
                f"stream {i} of the mix ({mix.streams[i]!r}) gave nothing in its pass {self.passes[i]}: it is "
                "empty, or an iterator, which can be passed through once; give a list, a stream or a callable "
                "that makes an iterator, or leave it out"
            )
        self.passes[i] += 1
        wanted = (n for n, weight in builtins.zip(self.passes, mix.weights) if weight > 0)
        if mix.stop == "all" and all(wanted):
            self.ended = True
            return None
        self.before[i] += items
        return self.begin(i)


def _never(i: int, items: int) -> None:
    return None


class _Concat(_Several):
    @property
    def _call(self) -> str:
        return f"concat({len(self.streams)} streams)"

    def _start(self, run: Run) -> Iterator[Any]:
        epoch = self._epoch_of(run)
        return itertools.chain.from_iterable(self._begin(i, run, epoch)[0] for i in range(len(self.streams)))

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams)


class _Interleave(_Several):
    _holds_items = True

    def __init__(self, streams: Sequence[Iterable[Any]], block: int) -> None:
        super().__init__(streams)
        if block < 1:
            raise ValueError(f"interleave: a block has at least 1 item, not {block}")
        self.block = block

    @property
    def _call(self) -> str:
        return f"interleave({len(self.streams)} streams)"

    def _start(self, run: Run) -> Iterator[Any]:
        epoch = self._epoch_of(run)
        return self._turns([self._begin(i, run, epoch)[0] for i in range(len(self.streams))])

    def _turns(self, running: list[Iterator[Any]]) -> Iterator[Any]:
        while running:
            left = []
            for items in running:
                count = 0
                for count, item in enumerate(itertools.islice(items, self.block), 1):
                    yield item
                if count == self.block:
                    left.append(items)
            running = left

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams)


class _Zip(_Several):
    def __init__(self, streams: Sequence[Iterable[Any]], strict: bool) -> None:
        super().__init__(streams)
        self.strict = strict

    @property
    def _call(self) -> str:
        return f"zip({len(self.streams)} streams)"

    def _start(self, run: Run) -> Iterator[Any]:
        epoch = self._epoch_of(run)
        parts = (self._begin(i, run, epoch)[0] for i in range(len(self.streams)))
        return builtins.zip(*parts, strict=self.strict)

    def __len__(self) -> int:
        return min(len(stream) for stream in self.streams)
