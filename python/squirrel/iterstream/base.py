"""Composable: a stream as a chain of stages, each over the one before it.

A stage keeps its source and makes an iterator of it when asked; nothing runs before. Stages use
the built-in iterators (map, filter, itertools), so that an item costs what it costs there, and
native ones where builtins have no equal (batches, shuffle, monitor, async windows). One native
Guard stands around the whole: it lets items pass at the cost of a call and, when an exception
comes through, notes which stage and which sample it was (see squirrel.iterstream.trace).
"""

from __future__ import annotations

import functools
import math

from squirrel import _native
from squirrel._topology import topology
from squirrel.iterstream.metrics import MetricsConf
from squirrel.iterstream.trace import callable_name, note_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor
    from typing import Any, TypeVar

    from squirrel.iterstream.on_error import OnError

    C = TypeVar("C", bound="Composable")
    Policy = str | Callable[[Exception, Any], Any] | OnError

__all__ = ["AsyncContent", "Composable", "Run", "callable_name", "note_failure"]

_MOST_HELD = 2**32 - 1  # items of a shuffle's buffer

class Run:
    """One pass through a stream: its epoch, the native iterator below it, and what must be closed.

    Attributes:
        epoch: which epoch this pass is; None: no stage so far has set one.
        following: the epoch of the pass after this one, whose reads may begin before; False: there
            is none; None: nobody knows.
        native: the native iterator at the bottom, where there is one.
        root: what stands at the bottom and has a state: that iterator, or a pass of several streams.
        shared: what all workers of a DataLoader have in common, and nothing else: set by a split,
            and used by what is shuffled without a seed in front of it.
        unseeded: how many stages took a seed from `shared`.
    """

    __slots__ = ("buffer", "closers", "epoch", "following", "native", "root", "shared", "states", "unseeded")

    def __init__(self, epoch: int | None = None, shared: tuple[int, ...] | None = None) -> None:
        self.epoch = epoch
        self.following: int | None = None
        self.native: _native.Samples | _native.Batches | None = None
        self.root: Any = None
        self.closers: list[Callable[[], object]] = []
        self.buffer: Any = None  # a shuffle's, as squirrel.iterstream.resume keeps it
        self.states: Any = None  # where the native iterator goes on; it takes them away
        self.shared = shared
        self.unseeded = 0

    def close(self) -> None:
        """Closes the latest first."""
        while self.closers:
            self.closers.pop()()

    def place(self) -> tuple[str, int | None] | None:
        """Shard and sample that came last out of the native iterator."""
        return self.native.place() if self.native is not None else None

    def shared_seed(self) -> str | None:
        """A seed that all workers draw alike, another one for each stage; None outside of splits."""
        if self.shared is None:
            return None
        self.unseeded += 1
        return repr((self.shared, self.epoch, self.unseeded))


class Composable:
    """A stream: iterable again and again, with one method for each kind of stage.

    Threads may share one iterator: native stages, batched(), batch(), shuffle(), monitor(),
    async_map() and parallel_map() serve them one after another. Other Python stages rely on
    Python's iterators, of which generators (those of sliding() and of the user) refuse a second
    thread: put batched() behind them, or a lock around next().

    Subclasses define ``__iter__`` over ``self.source`` (see :meth:`compose`), or nothing at all
    when they only bring data. Streams pickle and deep-copy when their callables do.
    """

    _epoch: int | None = None
    _epochs: int | None = None
    _saved: Any = None
    # Whether a state begins here: what lies below is in it.
    _is_root = False
    # Whether items are kept back, so that the last one read isn't the one in hand.
    _holds_items = False
    # Whether it tells the run which native iterator its item is from, whatever lies below.
    _sets_place = False
    # Whether _functions() are called with items, so that a StopIteration of theirs is a mistake.
    _calls_user = False

    def __init__(self, source: Iterable[Any] | Callable[..., Any] | None = None) -> None:
        self.source: Any = source

    def __getattr__(self, name: str) -> Any:
        if name in ("shuffle_all", "distribute", "prefetch"):
            raise AttributeError(
                f"{name}() works on native samples: put it in front of the first Python callable"
                + ("; shuffle(size) works here" if name == "shuffle_all" else "")
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __bool__(self) -> bool:
        return True

    # --- running ---

    @property
    def _call(self) -> str:
        """How the stage shows in messages."""
        return type(self).__name__

    def _sources(self) -> list[Any]:
        """What this stream takes its items from."""
        return [self.__dict__.get("source")]

    def _functions(self) -> list[Any]:
        """The callables whose frames mean that this stage is at work."""
        return [type(self).__iter__]

    def _unseeded(self) -> str | None:
        """Whose order differs, for a split: "pass" when each pass draws another one, "process" when
        each process does, "rank" when copies of this one keep to it, None when it is the same
        everywhere."""
        return None

    def _start(self, run: Run) -> Iterator[Any]:
        """The iterator of one pass. Subclasses outside of this package define __iter__."""
        if type(self).__iter__ is Composable.__iter__:
            raise NotImplementedError(f"{type(self).__name__} defines no __iter__")
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        return self.iterator()

    def iterator(self, *, state: Any = None) -> _native.Guard:
        """One pass with an explicit end: ``with stream.iterator() as it: ...`` or ``close()``.

        Over native streams with map, filter, flat_map and batches it has ``state_dict()``, a small
        dict that JSON takes, and ``load_state_dict``; over others state_dict() says why not.

        Args:
            state: where to go on: what state_dict() gave. With other numbers of ranks or workers,
                give all of them, in a list or any nesting.
        """
        from squirrel.iterstream.resume import begin as begin_pass

        run = Run(self._epoch)
        run.following = self._following()
        return begin_pass(self, run, self._saved if state is None else state)

    def load_state_dict(self, saved: Any) -> None:
        """Passes of the saved epoch go on where the state stands, until set_epoch() names another.

        Args:
            saved: one state, or those of all ranks and workers, in any nesting: a checkpoint of
                torchdata's StatefulDataLoader will do. For a loader of another number of workers.
        """
        from squirrel.iterstream.resume import epoch_of

        self._epoch = epoch_of(saved)
        self._saved = saved

    def set_epoch(self: C, epoch: int, of: int | None = None) -> C:
        """Which epoch the next pass is: what is shuffled with a seed has another order in each.

        Returns the stream itself. Of stages that have an epoch the last one counts. Behind an epoch
        that was set the next one is expected: its first reads of far data begin while this one is
        consumed.

        Args:
            epoch: from 0 on.
            of: how many epochs there will be: nothing is read ahead of the one that does not come.
        """
        if of is not None and not (hasattr(of, "__index__") and of.__index__() > 0):
            raise ValueError(f"set_epoch(of={of!r}): must be an int from 1 on")
        if not hasattr(epoch, "__index__") or not 0 <= epoch.__index__() < 1 << 64:
            raise ValueError(f"set_epoch({epoch!r}): must be an int from 0 on")
        if epoch.__index__() != self._epoch:
            self._saved = None
        self._epoch = epoch.__index__()
        self._epochs = None if of is None else of.__index__()
        return self

    def _following(self) -> int | None:
        """The epoch after the one that was set, as Run has it. A DataLoader's worker may end with its own."""
        if self._epoch is None or "worker" in topology():
            return None
        following = self._epoch + 1
        return False if following == self._epochs or following == 1 << 64 else following

    def _epoch_of(self, run: Run) -> int:
        """The epoch of this pass: that of the last stage that has one."""
        if run.epoch is None:
            run.epoch = self._epoch
            run.following = self._following()
        return run.epoch or 0

    def collect(self) -> list[Any]:
        """All items as a list."""
        return list(self)

    def join(self) -> None:
        """Runs the stream to its end and forgets the items."""
        from collections import deque

        deque(self, maxlen=0)

    # --- building ---

    def source_(self: C, source: Iterable[Any] | Callable[..., Any]) -> C:
        """Sets the source and returns the stream itself."""
        self.source = source
        return self

    def compose(self, constructor: Callable[..., C], *args: Any, **kw: Any) -> C:
        """A stage of the user's: ``constructor(*args, **kw)`` with this stream as its source.

        Raises:
            ValueError: a source is given, or the class's own ``__init__`` asks for one.
        """
        if "source" in kw:
            raise ValueError("the source is this stream: don't pass one")
        if isinstance(constructor, type) and "__init__" in vars(constructor):
            import inspect

            if "source" in inspect.signature(constructor).parameters:
                raise ValueError(
                    f"{constructor.__name__}.__init__ has a parameter `source`: leave it out, "
                    "compose() sets the source"
                )
        return constructor(*args, **kw).source_(self)

    def to(self, f: Callable[..., Iterable[Any]], *args: Any, **kw: Any) -> Composable:
        """Pipes the stream through ``f(items, *args, **kw)``, an iterable of its own.

        `f` gets an iterator and is called again for each pass.
        """
        if "source" in kw:
            raise ValueError("the source is this stream: don't pass one")
        if not callable(f):
            raise TypeError(f"to() needs a callable, not {f!r}")
        return stages.Applied(self, f, args, kw)

    def map(self, callback: Callable[..., Any], *, on_error: Policy = "raise", **kw: Any) -> Composable:
        """Each item becomes ``callback(item, **kw)``.

        Args:
            callback: of one item.
            on_error: what follows when it raises: "raise", "skip", "retry", "substitute", a
                callable ``f(error, item)``, or an :class:`~squirrel.iterstream.OnError` with budgets.
            **kw: arguments for `callback`.
        """
        return stages.Map(self, callback, kw, on_error=on_error)

    def augment(
        self, callback: Callable[..., Any], seed: int, *, on_error: Policy = "raise", **kw: Any
    ) -> Composable:
        """Each item becomes ``callback(item, rng, **kw)``, `rng` being a ``numpy.random.Generator`` of
        its own.

        What it draws follows from the seed, the epoch, the sample's shard (the name of the file) and
        number there, and which of the results of that sample the item is: not from ranks, workers,
        threads, the order, or where a run was stopped.

        Args:
            callback: of one item and its random numbers.
            seed: from 0 on.
            on_error: as in :meth:`map`.
            **kw: arguments for `callback`.

        Raises:
            TypeError: (when iterated) it isn't known which sample an item is of: behind stages that
                hold items, over sources that are not native, or not counted.
        """
        return stages.Augment(self, callback, seed, kw, on_error)

    def filter(self, predicate: Callable[[Any], Any], *, on_error: Policy = "raise") -> Composable:
        """Keeps the items for which ``predicate(item)`` is true; `on_error` as in :meth:`map`."""
        return stages.Filter(self, predicate, on_error)

    def flat_map(
        self, callback: Callable[..., Iterable[Any]], *, on_error: Policy = "raise", **kw: Any
    ) -> Composable:
        """Each item becomes all items of ``callback(item, **kw)``; `on_error` as in :meth:`map`."""
        return stages.Flatten(stages.Map(self, callback, kw, "flat_map", on_error))

    def flatten(self) -> Composable:
        """Items that are iterables become their items."""
        return stages.Flatten(self)

    def async_map(
        self,
        callback: Callable[..., Any],
        buffer: int = 100,
        max_workers: int | None = None,
        executor: Executor | None = None,
        *,
        on_error: Policy = "raise",
        **kw: Any,
    ) -> Composable:
        """Each item becomes ``callback(item, **kw)``, several at a time, in the order of the items.

        Args:
            callback: of one item.
            buffer: items under way or done ahead of the consumer, at least 1.
            max_workers: threads of the pool of its own; by default ``min(32, cores + 4)``.
            executor: any ``concurrent.futures.Executor``, or a ``dask.distributed.Client``, instead
                of an own pool: it is shared, and left open at the end.
            on_error: as in :meth:`map`.
            **kw: arguments for `callback`.
        """
        from squirrel.iterstream.parallel import AsyncMap

        return AsyncMap(self, callback, buffer, max_workers, executor, kw, on_error)

    def parallel_map(
        self,
        fn: Callable[..., Any],
        workers: int | None = None,
        pool: str | Executor = "threads",
        ordered: bool = True,
        lookahead: int | None = None,
        *,
        on_error: Policy = "raise",
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
            on_error: as in :meth:`map`.
            **kw: arguments for ``fn``.
        """
        from squirrel.iterstream.parallel import ParallelMap

        return ParallelMap(self, fn, workers, pool, ordered, lookahead, kw, on_error)

    def dask_map(self, callback: Callable[..., Any], **kw: Any) -> Composable:
        """Each item becomes ``dask.delayed(callback)(item, **kw)``, to be computed later."""
        from squirrel.iterstream.iterators import dask_delayed_

        return self.to(dask_delayed_, functools.partial(callback, **kw))

    def materialize_dask(self, buffer: int = 10, max_workers: int | None = None) -> Composable:
        """Computes ``dask.delayed`` items in threads, in order.

        Args:
            buffer: items under way or done ahead of the consumer, at least 1.
            max_workers: threads; by default ``min(32, cores + 4)``.
        """
        from squirrel.iterstream.parallel import dask_compute

        return self.async_map(dask_compute, buffer, max_workers)

    def numba_map(self, callback: Callable[[Any], Any]) -> Composable:
        """Each item becomes ``numba.jit(callback)(item)``.

        Items of types that numba doesn't know go through `callback` as it is. Compiling takes
        about a second for each type of item: it pays for callbacks with loops over numbers.
        """
        return stages.NumbaMap(self, callback, {}, "numba_map")

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = None,
        drop_last_if_not_full: bool = True,
    ) -> Composable:
        """Lists of `batchsize` items each, or what ``collation_fn(list)`` makes of them."""
        return stages.Batched(self, batchsize, collation_fn, drop_last_if_not_full)

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> Composable:
        """Dicts of items become one dict of columns; see :meth:`squirrel.Stream.batch`.

        Behind a Python callable the columns are made in Python, with `ragged` ("offsets", "pad",
        "error") and `pad_value` as options.
        """
        from squirrel.collate import Collate

        return stages.Batched(self, batch_size, Collate(**options), drop_remainder, "batch")

    def sliding(
        self,
        window_size: int,
        *,
        deepcopy: bool,
        stride: int = 1,
        drop_last_if_not_full: bool = True,
        min_window_size: int = 1,
        fill_nan_on_partial: bool = False,
    ) -> Composable:
        """Lists of items in a window that slides over the stream.

        Args:
            window_size: items of a window, more than `min_window_size`.
            deepcopy: whether each window holds copies, which later stages may change freely.
                Otherwise neighbours share their items.
            stride: how far the window moves, 1 to `window_size`.
            drop_last_if_not_full: leaves out the windows that reach beyond the end.
            min_window_size: the smallest window at the end, where they aren't left out. A stream
                that is shorter than a window makes one window in any case.
            fill_nan_on_partial: windows at the end are filled up with None instead.
        """
        return stages.Sliding(
            self, window_size, deepcopy, stride, drop_last_if_not_full, min_window_size, fill_nan_on_partial
        )

    def select(self, *names: str) -> Composable:
        """Keeps only these fields of each sample."""
        return stages.Map(self, functools.partial(stages.select, names=_names(names)), {}, "select")

    def drop(self, *names: str) -> Composable:
        """Removes these fields of each sample."""
        return stages.Map(self, functools.partial(stages.drop, names=_names(names)), {}, "drop")

    def rename(self, names: dict[str, str] | None = None, **more: str) -> Composable:
        """Gives fields new names: ``rename({"old": "new"})`` or ``rename(old="new")``."""
        pairs = {**(names or {}), **more}
        return stages.Map(self, functools.partial(stages.rename, names=pairs), {}, "rename")

    def take(self, n: int | None) -> Composable:
        """The first n items; None: all."""
        return self if n is None else stages.Slice(self, 0, _count(n, "take"))

    def skip(self, n: int) -> Composable:
        """All but the first n items."""
        return stages.Slice(self, _count(n, "skip"), None)

    def shuffle(
        self,
        size: int | None = 1000,
        *,
        initial: int = 100,
        rng: random.Random | None = None,
        seed: Any = None,
        **kw: Any,
    ) -> Composable:
        """Random order within a buffer of `size` items.

        Args:
            size: items held, also as a float (``1e4``, ``inf``); below 2 nothing is shuffled.
            initial: items to have before the first comes out; at most `size`.
            rng: the random numbers to use, from the state they have; the module ``random`` or an
                instance of ``random.Random``.
            seed: of ``random.Random`` for each pass: the same order each time. Each epoch of
                :meth:`loop` and :meth:`set_epoch` but the first has an order of its own.
        """
        if kw:
            raise TypeError(f"shuffle() takes size, initial, rng and seed, not {', '.join(kw)}")
        size = 1000 if size is None else size
        return self if size < 2 else stages.Shuffle(self, _items(size), _items(initial), rng, seed)

    def loop(self, n: int | None = None) -> Composable:
        """The stream n times over, each time as another epoch; None: without end.

        What is shuffled with a seed has another order in each epoch, the same in each run. Epoch e
        of the whole is the epochs e * n to e * n + n - 1 of the stream before it. Callables are
        copied for each pass, where they can be, so that what they count begins anew.

        Raises:
            TypeError: (when iterated) the source is a generator, which can be passed through once.
        """
        return stages.Loop(self, n)

    def zip_index(self, pad_length: int | None = None) -> Composable:
        """(index, item) pairs, from 0 in each pass.

        Args:
            pad_length: makes the index a str with leading zeros, of at least this length.
        """
        return stages.ZipIndex(self, pad_length)

    def tqdm(self, **kw: Any) -> Composable:
        """Shows a progress bar by the package tqdm."""
        from squirrel.iterstream.iterators import tqdm_

        return stages.Applied(self, tqdm_, (), kw)

    def monitor(
        self,
        callback: Callable[[dict[str, float | int]], Any],
        prefix: str | None = None,
        metrics_conf: MetricsConf | type[MetricsConf] = MetricsConf,
        window_size: int = 5,
        **kw: Any,
    ) -> Composable:
        """Passes items on and tells a callback their rates over a rolling window.

        Args: those of :func:`squirrel.iterstream.iterators.monitor_`; ``**kw`` goes to `callback`.
        """
        return stages.Monitor(self, callback, prefix, metrics_conf, window_size, kw)

    # --- PyTorch ---

    def split_by_rank_pytorch(self, torch_dist_group: str | None = None) -> Composable:
        """Gives each rank of ``torch.distributed`` its share of the items.

        Args:
            torch_dist_group: the process group; by default the world.
        """
        from squirrel.iterstream.torch_composables import SplitByRank

        return self.compose(SplitByRank, torch_dist_group)

    def split_by_worker_pytorch(self) -> Composable:
        """Gives each worker of a DataLoader its share of the items."""
        from squirrel.iterstream.torch_composables import SplitByWorker

        return self.compose(SplitByWorker)

    def to_torch_iterable(
        self, enforce_rank_check: bool = True, enforce_worker_check: bool = True
    ) -> Composable:
        """The stream as a ``torch.utils.data.IterableDataset``.

        Args:
            enforce_rank_check: refuses to run in several ranks without split_by_rank_pytorch().
            enforce_worker_check: refuses to run in several workers without split_by_worker_pytorch().
        """
        from squirrel.iterstream.torch_composables import TorchIterable

        return self.compose(TorchIterable, enforce_rank_check, enforce_worker_check)


def begin(items: Iterable[Any], epoch: int) -> Iterator[Any]:
    """One of several streams that a stage draws from, in a pass of its own."""
    return items._start(Run(epoch or None)) if isinstance(items, Composable) else iter(items)


class AsyncContent:
    """The result of ``func(item)`` in an executor, to be waited for.

    Args:
        item: what `func` is called with.
        func: the callable.
        executor: a ``concurrent.futures.Executor`` or anything with its method submit.
    """

    def __init__(self, item: str, func: Callable[..., Any], executor: Executor) -> None:
        self.stack = 1  # squirrel-core has it; nothing here looks at it
        self.future = executor.submit(func, item)

    def value(self, timeout: int | None = None) -> Any:
        """The result, or the exception of `func`; waits for `timeout` seconds at most."""
        return self.future.result(timeout)


def _names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """select("a", "b") and select(["a", "b"]) are the same."""
    if len(names) == 1 and not isinstance(names[0], str):
        names = tuple(names[0])
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a field's name must be a str, not {name!r}")
    return names


def _count(n: int, verb: str) -> int:
    if not hasattr(n, "__index__"):
        raise TypeError(f"{verb}({n!r}): must be an int")
    n = n.__index__()
    if n < 0:
        raise ValueError(f"{verb}({n}): a count can't be negative")
    return n


def _items(size: float) -> int:
    """A buffer of 10.5 items is full with 11."""
    if not isinstance(size, float):
        return size
    return math.ceil(min(size, _MOST_HELD))


from squirrel.iterstream import stages  # noqa: E402  (the stages are Composables themselves)
