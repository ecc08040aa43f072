"""parallel_map: a callable over many items at a time, ordered or not, with bounded look-ahead."""

from __future__ import annotations

import functools
import os
import pickle
import weakref
from collections import deque

from squirrel import _native
from squirrel._errors import ArgumentError
from squirrel.iterstream.base import Run, Serial, _Stage, callable_name, note_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, Future
    from typing import Any

    from squirrel.iterstream.base import Composable

_WAIT_SECONDS = 0.1


def usable_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ParallelMap(_Stage):
    """See :meth:`Composable.parallel_map`."""

    def __init__(
        self,
        source: Composable,
        fn: Callable[..., Any],
        workers: int | None,
        pool: str | Executor,
        ordered: bool,
        lookahead: int | None,
        kw: dict[str, Any],
    ) -> None:
        super().__init__(source)
        if isinstance(pool, str) and pool not in ("threads", "processes"):
            raise ValueError(f'pool must be "threads", "processes" or an executor, not {pool!r}')
        if not isinstance(pool, str) and not callable(getattr(pool, "submit", None)):
            raise TypeError(f"an executor has a method submit; {type(pool).__name__} has none")
        for name, value in (("workers", workers), ("lookahead", lookahead)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.fn = fn
        self.kw = kw
        self.workers = workers
        self.pool = pool
        self.ordered = ordered
        self.lookahead = lookahead
        self.call = f"parallel_map({callable_name(fn)})"

    def __len__(self) -> int:
        return len(self.source)

    def __bool__(self) -> bool:
        return True

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
                f"{self.call} can't be sent to another process ({error}): define the callable at "
                "the top of a module"
            ) from error
        pool = ProcessPoolExecutor(workers, context, initializer=_receive, initargs=(packed,))
        return pool, True

    def _function(self) -> Callable[[Any], Any]:
        return functools.partial(self.fn, **self.kw) if self.kw else self.fn

    def _start(self, run: Run) -> Iterator[Any]:
        results = self._results(run)
        # The generator holds the run: a weak way back, or an abandoned one would not end.
        run.closers.append(functools.partial(_close, weakref.ref(results)))
        return _native.Guard(Serial(results), functools.partial(_pass_on, self), run.close)

    def _results(self, run: Run) -> Any:
        """A generator: closing it, or dropping it, cancels what has not begun."""
        workers = self.workers or usable_cores()
        window = max(self.lookahead or 2 * workers, 1)
        items = self._upstream(run)
        executor, owned = self._executor(workers)
        submit: Callable[[Any], Future[Any]]
        if self.pool == "processes":
            submit = functools.partial(_submit_packed, executor)
        else:
            submit = functools.partial(_submit, executor, self._function())
        take = self._in_order if self.ordered else self._as_done
        pending: deque[Any] = deque()
        try:
            yield from take(run, items, window, submit, pending)
        finally:
            for entry in pending:
                entry[0].cancel()
            if owned:
                executor.shutdown(wait=False, cancel_futures=True)

    def _in_order(
        self,
        run: Run,
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
                    pending.append((submit(next(items)), run.place()))
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
        run: Run,
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
                places[future] = run.place()
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
            note_failure(error, self.call, place)
            raise


# In a worker process: the callable, received once.
_received: list[Callable[[Any], Any]] = []


def _receive(packed: bytes) -> None:
    _received[:] = [pickle.loads(packed)]


def _call(packed: bytes) -> Any:
    return _received[0](pickle.loads(packed))


def _submit(executor: Executor, function: Callable[[Any], Any], item: Any) -> Future[Any]:
    return executor.submit(function, item)


def _submit_packed(executor: Executor, item: Any) -> Future[Any]:
    """Pickles here: what fails in the executor's own thread can leave it hanging."""
    return executor.submit(_call, pickle.dumps(item))


def _close(results: weakref.ref[Any]) -> None:
    generator = results()
    if generator is not None:
        generator.close()


def _pass_on(stage: ParallelMap, error: BaseException) -> None:
    """The stage notes its own failures with the sample of the failing item."""
    note_failure(error, stage.call, None)
