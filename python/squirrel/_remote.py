"""What the extension asks of fsspec: files read through any URL that fsspec knows.

The library calls a :class:`Files` from its own threads (``python/ext/remote.c``). It asks for
all ranges of one read in one call. Formats that are read from front to back ask for small pieces;
they get them out of a window, and the next window is fetched while this one is consumed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from squirrel import _native
from squirrel._storage_options import native_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any

    Stat = tuple[int, int, bool, str]

__all__ = ["Files", "is_local", "locate", "open_source", "own", "own_system"]

_FIRST_BYTES = 256 * 1024  # the first window
_WINDOW_BYTES = 4 << 20  # windows grow up to this; a file holds two of them
_WHOLE_BYTES = 4 << 20  # a file up to this is fetched with one request when it is asked for
_FRESH_SECONDS = 10.0  # how long what a file's head and size were is taken for true
_KNOWN_FILES = 64
_THREADS = 32
_FILECACHE_TRIES = 8


def own(fs: Any) -> Any:
    """The file system as this process may use it: fsspec's async ones do not outlive a fork."""
    if getattr(fs, "async_impl", False) and getattr(fs, "_pid", os.getpid()) != os.getpid():
        return type(fs)(*fs.storage_args, **fs.storage_options)
    return fs


def own_system(url: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The library's own file system for a URL; None where fsspec reads: other schemes, chains, fsspec's caches."""
    if "::" in url or "protocol" in (storage_options or {}):
        return None
    mark = url.find("://")
    scheme = url[:mark] if mark >= 0 else ""
    for system in _native.file_systems():
        if scheme in system["schemes"].split("|"):
            return system
    return None


def is_local(url: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether these are files of this machine, read without a cache."""
    system = own_system(url, storage_options)
    return system is not None and system["name"] == "local"


def locate(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path within it."""
    from squirrel.fsspec.fs import get_fs_from_url

    fs = get_fs_from_url(url, **(storage_options or {}))
    if "::" in url:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped,import-not-found,unused-ignore]

        return fs, url_to_fs(url, **(storage_options or {}))[1]
    return fs, fs._strip_protocol(url)


def open_source(
    url: str,
    options: dict[str, Any],
    storage_options: Mapping[str, Any] | None = None,
    fs: Any = None,
    ahead: bool = False,
) -> _native.Source:
    """Opens a URL: natively where it can, else through fsspec.

    Args:
        url: a path or URL.
        options: of the driver and its format; "driver" names the driver.
        storage_options: of the file system, and ``"cache"``: a directory for what is read.
        fs: the file system, where it is there already.
        ahead: fetch the beginning of the file, in the same thread, before it is asked for.
    """
    if storage_options and "cache" in storage_options:
        options = {"cache": storage_options["cache"], **options}
        storage_options = {name: value for name, value in storage_options.items() if name != "cache"}
    system = own_system(url, storage_options) if fs is None else None
    settings = native_options(system, storage_options) if system is not None else None
    if settings is not None:
        return _native.open(url, {**settings, **options})
    native = getattr(fs, "native_url", None)
    if native is not None:  # one of squirrel.fsspec.native
        return _native.open(native(url), {**fs.native_options, **options})
    path = url
    if fs is None:
        fs, path = locate(url, storage_options)
    else:
        fs = own(fs)
        path = fs._strip_protocol(url)
    if type(fs).__module__ == "fsspec.implementations.local":
        return _native.open(path, options)
    files = Files(fs)
    if ahead and "cache" not in options:
        with contextlib.suppress(Exception):  # open_in meets it again, and says where
            files.fetch(path)
    return _native.open_in(files, url, path, options)


# --- threads that fetch ahead ---

_pool: ThreadPoolExecutor | None = None
_pool_process = 0
_pool_lock = threading.Lock()


def _threads() -> ThreadPoolExecutor:
    global _pool, _pool_process
    with _pool_lock:
        if _pool is None or _pool_process != os.getpid():
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="squirrel-fetch")
            _pool_process = os.getpid()
        return _pool


def _forget_lock() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


# --- files ---


class Files:
    """One file system as the library sees it; threads may share it.

    What was learned of a file when it was looked at serves when it is opened soon after.
    """

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self._known: dict[str, tuple[float, Stat, bytes]] = {}
        self._told: set[str] = set()

    @property
    def fs(self) -> Any:
        """fsspec's file system."""
        self._fs = own(self._fs)
        return self._fs

    def stat(self, path: str) -> Stat:
        """(size or -1, time of change in ns or 0, is it a directory, etag or "").

        What was learned before is told once: who asks again wants to know whether it changed.
        """
        if path not in self._told:
            stat = self._lookup(path)[0]
            self._told.add(path)
            return stat
        known = self._known.get(path)
        stat = _stat(self.fs.info(path))
        if known is None or known[1] != stat:
            self._keep(path, stat, b"")
        return stat

    def _lookup(self, path: str) -> tuple[Stat, bytes]:
        known = self._known.get(path)
        if known is not None and time.monotonic() < known[0]:
            return known[1], known[2]
        stat = _stat(self.fs.info(path))
        self._keep(path, stat, b"")
        return stat, b""

    def _keep(self, path: str, stat: Stat, head: bytes) -> None:
        known = self._known
        while len(known) >= _KNOWN_FILES:
            oldest = next(iter(known))
            known.pop(oldest, None)
            self._told.discard(oldest)
        known[path] = (time.monotonic() + _FRESH_SECONDS, stat, head)

    def fetch(self, path: str) -> None:
        """Fetches the beginning of a file, all of it where it is small."""
        stat = self._lookup(path)[0]
        if not stat[2]:
            size = _WHOLE_BYTES if stat[0] < 0 else min(stat[0], _WHOLE_BYTES)
            self._keep(path, stat, _cat(self.fs, path, 0, size))

    def list(self, path: str, recursive: bool) -> list[tuple[str, int, int, bool, str]]:
        """What a directory holds: names relative to it, and what stat() says."""
        fs = self.fs
        root = path.rstrip("/")
        if recursive:
            entries = list(fs.find(path, detail=True).values())
        else:
            entries = fs.ls(path, detail=True)
        rows = []
        for entry in entries:
            full = str(entry["name"]).rstrip("/")
            name = full[len(root) + 1 :] if full.startswith(root + "/") else full.rpartition("/")[2]
            if full == root or not name or any(part.startswith(".") for part in name.split("/")):
                continue
            rows.append((name, *_stat(entry)))
        return sorted(rows, key=lambda row: row[0].encode())

    def open(self, path: str) -> File:
        """A file to be read."""
        stat, head = self._lookup(path)
        if stat[2]:
            raise IsADirectoryError(f"{path} is a directory")
        return File(self, path, stat, head)


class File:
    """An open file; threads may share it.

    Attributes:
        stat: what :meth:`Files.stat` said when it was opened.
    """

    def __init__(self, files: Files, path: str, stat: Stat, head: bytes) -> None:
        self.stat = stat
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._window = (0, head)  # where it begins, and its bytes
        self._span = _FIRST_BYTES
        self._next: Future[bytes] | None = None

    def read(self, starts: list[int], ends: list[int]) -> list[bytes | memoryview]:
        """The bytes of each range; less where the file ends."""
        size = self.stat[0]
        if size >= 0:
            ends = [min(end, size) for end in ends]
            starts = [min(start, end) for start, end in zip(starts, ends)]
        if len(starts) == 1 and ends[0] - starts[0] <= _FIRST_BYTES:
            return [self._run(starts[0], ends[0])]
        at, window = self._window
        if all(at <= start and end <= at + len(window) for start, end in zip(starts, ends)):
            view = memoryview(window)
            return [view[start - at : end - at] for start, end in zip(starts, ends)]
        runs = _runs(starts, ends)
        firsts, lasts = [starts[run[0]] for run in runs], [ends[run[-1]] for run in runs]
        found = _cat_ranges(self._files.fs, self._path, firsts, lasts)
        pieces: list[bytes | memoryview] = [b""] * len(starts)
        for run, piece in zip(runs, found):
            first = starts[run[0]]
            _check(self._path, first, ends[run[-1]], piece)
            view = memoryview(piece)
            for i in run:
                pieces[i] = view[starts[i] - first : ends[i] - first]
        return pieces

    def _run(self, start: int, end: int) -> bytes | memoryview:
        """A small piece, out of the window."""
        parts = []
        with self._lock:
            while start < end:
                at, window = self._window
                if not at <= start < at + len(window):
                    at, window = self._move(start, end)
                part = memoryview(window)[start - at : end - at]
                if not part:  # the file is shorter than it was
                    break
                parts.append(part)
                start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _move(self, start: int, end: int) -> tuple[int, bytes]:
        """A window that begins at `start`; in sequence, the one behind it is fetched ahead."""
        at, window = self._window
        sequence = start == at + len(window) and len(window) > 0
        ahead, self._next = self._next, None
        if ahead is not None and sequence:
            window = ahead.result()
        else:
            self._span = self._grown() if sequence else _FIRST_BYTES
            window = self._fetch(start, max(end, start + self._span))
        self._window = (start, window)
        behind = start + len(window)
        if sequence and window and (self.stat[0] < 0 or behind < self.stat[0]):
            self._span = self._grown()
            try:
                self._next = _threads().submit(self._fetch, behind, behind + self._span)
            except RuntimeError:  # the interpreter is ending
                pass
        return self._window

    def _grown(self) -> int:
        return min(4 * self._span, _WINDOW_BYTES)

    def _fetch(self, start: int, end: int) -> bytes:
        if self.stat[0] >= 0:
            end = min(end, self.stat[0])
        return _cat(self._files.fs, self._path, start, end) if start < end else b""


def _runs(starts: list[int], ends: list[int]) -> list[list[int]]:
    """The ranges that hold bytes, those that follow each other as one: each run is one request."""
    runs: list[list[int]] = []
    for i, (start, end) in enumerate(zip(starts, ends)):
        if start >= end:
            continue
        if runs and ends[runs[-1][-1]] == start:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _cat(fs: Any, path: str, start: int, end: int) -> bytes:
    if start >= end:
        return b""
    (piece,) = _cat_ranges(fs, path, [start], [end])
    _check(path, start, end, piece)
    return bytes(piece)


def _cat_ranges(fs: Any, path: str, starts: list[int], ends: list[int]) -> list[bytes]:
    """All ranges of a file in one call.

    fsspec's "filecache" keeps one table without a lock: where threads enter files at the same time it can lose
    one, and then trips over what it does not find. Asked again it fetches the file again.
    """
    tries = _FILECACHE_TRIES if getattr(fs, "protocol", "") == "filecache" else 1
    while True:
        tries -= 1
        try:
            return fs.cat_ranges([path] * len(starts), starts, ends, on_error="raise")  # type: ignore[no-any-return]
        except TypeError:
            if tries == 0:
                raise


def _check(path: str, start: int, end: int, piece: bytes) -> None:
    if len(piece) > end - start:
        raise OSError(f"asked for {end - start} bytes of {path} from {start} on, the file system gave {len(piece)}")


def _stat(info: Mapping[str, Any]) -> Stat:
    size = info.get("size")
    changed = info.get("mtime") or info.get("LastModified") or info.get("created") or 0
    if hasattr(changed, "timestamp"):
        changed = changed.timestamp()
    ns = int(changed * 1e9) if isinstance(changed, (int, float)) else 0
    etag = info.get("ETag") or info.get("etag") or ""
    directory = info.get("type") == "directory"
    return (-1 if size is None else int(size), ns, directory, str(etag)[:71])
