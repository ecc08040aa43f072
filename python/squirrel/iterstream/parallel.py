"""parallel_map and async_map: a callable over many items at a time, with bounded look-ahead.

Threads of our own with results in order are the native Window's (python/ext/iter_window.c): a
future an item would cost ten times as much. Processes, other executors and results as they come
go through futures.
"""

from __future__ import annotations

import functools
import os
import pickle
import weakref
from collections import deque

from squirrel import _native
from squirrel._errors import ArgumentError
from squirrel.iterstream.base import Run
from squirrel.iterstream.stages import CallStage
from squirrel.iterstream.trace import note_failure, placed, stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Executor, Future
    from typing import Any

    from squirrel.iterstream.base import Composable, Policy


def usable_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Serial:
    """A generator that threads may share: one of them runs it at a time, the others wait."""

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


class ParallelMap(CallStage):
    """See :meth:`Composable.parallel_map`."""

    _holds_items = True

    def __init__(
        self,
        source: Composable,
        fn: Callable[..., Any],
        workers: int | None,
        pool: str | Executor,
        ordered: bool,
        lookahead: int | None,
        kw: dict[str, Any],
        on_error: Policy = "raise",
        verb: str = "parallel_map",
    ) -> None:
        super().__init__(source, fn, kw, verb, on_error)
        if isinstance(pool, str) and pool not in ("threads", "processes"):
            raise ValueError(f'pool must be "threads", "processes" or an executor, not {pool!r}')
        if not isinstance(pool, str) and not callable(getattr(pool, "submit", None)):
            raise TypeError(
                f"{verb}: a {type(pool).__name__} is no executor, it has no method submit: give an executor of "
                "concurrent.futures or a dask.distributed.Client, or leave it out"
            )
        for name, value in (("workers", workers), ("lookahead", lookahead)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.workers = workers
        self.pool = pool
        self.ordered = ordered
        self.lookahead = lookahead

    def __len__(self) -> int:
        if self.on_error is not None:
            raise TypeError("how many items on_error leaves is not known before they are read")
        return len(self.source)

    def _executor(self, workers: int) -> tuple[Executor, bool]:
        """The executor and whether it is ours to end."""
        if not isinstance(self.pool, str):
            return self.pool, False
        if self.pool == "threads":
            from concurrent.futures import ThreadPoolExecutor

            return ThreadPoolExecutor(workers, thread_name_prefix="squirrel-map"), True
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        methods = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in methods else "spawn"
        context = multiprocessing.get_context(method)
        try:
            packed = pickle.dumps(self._function())
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ArgumentError(
                f"{self._call} can't be sent to another process ({error}): define the callable at "
                "the top of a module"
            ) from error
        pool = ProcessPoolExecutor(workers, context, initializer=_receive, initargs=(packed,))
        return pool, True

    def _function(self) -> Callable[[Any], Any]:
        function = super()._function()
        return function if self.on_error is None else self.on_error.attempt(function)

    def _start(self, run: Run) -> Iterator[Any]:
        results = self._windowed(run) if self.pool == "threads" and self.ordered else self._with_futures(run)
        return results if self.on_error is None else self._settler(self.on_error, run).settle(results)

    def _workers(self) -> int:
        return self.workers or usable_cores()

    def _window(self) -> int:
        return self.lookahead or 2 * self._workers()

    def _windowed(self, run: Run) -> Iterator[Any]:
        items = self._upstream(run)
        executor, _ = self._executor(self._workers())
        window = _native.Window(self._function(), self._window(), self._workers())
        window.start(functools.partial(executor.submit, window.work))
        run.closers.append(window.close)
        place = run.place if run.native is not None and placed(self) else None
        return _native.Ordered(items, window, place, functools.partial(_note_with_place, self))

    def _with_futures(self, run: Run) -> Iterator[Any]:
        results = self._results(run)
        # The generator holds the run: a weak way back, or an abandoned one would not end.
        run.closers.append(functools.partial(_close, weakref.ref(results)))
        return Serial(results)

    def _results(self, run: Run) -> Any:
        """A generator: closing it, or dropping it, cancels what has not begun."""
        items = self._upstream(run)
        executor, owned = self._executor(self._workers())
        submit: Callable[[Any], Future[Any]]
        if self.pool == "processes":
            submit = functools.partial(_submit_packed, executor)
        elif type(executor).__module__.startswith("distributed"):
            client: Any = executor
            # Equal items are items of their own: without this dask computes them once.
            submit = functools.partial(client.submit, self._function(), pure=False)
        else:
            shared: Any = executor
            submit = functools.partial(shared.submit, self._function())
        take = self._in_order if self.ordered else self._as_done
        place = run.place if placed(self) else _nowhere
        pending: deque[Any] = deque()
        try:
            yield from take(place, items, self._window(), submit, pending)
        finally:
            for entry in pending:
                entry[0].cancel()
            if owned:
                executor.shutdown(wait=False, cancel_futures=True)

    def _in_order(
        self,
        place_now: Callable[[], tuple[str, int | None] | None],
        items: Iterator[Any],
        window: int,
        submit: Callable[[Any], Future[Any]],
        pending: deque[Any],
    ) -> Iterator[Any]:
        source_error: Exception | None = None
        more = True
        while True:
            while more and len(pending) < window:
                try:
                    pending.append((submit(next(items)), place_now()))
                except StopIteration:
                    more = False
                except Exception as error:  # takes its place behind what was good before it
                    source_error, more = error, False
            if not pending:
                break
            future, place = pending.popleft()
            yield self._value(future, place)
        if source_error is not None:
            raise source_error

    def _as_done(
        self,
        place_now: Callable[[], tuple[str, int | None] | None],
        items: Iterator[Any],
        window: int,
        submit: Callable[[Any], Future[Any]],
        pending: deque[Any],
    ) -> Iterator[Any]:
        import queue

        done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        places: dict[Future[Any], tuple[str, int | None] | None] = {}
        source_error: Exception | None = None
        more = True
        while True:
            while more and len(places) < window:
                try:
                    future = submit(next(items))
                except StopIteration:
                    more = False
                    break
                except Exception as error:
                    source_error, more = error, False
                    break
                places[future] = place_now()
                pending.append((future, None))
                future.add_done_callback(done.put)
            if not places:
                break
            future = done.get()
            place = places.pop(future)
            while pending and pending[0][0].done():
                pending.popleft()
            yield self._value(future, place)
        if source_error is not None:
            raise source_error

    def _value(self, future: Future[Any], place: tuple[str, int | None] | None) -> Any:
        try:
            return future.result()
        except Exception as error:
            note_failure(error, self._call, place)
            raise


# In a worker process: the callable, received once.
_received: list[Callable[[Any], Any]] = []


def _receive(packed: bytes) -> None:
    _received[:] = [pickle.loads(packed)]


def _call(packed: bytes) -> Any:
    return _received[0](pickle.loads(packed))


def _submit_packed(executor: Executor, item: Any) -> Future[Any]:
    """Pickles here: what fails in the executor's own thread can leave it hanging."""
    return executor.submit(_call, pickle.dumps(item))


def _nowhere() -> None:
    return None


def _close(results: weakref.ref[Any]) -> None:
    generator = results()
    if generator is not None:
        generator.close()


def _note_with_place(
    stage: ParallelMap, error: BaseException, place: tuple[str, int | None] | None
) -> BaseException | None:
    if isinstance(error, StopIteration):
        return stopped(stage, error)
    note_failure(error, stage._call, place)
    return None


class AsyncMap(ParallelMap):
    """See :meth:`Composable.async_map`."""

    def __init__(
        self,
        source: Composable,
        callback: Callable[..., Any],
        buffer: int,
        max_workers: int | None,
        executor: Executor | None,
        kw: dict[str, Any],
        on_error: Policy = "raise",
    ) -> None:
        if buffer < 1:
            raise ValueError(f"buffer must be at least 1, not {buffer}: it is how many items may be under way")
        pool = "threads" if executor is None else executor
        super().__init__(source, callback, max_workers, pool, True, buffer, kw, on_error, "async_map")

    def _workers(self) -> int:
        return self.workers or min(32, usable_cores() + 4)


def dask_compute(item: Any) -> Any:
    """The value of a ``dask.delayed`` object."""
    import dask  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return dask.compute(item)[0]
