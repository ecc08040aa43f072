"""Where a parallel pack goes, its journal, and what tells inputs from others (see _pack_parallel)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os

from squirrel import _native
from squirrel._errors import ArgumentError, StateError
from squirrel._remote import own_system
from squirrel._storage_options import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SAME_CALL = ("inputs", "map", "layout", "first")  # what makes two calls the same pack


# --- where it goes ---


class Place:
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


class Journal:
    """Lines of JSON: a head, one line for each finished task, "commit" before the commit."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.committing = False
        self._file: Any = None

    @classmethod
    def new(cls, folder: str, head: dict[str, Any]) -> Journal:
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
        return all(self.head[key] == head[key] for key in SAME_CALL)

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
            and all_told(part)
            and self.tasks[number]["fingerprint"] == fingerprint(part)
            for number, part in enumerate(parts)
        )


def finished_packs(place: Place, head: dict[str, Any]) -> list[Journal]:
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
        record = Journal(os.path.join(folder, name))
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


def all_told(items: list[Any]) -> bool:
    """Whether _text() tells each of these from all others."""
    return all(
        isinstance(item, (str, bytes, int, float, type(None), os.PathLike))
        or (isinstance(item, (tuple, list)) and all_told(list(item)))
        or (isinstance(item, dict) and all_told([*item, *item.values()]))
        or _is_plain_array(item)
        for item in items
    )


def _is_plain_array(item: Any) -> bool:
    """A NumPy array or scalar without Python objects in it."""
    dtype = getattr(item, "dtype", None)
    return type(item).__module__ == "numpy" and dtype is not None and not dtype.hasobject


def fingerprint(items: list[Any]) -> str:
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
