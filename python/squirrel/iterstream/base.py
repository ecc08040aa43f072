"""Composable: a stream as a chain of stages, each over the one before it.

A stage keeps its source and makes an iterator of it when asked; nothing runs before. Stages use
the built-in iterators (map, filter, itertools), so that an item costs what it costs there. One
native Guard stands around each stage that calls the user's code: it lets items pass at the cost
of a call and, when an exception comes through, notes which stage and which sample it was.
"""

from __future__ import annotations

import functools
import itertools

from squirrel import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Iterable, Iterator
    from concurrent.futures import Executor
    from typing import Any, TypeVar

    from squirrel.iterstream.source import IterableSource

    C = TypeVar("C", bound="Composable")

__all__ = ["Composable", "Run"]


class Run:
    """One pass through a stream: its epoch, the native iterator below it, and what must be closed."""

    __slots__ = ("epoch", "native", "closers")

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch  # None: no stage so far has set one
        self.native: _native.Samples | _native.Batches | None = None
        self.closers: list[Callable[[], object]] = []

    def close(self) -> None:
        """Closes the latest first."""
        while self.closers:
            self.closers.pop()()

    def place(self) -> tuple[str, int | None] | None:
        """Shard and sample that came last out of the native iterator."""
        return self.native.place() if self.native is not None else None


class Serial:
    """A generator that threads may share: one of them runs it at a time, the others wait.

    It costs a call, so it stands only where an item is a batch, or went through an executor.
    """

    __slots__ = ("_items", "_lock")

    def __init__(self, items: Generator[Any, None, None]) -> None:
        import threading

        self._items = items
        self._lock = threading.RLock()

    def __iter__(self) -> Serial:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return next(self._items)

    def close(self) -> None:
        with self._lock:
            self._items.close()


def callable_name(function: object) -> str:
    """A short name for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


def note_failure(error: BaseException, stage: str, place: tuple[str, int | None] | None) -> None:
    """Adds where to an exception, once: the innermost stage knows best."""
    if not isinstance(error, Exception) or hasattr(error, "__squirrel_stage__"):
        return
    text = f"in stage {stage}"
    if place is not None:
        text += f", at {'a sample' if place[1] is None else f'sample {place[1]}'} of shard {place[0]}"
    try:
        error.__squirrel_stage__ = stage  # type: ignore[attr-defined]
        error.add_note(text)
    except (AttributeError, TypeError):  # an exception class that takes no attributes
        pass


class Composable:
    """A stream: iterable again and again, with one method for each kind of stage.

    Threads may share one iterator: native stages, batched(), batch() and parallel_map() serve them
    one after another. Other Python stages rely on Python's iterators, of which generators (those
    of shuffle() and of the user) refuse a second thread: put batched() behind them, or a lock
    around next().

    Subclasses define ``__iter__`` over ``self.source`` (see :meth:`compose`), or nothing at all
    when they only bring data. Streams pickle and deep-copy when their callables do.
    """

    _epoch: int | None = None

    def __init__(self, source: Iterable[Any] | Callable[..., Any] | None = None) -> None:
        self.source: Any = source

    def __getattr__(self, name: str) -> Any:
        if name in ("shuffle_all", "prefetch"):
            raise AttributeError(
                f"{name}() works on native samples: put it in front of the first Python callable"
                + ("; shuffle(size) works here" if name == "shuffle_all" else "")
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- running ---

    def _start(self, run: Run) -> Iterator[Any]:
        """The iterator of one pass. Subclasses outside of this package define __iter__."""
        if type(self).__iter__ is Composable.__iter__:
            raise NotImplementedError(f"{type(self).__name__} defines no __iter__")
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        return self._start(Run(self._epoch))

    def iterator(self) -> _native.Guard:
        """One pass with an explicit end: ``with stream.iterator() as it: ...`` or ``close()``."""
        run = Run(self._epoch)
        return _native.Guard(self._start(run), _ignore, run.close)

    def set_epoch(self: C, epoch: int) -> C:
        """Which epoch the next pass is: ``shuffle_all`` gives each another order.

        Returns the stream itself. Of stages that have an epoch the last one counts.
        """
        if not hasattr(epoch, "__index__") or not 0 <= epoch.__index__() < 1 << 64:
            raise ValueError(f"set_epoch({epoch!r}): must be an int from 0 on")
        self._epoch = epoch.__index__()
        return self

    def _epoch_of(self, run: Run) -> int:
        """The epoch of this pass: that of the last stage that has one."""
        if run.epoch is None:
            run.epoch = self._epoch
        return run.epoch or 0

    def collect(self) -> list[Any]:
        """All items as a list."""
        return list(self)

    def join(self) -> None:
        """Runs the stream to its end and forgets the items."""
        for _ in self:
            pass

    # --- building ---

    def source_(self: C, source: Iterable[Any] | Callable[..., Any]) -> C:
        """Sets the source and returns the stream itself."""
        self.source = source
        return self

    def compose(self, constructor: Callable[..., C], *args: Any, **kw: Any) -> C:
        """A stage of the user's: ``constructor(*args, **kw)`` with this stream as its source."""
        if "source" in kw:
            raise ValueError("the source is this stream: don't pass one")
        return constructor(*args, **kw).source_(self)

    def to(self, f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Composable:
        """Pipes the stream through ``f(stream, *args, **kw)``, an iterable of its own."""
        return _Applied(self, f, args, kw)

    def map(self, callback: Callable[..., Any], **kw: Any) -> Composable:
        """Each item becomes ``callback(item, **kw)``."""
        return _Map(self, callback, kw)

    def filter(self, predicate: Callable[[Any], Any]) -> Composable:
        """Keeps the items for which ``predicate(item)`` is true."""
        return _Filter(self, predicate)

    def flat_map(self, callback: Callable[..., Iterable[Any]], **kw: Any) -> Composable:
        """Each item becomes all items of ``callback(item, **kw)``."""
        return _Flatten(_Map(self, callback, kw, "flat_map"))

    def flatten(self) -> Composable:
        """Items that are iterables become their items."""
        return _Flatten(self)

    def parallel_map(
        self,
        fn: Callable[..., Any],
        workers: int | None = None,
        pool: str | Executor = "threads",
        ordered: bool = True,
        lookahead: int | None = None,
        **kw: Any,
    ) -> Composable:
        """Each item becomes ``fn(item, **kw)``, several at a time.

        Args:
            fn: for processes it must be importable by name (no lambda, no local function).
            workers: how many at a time; by default the number of usable cores.
            pool: "threads" for work that waits (I/O) or releases the GIL, "processes" for
                Python code that computes, or an executor, which is left open.
            ordered: whether results come in the order of the items; otherwise as they are done.
            lookahead: how many items may be under way or done ahead of the consumer, at most;
                by default twice the workers.
            **kw: arguments for ``fn``.
        """
        from squirrel.iterstream.parallel import ParallelMap

        return ParallelMap(self, fn, workers, pool, ordered, lookahead, kw)

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = None,
        drop_last_if_not_full: bool = True,
    ) -> Composable:
        """Lists of `batchsize` items each, or what ``collation_fn(list)`` makes of them."""
        return _Batched(self, batchsize, collation_fn, drop_last_if_not_full)

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> Composable:
        """Dicts of items become one dict of columns; see :meth:`squirrel.Stream.batch`.

        Behind a Python callable the columns are made in Python, with `ragged` ("offsets", "pad",
        "error") and `pad_value` as options.
        """
        from squirrel.collate import Collate

        return _Batched(self, batch_size, Collate(**options), drop_remainder, "batch")

    def select(self, *names: str) -> Composable:
        """Keeps only these fields of each sample."""
        return _Map(self, functools.partial(_select, names=_names(names)), {}, "select")

    def drop(self, *names: str) -> Composable:
        """Removes these fields of each sample."""
        return _Map(self, functools.partial(_drop, names=_names(names)), {}, "drop")

    def rename(self, names: dict[str, str] | None = None, **more: str) -> Composable:
        """Gives fields new names: ``rename({"old": "new"})`` or ``rename(old="new")``."""
        return _Map(self, functools.partial(_rename, names={**(names or {}), **more}), {}, "rename")

    def take(self, n: int | None) -> Composable:
        """The first n items; None: all."""
        return self if n is None else _Slice(self, 0, _count(n, "take"))

    def skip(self, n: int) -> Composable:
        """All but the first n items."""
        return _Slice(self, _count(n, "skip"), None)

    def shuffle(
        self,
        size: int | None = 1000,
        *,
        initial: int = 100,
        rng: random.Random | None = None,
        seed: Any = None,
    ) -> Composable:
        """Random order within a buffer of `size` items.

        Args:
            size: items held; below 2 nothing is shuffled.
            initial: items to have before the first comes out; at most `size`.
            rng: the random numbers to use.
            seed: of a ``random.Random`` of its own for each pass: the same order each time.
        """
        size = 1000 if size is None else size
        return self if size < 2 else _Shuffle(self, size, initial, rng, seed)

    def loop(self, n: int | None = None) -> Composable:
        """The stream n times over, each time as another epoch; None: without end.

        Epoch e of the whole is the epochs e * n to e * n + n - 1 of the stream before it.
        """
        return _Loop(self, n)

    def tqdm(self, **kw: Any) -> Composable:
        """Shows a progress bar by the package tqdm."""
        return _Applied(self, _tqdm, (), kw)


# --- stages ---


class _Stage(Composable):
    """A stage over `self.source`; `call` is how it shows in the plan."""

    call = "stage"

    def __repr__(self) -> str:
        return f"{self.source!r} -> {self.call}"

    def _upstream(self, run: Run) -> Iterator[Any]:
        self._epoch_of(run)
        source = self.source
        if isinstance(source, Composable):
            return source._start(run)
        return iter(source() if callable(source) else source)

    def _guard(self, iterator: Iterator[Any], run: Run) -> Iterator[Any]:
        return _native.Guard(iterator, functools.partial(_note, self, run), run.close)


def _note(stage: _Stage, run: Run, error: BaseException) -> None:
    note_failure(error, stage.call, run.place())


def _ignore(error: BaseException) -> None:
    pass


class _Map(_Stage):
    def __init__(
        self, source: Any, callback: Callable[..., Any], kw: dict[str, Any], verb: str = "map"
    ) -> None:
        super().__init__(source)
        self.callback = callback
        self.kw = kw
        self.call = f"{verb}({callable_name(callback)})"

    def _start(self, run: Run) -> Iterator[Any]:
        function = functools.partial(self.callback, **self.kw) if self.kw else self.callback
        return self._guard(map(function, self._upstream(run)), run)

    def __len__(self) -> int:
        return len(self.source)

    def __bool__(self) -> bool:
        return True


class _Filter(_Stage):
    def __init__(self, source: Any, predicate: Callable[[Any], Any]) -> None:
        super().__init__(source)
        self.predicate = predicate
        if isinstance(predicate, str):
            raise TypeError(
                "a filter expression works on native samples: put it in front of the first "
                "Python callable, or give a callable here"
            )
        self.call = f"filter({callable_name(predicate)})"

    def _start(self, run: Run) -> Iterator[Any]:
        return self._guard(filter(self.predicate, self._upstream(run)), run)


class _Flatten(_Stage):
    call = "flatten()"

    def _start(self, run: Run) -> Iterator[Any]:
        return self._guard(itertools.chain.from_iterable(self._upstream(run)), run)


class _Applied(_Stage):
    def __init__(
        self, source: Any, f: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any]
    ) -> None:
        super().__init__(source)
        self.f = f
        self.args = args
        self.kw = kw
        self.call = f"to({callable_name(f)})"

    def _start(self, run: Run) -> Iterator[Any]:
        return self._guard(iter(self.f(self._upstream(run), *self.args, **self.kw)), run)


class _Slice(_Stage):
    def __init__(self, source: Any, start: int, count: int | None) -> None:
        super().__init__(source)
        self.first = start
        self.count = count
        self.call = f"take({count})" if count is not None else f"skip({start})"

    def _start(self, run: Run) -> Iterator[Any]:
        stop = None if self.count is None else self.first + self.count
        return itertools.islice(self._upstream(run), self.first, stop)

    def __len__(self) -> int:
        left = max(len(self.source) - self.first, 0)
        return left if self.count is None else min(left, self.count)

    def __bool__(self) -> bool:
        return True


class _Batched(_Stage):
    def __init__(
        self,
        source: Any,
        size: int,
        collate: Callable[[list[Any]], Any] | None,
        drop: bool,
        verb: str = "batched",
    ) -> None:
        super().__init__(source)
        if size < 1:
            raise ValueError(f"a batch has at least 1 item, not {size}")
        self.size = size
        self.collate: Any = collate
        self.drop_remainder = drop
        self.positions = verb == "batch"  # Collate names samples by where they are
        self.call = f"{verb}({size})"

    def _lists(self, items: Iterator[Any]) -> Generator[list[Any], None, None]:
        size = self.size
        while True:
            batch = list(itertools.islice(items, size))
            if len(batch) == size:
                yield batch
            else:
                if batch and not self.drop_remainder:
                    yield batch
                return

    def _start(self, run: Run) -> Iterator[Any]:
        lists = Serial(self._lists(self._upstream(run)))
        if self.collate is None:
            return lists
        if self.positions:
            return self._guard(map(self.collate, lists, itertools.count(0, self.size)), run)
        return self._guard(map(self.collate, lists), run)


class _Shuffle(_Stage):
    def __init__(
        self, source: Any, size: int, initial: int, rng: random.Random | None, seed: Any
    ) -> None:
        super().__init__(source)
        self.size = size
        self.initial = min(initial, size)
        self.rng = rng
        self.seed = seed
        self.call = f"shuffle({size})"

    def _start(self, run: Run) -> Iterator[Any]:
        import random

        rng = self.rng
        if rng is None:
            rng = random.Random(self.seed) if self.seed is not None else random.Random()
        return _shuffled(self._upstream(run), self.size, self.initial, rng)


def _shuffled(
    items: Iterator[Any], size: int, initial: int, rng: random.Random
) -> Iterator[Any]:
    """Fills by two and takes one until the buffer is full; then one for one."""
    held: list[Any] = []
    draw = rng.randint
    for item in items:
        held.append(item)
        if len(held) < size:
            held.extend(itertools.islice(items, 1))
        if len(held) >= initial:
            k = draw(0, len(held) - 1)
            chosen, held[k] = held[k], held[-1]
            held.pop()
            yield chosen
    while held:
        k = draw(0, len(held) - 1)
        chosen, held[k] = held[k], held[-1]
        held.pop()
        yield chosen


class _Loop(_Stage):
    def __init__(self, source: Any, n: int | None) -> None:
        super().__init__(source)
        if n is not None:
            _count(n, "loop")
        self.n = n
        self.call = f"loop({'' if n is None else n})"

    def _start(self, run: Run) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._passes(run))

    def _passes(self, run: Run) -> Iterator[Iterator[Any]]:
        """Each pass has a run and an epoch of its own; it ends before the next one begins."""
        first = self._epoch_of(run) * (self.n or 1)
        for epoch in itertools.count(first) if self.n is None else range(first, first + self.n):
            inner = Run(epoch)
            items = self._upstream(inner)
            run.native = inner.native
            run.closers.append(inner.close)
            yield items
            run.closers.remove(inner.close)
            inner.close()

    def __len__(self) -> int:
        if self.n is None:
            raise TypeError("loop() without a number has no end")
        return self.n * len(self.source)

    def __bool__(self) -> bool:
        return True


# --- what stages call ---


def _select(sample: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: sample[name] for name in names if name in sample}


def _drop(sample: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name not in names}


def _rename(sample: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    renamed = {names.get(name, name): value for name, value in sample.items()}
    if len(renamed) < len(sample):
        sources: dict[str, str] = {}
        for name in sample:
            first = sources.setdefault(out := names.get(name, name), name)
            if first != name:
                raise TypeError(f'two fields would be named "{out}": "{first}" and "{name}"; '
                                "rename() or drop() one of them")
    return renamed


def _names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """select("a", "b") and select(["a", "b"]) are the same."""
    if len(names) == 1 and not isinstance(names[0], str):
        names = tuple(names[0])
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a field's name must be a str, not {name!r}")
    return names


def _count(n: int, verb: str) -> int:
    n = n.__index__()
    if n < 0:
        raise ValueError(f"{verb}({n}): a count can't be negative")
    return n


def _tqdm(items: Iterator[Any], **kw: Any) -> Iterable[Any]:
    from tqdm import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return tqdm(items, **kw)  # type: ignore[no-any-return,unused-ignore]
