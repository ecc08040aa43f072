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

import fcntl
import hashlib
import itertools
import json
import os
import pickle
import signal
import time
from multiprocessing import connection, get_all_start_methods, get_context

from squirrel import _native
from squirrel._errors import ArgumentError, ExistsError, StateError
from squirrel._pack import PackReport, add_input, make_report, remove_empty
from squirrel._progress import Progress
from squirrel._remote import own_system
from squirrel._storage_options import without_secrets
from squirrel.iterstream.base import callable_name
from squirrel.iterstream.parallel import usable_cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_REPORT = ("samples", "shards", "raw_bytes", "file_bytes")
_SAY_SECONDS = 0.2
_SAME = ("inputs", "map", "layout", "first")  # what makes two calls the same pack
_FIRST = 16  # inputs that tell packs of as many inputs from each other
_LOCK_SECONDS = 2.0  # in which the workers of a killed pack have ended


# --- where it goes ---


class _Place:
    """The directory that is packed into, and the folder of its journals."""

    def __init__(self, destination: str, options: dict[str, Any]) -> None:
        self.url = destination
        self._system = own_system(destination)
        if self._system is None:
            raise ArgumentError("workers write to a directory that the library reaches itself", where=destination)
        self._fs: Any = None
        if self._system["name"] == "local":
            self.url = destination.removeprefix("file://")
            self.folder = os.path.join(self.url, "_sqrl")
            return
        own = {option["name"] for option in self._system["options"]}
        self._fs = _native.FileSystem(destination, {key: value for key, value in options.items() if key in own})
        self._path = destination.partition("://")[2].rstrip("/")
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        name = hashlib.sha256(destination.rstrip("/").encode()).hexdigest()[:20]
        self.folder = os.path.join(state, "squirrel", "packs", name)

    def names(self, below: str = "") -> list[str]:
        """What the directory holds, or one below it."""
        if self._fs is None:
            return os.listdir(os.path.join(self.url, below))
        return [name for name, _ in self._fs.list(f"{self._path}/{below}".rstrip("/"))]

    def is_file(self) -> bool:
        if self._fs is None:
            return os.path.isfile(self.url)
        try:
            return not self._fs.stat(self._path)[2]
        except FileNotFoundError:
            return False

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        try:
            if self._fs is None:
                os.remove(os.path.join(self.url, name))
            else:
                self._fs.remove(f"{self._path}/{name}")
        except FileNotFoundError:
            pass

    def told(self, layout: dict[str, Any]) -> dict[str, Any]:
        """The layout as a journal may hold it: without secrets."""
        if not layout["options"] or self._system is None:
            return layout
        return {**layout, "options": without_secrets(self._system, layout["options"])}


# --- the journal ---


class _Journal:
    """Lines of JSON: a head, one line for each finished task, "commit" before the commit."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.committing = False
        self._file: Any = None

    @classmethod
    def new(cls, folder: str, head: dict[str, Any]) -> _Journal:
        """Makes one, locked; others see it with its head only."""
        os.makedirs(folder, exist_ok=True)
        name = f"pack-{head['run']}.journal"
        self = cls(os.path.join(folder, name))
        hidden = os.path.join(folder, "." + name)
        self._file = open(hidden, "ab")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write(head)
        os.rename(hidden, self.path)
        return self

    def lock(self) -> bool:
        """Takes over what a killed pack left; False: its pack runs, or has just ended."""
        try:
            file = open(self.path, "r+b")  # "ab" would make one
            file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_ino == os.stat(self.path).st_ino:
                self._file = file
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()
        return False

    def load(self) -> bool:
        """Reads what a pack wrote; a torn last line is cut off."""
        self.head, self.tasks, self.committing = {}, {}, False
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise StateError(
                    f"line {number} is damaged: remove the file, and pack again from the start",
                    where=self.path,
                ) from None
        if not self.head:
            return False
        if len(whole) < len(data) and self._file is not None:
            os.truncate(self.path, len(whole))
            self._file.seek(len(whole))
        return True

    def same_call(self, head: dict[str, Any]) -> bool:
        return all(self.head[key] == head[key] for key in _SAME)

    def _take(self, entry: dict[str, Any]) -> None:
        if "squirrel_pack" in entry:
            self.head = entry
        elif "task" in entry:
            self.tasks[entry["task"]] = entry
        elif "commit" in entry:
            self.committing = True

    def write(self, entry: dict[str, Any]) -> None:
        """Appends one line and syncs it: what it says has happened then."""
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._take(entry)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        try:
            os.remove(self.path)  # before it is unlocked
        except FileNotFoundError:
            pass
        self.close()

    def keep(self) -> None:
        """Becomes the record of a finished pack, where other inputs can be told from these."""
        if self.tasks and all(task.get("told") for task in self.tasks.values()):
            os.replace(self.path, self.path.removesuffix(".journal") + ".done")
            self.close()
        else:
            self.remove()

    def same_inputs(self, items: list[Any]) -> bool:
        """Whether these inputs, and no others, are those of the finished pack."""
        step = self.head["per_task"]
        parts = [items[i : i + step] for i in range(0, len(items), step)]
        return len(parts) == len(self.tasks) and all(
            number in self.tasks
            and _told(part)
            and self.tasks[number]["fingerprint"] == _fingerprint(part)
            for number, part in enumerate(parts)
        )


def _finished(place: _Place, head: dict[str, Any]) -> list[_Journal]:
    """The finished packs of the same call whose shards are here; forgets those that are gone."""
    folder = place.folder
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    records = []
    try:
        prefixes = {shard.rpartition("-")[0] for shard in place.names()}
    except FileNotFoundError:
        prefixes = set()
    for name in names:
        if not (name.startswith("pack-") and name.endswith(".done")):
            continue
        record = _Journal(os.path.join(folder, name))
        try:
            whole = record.load()
        except StateError:
            whole = False
        wanted = {t["prefix"] for t in record.tasks.values() if t["shards"]}
        if not whole or not wanted <= prefixes:
            os.remove(record.path)
        elif record.same_call(head):
            records.append(record)
    return records


def _told(items: list[Any]) -> bool:
    """Whether _text() tells each of these from all others."""
    return all(
        isinstance(item, (str, bytes, int, float, type(None), os.PathLike))
        or (isinstance(item, (tuple, list)) and _told(list(item)))
        or (isinstance(item, dict) and _told([*item, *item.values()]))
        or _is_plain_array(item)
        for item in items
    )


def _is_plain_array(item: Any) -> bool:
    """A NumPy array or scalar without Python objects in it."""
    dtype = getattr(item, "dtype", None)
    return type(item).__module__ == "numpy" and dtype is not None and not dtype.hasobject


def _fingerprint(items: list[Any]) -> str:
    """Tells other inputs from the same ones, where their text can be relied on."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        digest.update(_text(item).encode("utf-8", "backslashreplace"))
        digest.update(b"\n")
    return digest.hexdigest()


def _text(item: Any) -> str:
    if isinstance(item, (str, bytes, int, float, bool, type(None))):
        return repr(item)
    if isinstance(item, os.PathLike):
        return repr(os.fspath(item))
    if isinstance(item, (tuple, list)):
        return "(" + ",".join(_text(part) for part in item) + ")"
    if isinstance(item, dict):
        return "{" + ",".join(f"{_text(k)}:{_text(v)}" for k, v in item.items()) + "}"
    if _is_plain_array(item):
        digest = hashlib.blake2b(item.tobytes(), digest_size=16).hexdigest()
        return f"{item.dtype.str}{item.dtype.descr if item.dtype.names else ''}{item.shape}:{digest}"
    return type(item).__qualname__


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
        self, inputs: Iterable[Any], journal: _Journal, per_task: int, bar: Progress
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
            if done["inputs"] != len(items) or done["fingerprint"] != _fingerprint(items):
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
                    "fingerprint": _fingerprint(items),
                    "told": _told(items),
                    **value,
                }
            )
            pool.at[pipe] = 0
            self.inputs_done += len(items)
            self.file_bytes += value["file_bytes"]
            task = next(tasks, None)
            if task is not None:
                self._give(pool, pipe, task, given)


def _holds_data(place: _Place) -> bool:
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


def _sweep(place: _Place, run: str, keep: set[str]) -> None:
    """Removes the run's shards whose prefix is not in `keep`."""
    try:
        names = place.names()
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        bare = name.lstrip(".")
        if bare.startswith(run + "-") and not any(bare.startswith(p) for p in keep):
            place.remove(name)


def _left_behind(folder: str, head: dict[str, Any] | None) -> list[_Journal]:
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
        journal = _Journal(os.path.join(folder, name))
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


def _begin(place: _Place, head: dict[str, Any], resume: bool, replace: bool) -> _Journal:
    """The journal of a killed pack of the same call, or a new one."""
    found = _left_behind(place.folder, head if resume else None)
    try:
        if resume and found:
            same = next((journal for journal in found if journal.same_call(head)), None)
            if same is not None:
                found.remove(same)
                return same
            other = found[0]
            name = next(key for key in _SAME if other.head[key] != head[key])
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
        return _Journal.new(place.folder, head)
    finally:
        for journal in found:
            journal.close()


def _check_shards(place: _Place, done: list[dict[str, Any]]) -> None:
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


def _commit(journal: _Journal, place: _Place, overwrite: bool, options: dict[str, Any] | None) -> None:
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
    place = _Place(destination, layout["options"] or {})
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
        "first": _fingerprint(begin),
    }
    records = _finished(place, head) if resume else []
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


def _sum_up(journal: _Journal) -> tuple[dict[str, int], list[tuple[int, str]]]:
    done = [journal.tasks[number] for number in sorted(journal.tasks)]
    report = {name: sum(task[name] for task in done) for name in _REPORT}
    failed = [(index, text) for task in done for index, text in task["failed"]]
    return report, failed
