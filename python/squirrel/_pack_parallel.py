"""Parallel pack: a Python function over many inputs in processes, resumable, one commit.

The inputs are cut into tasks of consecutive inputs. A worker writes each task by a packer of its
own, with a prefix of its own, uncommitted; when its shards are on disk, the parent notes the task
in a journal (`_sqrl/pack-<run>.journal` in the destination) and syncs it. A task that is not in the
journal did not happen: after a kill it is done again under another prefix, and whatever its first
attempt left is never committed. A journal is locked as long as its pack runs, so that packs into one
destination at the same time leave each other alone, and a kill unlocks it. At the end all prefixes
of the journal are committed in the order of the inputs, in one step, so the data set does not depend
on the number of workers. With resume, the journal stays then as the record of the finished pack
(`_sqrl/pack-<run>.done`): the same call again finds it and does nothing.

Where the destination is no local directory (`s3://...`), journals lie in the user's folder for such things
(`$XDG_STATE_HOME/squirrel/packs`, one folder a destination), so a pack is resumed on the machine that began it.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import time
from multiprocessing import connection, get_all_start_methods, get_context

from squirrel import _native
from squirrel._errors import ArgumentError, ExistsError, StateError
from squirrel._pack import PackReport, add_input, make_report, remove_empty
from squirrel._pack_journal import SAME_CALL, Journal, Place, all_told, fingerprint, finished_packs
from squirrel._progress import Progress
from squirrel.iterstream.base import callable_name
from squirrel.iterstream.parallel import usable_cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_REPORT = ("samples", "shards", "raw_bytes", "file_bytes")
_SAY_SECONDS = 0.2
_FIRST = 16  # inputs that tell packs of as many inputs from each other
_LOCK_SECONDS = 2.0  # in which the workers of a killed pack have ended


# --- the worker ---


def _worker(pipe: Any, function: Callable[[Any], Any], setup: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _native.configure(threads=setup["threads"])
    pipe.send(("ready", None))
    while True:
        try:
            task = pipe.recv()
        except EOFError:  # the parent is gone
            return
        if task is None:
            return
        try:
            pipe.send(("done", _do_task(pipe, function, setup, *task)))
        except (BrokenPipeError, _ParentGone):
            return
        except BaseException as error:
            pipe.send(("failed", _portable(error)))


class _ParentGone(Exception):
    pass


def _do_task(
    pipe: Any,
    function: Callable[[Any], Any],
    setup: dict[str, Any],
    first: int,
    prefix: str,
    items: list[Any],
) -> dict[str, Any]:
    failed: list[tuple[int, str]] = []
    packer = _native.Packer(
        setup["destination"], prefix=prefix, hold_commit=True, append=True, **setup["layout"]
    )
    said = time.monotonic()
    try:
        for index, item in enumerate(items, first):
            add_input(packer, function, index, item, failed if setup["skip"] else None)
            if time.monotonic() - said > _SAY_SECONDS:
                if pipe.poll():  # nothing is sent during a task: the other end was closed
                    raise _ParentGone
                said = time.monotonic()
                pipe.send(("at", index + 1 - first))
        report = packer.finish()
    except BaseException:
        packer.abandon()
        raise
    return {"prefix": prefix, "failed": failed, **{name: report[name] for name in _REPORT}}


def _portable(error: BaseException) -> BaseException:
    """The exception with its traceback as a note, in a form that can be sent."""
    import traceback

    lines = "".join(traceback.format_exception(error))
    error.add_note(f"in a worker process:\n{lines}")
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\nin a worker process:\n{lines}")


# --- the parent ---


class _Pool:
    """Worker processes, each with one task at a time."""

    def __init__(
        self, count: int, function: Callable[[Any], Any], setup: dict[str, Any], method: str
    ) -> None:
        context = get_context(method)
        self.workers: dict[Any, Any] = {}
        self.task: dict[Any, tuple[int, int, int] | None] = {}  # number, first input, inputs
        self.at: dict[Any, int] = {}
        self.ready: set[Any] = set()
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(  # type: ignore[attr-defined]
                target=_worker, args=(theirs, function, setup), daemon=True
            )
            try:
                process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                self.kill()
                raise ArgumentError(
                    f"map={callable_name(function)} can't be sent to another process "
                    f"({error}): define it at the top of a module"
                ) from error
            theirs.close()
            self.workers[ours] = process
            self.task[ours] = None

    def give(self, pipe: Any, number: int, first: int, prefix: str, items: list[Any]) -> None:
        self.task[pipe] = (number, first, len(items))
        self.at[pipe] = 0
        try:
            pipe.send((first, prefix, items))
        except (BrokenPipeError, ConnectionError):
            pass  # its death is reported by the next message

    def message(self, pipe: Any) -> tuple[str, Any]:
        """One message of a worker; its death raises."""
        try:
            kind, value = pipe.recv()
        except (EOFError, ConnectionError):
            process = self.workers[pipe]
            process.join(5)
            raise StateError(self._obituary(pipe, process.exitcode)) from None
        if kind == "ready":
            self.ready.add(pipe)
        return kind, value

    def _obituary(self, pipe: Any, status: int | None) -> str:
        how = f"by signal {-status}" if status is not None and status < 0 else f"({status})"
        task = self.task[pipe]
        if pipe not in self.ready:
            return (
                f"a worker process ended {how} before it began: a script that packs in "
                'processes must start below `if __name__ == "__main__":`'
            )
        at = f"with inputs {task[1]} to {task[1] + task[2] - 1}" if task else "between tasks"
        return f"a worker process ended {how} {at}"

    def kill(self) -> None:
        for pipe, process in self.workers.items():
            process.kill()
            pipe.close()
        for process in self.workers.values():
            process.join()
        self.workers.clear()

    def end(self) -> None:
        for pipe in self.workers:
            pipe.send(None)
        for process in self.workers.values():
            process.join()
        self.workers.clear()


def _other_inputs(first: int, count: int, path: str) -> StateError:
    return StateError(
        f"inputs {first} to {first + count - 1} are not those of the pack that is to be resumed: give "
        "the same inputs, or resume=False to start over",
        where=path,
    )


class _Pack:
    """One parallel pack: tasks out, journal lines in."""

    def __init__(
        self, inputs: Iterable[Any], journal: Journal, per_task: int, bar: Progress
    ) -> None:
        self.items = iter(inputs)
        self.journal = journal
        self.per_task = per_task
        self.bar = bar
        self.attempt = os.urandom(3).hex()
        self.next_task = 0
        self.inputs_done = 0
        self.file_bytes = 0

    def tasks(self) -> Iterator[tuple[int, int, list[Any]]]:
        """The tasks that are not in the journal, with those that are checked against it."""
        while True:
            items = list(itertools.islice(self.items, self.per_task))
            if not items:
                return
            number, first = self.next_task, self.next_task * self.per_task
            self.next_task += 1
            done = self.journal.tasks.get(number)
            if done is None:
                yield number, first, items
                continue
            if done["inputs"] != len(items) or done["fingerprint"] != fingerprint(items):
                raise _other_inputs(first, len(items), self.journal.path)
            self.inputs_done += len(items)
            self.file_bytes += done["file_bytes"]

    def prefix(self, number: int) -> str:
        return f"{self.journal.head['run']}-{number:07d}-{self.attempt}"

    def run(self, make_pool: Callable[[int], _Pool], workers: int) -> None:
        tasks = self.tasks()
        start = list(itertools.islice(tasks, workers))
        if not start:
            return
        pool = make_pool(len(start))
        try:
            given: dict[Any, tuple[int, int, list[Any]]] = {}
            for pipe, task in zip(list(pool.workers), start):
                self._give(pool, pipe, task, given)
            while given:
                for ready in connection.wait(list(given), 0.1):
                    self._hear(pool, ready, tasks, given)
                self.bar.update(self.inputs_done + sum(pool.at.values()), self.file_bytes)
            pool.end()
        except BaseException:
            pool.kill()
            raise

    def _give(
        self, pool: _Pool, pipe: Any, task: tuple[int, int, list[Any]], given: dict[Any, Any]
    ) -> None:
        number, first, items = task
        given[pipe] = task
        pool.give(pipe, number, first, self.prefix(number), items)

    def _hear(
        self,
        pool: _Pool,
        pipe: Any,
        tasks: Iterator[tuple[int, int, list[Any]]],
        given: dict[Any, tuple[int, int, list[Any]]],
    ) -> None:
        kind, value = pool.message(pipe)
        if kind == "at":
            pool.at[pipe] = value
        elif kind == "failed":
            raise value
        elif kind == "done":
            number, _, items = given.pop(pipe)
            self.journal.write(
                {
                    "task": number,
                    "inputs": len(items),
                    "fingerprint": fingerprint(items),
                    "told": all_told(items),
                    **value,
                }
            )
            pool.at[pipe] = 0
            self.inputs_done += len(items)
            self.file_bytes += value["file_bytes"]
            task = next(tasks, None)
            if task is not None:
                self._give(pool, pipe, task, given)


def _holds_data(place: Place) -> bool:
    """Whether anything but leftovers of packs is there."""
    try:
        names = place.names()
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise ExistsError("workers write to a directory; a file is there", where=place.url) from None
    if "_sqrl" in names:
        return any(n.endswith(".idx") for n in place.names("_sqrl"))
    return any(not name.startswith(".") for name in names)


def _sweep(place: Place, run: str, keep: set[str]) -> None:
    """Removes the run's shards whose prefix is not in `keep`."""
    try:
        names = place.names()
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        bare = name.lstrip(".")
        if bare.startswith(run + "-") and not any(bare.startswith(p) for p in keep):
            place.remove(name)


def _left_behind(folder: str, head: dict[str, Any] | None) -> list[Journal]:
    """Journals of packs that were killed, locked and loaded; those of running packs stay alone.

    Raises:
        StateError: a pack of the same call (`head`) is running.
    """
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".journal") and name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for name in sorted(names):
        journal = Journal(os.path.join(folder, name))
        locked = journal.lock()
        whole = journal.load()
        end = time.monotonic() + _LOCK_SECONDS
        while whole and not locked and head is not None and journal.same_call(head):
            if time.monotonic() > end:
                raise StateError(
                    "another process runs this pack just now: wait for it, or give resume=False "
                    "to write the samples once more",
                    where=journal.path,
                )
            time.sleep(0.02)
            locked, whole = journal.lock(), journal.load()
        if whole and locked:
            found.append(journal)
        else:
            journal.close()
    return found


def _begin(place: Place, head: dict[str, Any], resume: bool, replace: bool) -> Journal:
    """The journal of a killed pack of the same call, or a new one."""
    found = _left_behind(place.folder, head if resume else None)
    try:
        if resume and found:
            same = next((journal for journal in found if journal.same_call(head)), None)
            if same is not None:
                found.remove(same)
                return same
            other = found[0]
            name = next(key for key in SAME_CALL if other.head[key] != head[key])
            if name == "first":
                raise _other_inputs(0, _FIRST, other.path)
            raise StateError(
                f"the pack to be resumed had {name}={other.head[name]!r}, this one has "
                f"{head[name]!r}: give the same, or resume=False to start over",
                where=other.path,
            )
        for journal in found:
            done = {t["prefix"] for t in journal.tasks.values()} if journal.committing else set()
            _sweep(place, journal.head["run"], done)
            journal.remove()
        if not replace and _holds_data(place):
            raise ExistsError(
                "the destination holds data already: give overwrite=True or append=True",
                where=place.url,
            )
        return Journal.new(place.folder, head)
    finally:
        for journal in found:
            journal.close()


def _check_shards(place: Place, done: list[dict[str, Any]]) -> None:
    """All shards that the journal tells of are there: a commit takes what it finds."""
    count: dict[str, int] = {}
    for name in place.names():
        prefix, _, rest = name.rpartition("-")
        if rest.count(".") > 1:  # a group of fields: its base counts
            continue
        count[prefix] = count.get(prefix, 0) + 1
    for task in done:
        if count.get(task["prefix"], 0) != task["shards"]:
            raise StateError(
                f"of {task['shards']} shards {task['prefix']}-* that were written, "
                f"{count.get(task['prefix'], 0)} are there: did something remove them? Pack again "
                "with resume=False",
                where=place.url,
            )


def _commit(journal: Journal, place: Place, overwrite: bool, options: dict[str, Any] | None) -> None:
    done = [journal.tasks[number] for number in sorted(journal.tasks)]
    prefixes = tuple(task["prefix"] for task in done if task["shards"])
    if not prefixes:
        return
    again = journal.committing
    if not again:
        _check_shards(place, done)
        journal.write({"commit": True})
    try:
        _native.commit(place.url, prefixes, overwrite, options)
    except FileNotFoundError:
        if not again:  # killed between commit and the journal's end: nothing is left to commit
            raise


def pack_parallel(
    source: Any,
    destination: str,
    function: Callable[[Any], Any],
    workers: int,
    layout: dict[str, Any],
    *,
    resume: bool,
    skip: bool,
    overwrite: bool,
    append: bool,
    progress: bool | None,
    inputs_per_task: int | None,
    start_method: str | None,
) -> PackReport:
    """See :func:`squirrel.pack`."""
    place = Place(destination, layout["options"] or {})
    if layout["format"] not in (None, "sqrl") or place.is_file():
        raise ArgumentError("workers write native shards into a directory", where=destination)
    if isinstance(source, (str, os.PathLike)):
        from squirrel.stream import open as open_stream

        source = open_stream(source)
    try:
        total: int | None = len(source)
    except TypeError:
        total = None
    per_task = inputs_per_task or (min(max(-(-total // 32), 1), 4096) if total else 256)
    inputs = iter(source)
    begin = list(itertools.islice(inputs, _FIRST))
    inputs = itertools.chain(begin, inputs)
    head = {
        "squirrel_pack": 1,
        "run": os.urandom(8).hex(),
        "inputs": total,
        "per_task": per_task,
        "map": callable_name(function),
        "layout": place.told(layout),
        "first": fingerprint(begin),
    }
    records = finished_packs(place, head) if resume else []
    if records:
        known = list(inputs)
        inputs = iter(known)
        for record in records:
            if record.same_inputs(known):
                return make_report(*_sum_up(record))
    journal = _begin(place, head, resume, overwrite or append)
    bar = Progress(progress, total, "inputs")
    work = _Pack(inputs, journal, journal.head["per_task"], bar)
    setup = {
        "destination": place.url,
        "layout": layout,
        "skip": skip,
        "threads": max(usable_cores() // workers, 1),
    }
    method = start_method or ("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    try:
        work.run(lambda count: _Pool(count, function, setup, method), workers)
        kept = {task["prefix"] for task in journal.tasks.values()}
        _sweep(place, journal.head["run"], kept)
        _commit(journal, place, overwrite, layout["options"])
    except BaseException:
        journal.close()
        if not resume:
            _sweep(place, journal.head["run"], set())
            journal.remove()
            remove_empty(place.url)
        raise
    report, failed = _sum_up(journal)
    if resume:
        journal.keep()
    else:
        journal.remove()
    bar.end(work.inputs_done, report["file_bytes"])
    return make_report(report, failed)


def _sum_up(journal: Journal) -> tuple[dict[str, int], list[tuple[int, str]]]:
    done = [journal.tasks[number] for number in sorted(journal.tasks)]
    report = {name: sum(task[name] for task in done) for name in _REPORT}
    failed = [(index, text) for task in done for index, text in task["failed"]]
    return report, failed
