"""The library's own file systems as fsspec's, for pandas, pyarrow and all that read through fsspec.

``fsspec.open("sqrl+s3://bucket/x")``, and ``sqrl+gs``, ``sqrl+az``, ``sqrl+http``, ``sqrl+https``: installed
with the package as entry points; importing this module registers them, too. Options are the library's own or those
of s3fs, gcsfs, adlfs. Written files appear whole when they are closed. Names that begin with a dot are not listed.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from squirrel import _native
from squirrel._errors import ArgumentError, ExistsError, NotFoundError
from squirrel._storage_options import native_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "AzureFileSystem", "GoogleFileSystem", "HTTPFileSystem", "HTTPSFileSystem", "NativeFileSystem", "S3FileSystem",
]  # fmt: skip

_FILES_AT_ONCE = 16


class NativeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """One of the library's file systems; see the subclasses, one a scheme.

    Attributes:
        scheme: the library's, ``"s3"``.
        native_options: the library's options, out of those that were given.
    """

    scheme = ""
    root_marker = ""
    cachable = True

    def __init__(self, *args: Any, **storage_options: Any) -> None:
        super().__init__(*args, **storage_options)
        self.native_options = _options(self.scheme, storage_options)
        self._native = _native.FileSystem(f"{self.scheme}://-", self.native_options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        return path[path.find("://") + 3 :].rstrip("/") if "://" in path else path.rstrip("/")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # options hold secrets

    def native_url(self, path: str) -> str:
        """The library's URL of a path."""
        return f"{self.scheme}://{self._strip_protocol(path)}"

    # --- looking ---

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Size, type, time of change (``mtime``, seconds), ETag."""
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "size": 0, "type": "directory"}
        return _entry(path, self._native.stat(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """One level of a directory; a file lists itself."""
        path = self._strip_protocol(path)
        try:
            rows = [_entry(f"{path}/{name}", stat) for name, stat in self._native.list(path)]
        except ArgumentError:
            rows = [_entry(path, self._native.stat(path))]
        return rows if detail else [row["name"] for row in rows]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """All files below a path, with one listing."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        path = self._strip_protocol(path)
        try:
            rows = {f"{path}/{name}": _entry(f"{path}/{name}", stat) for name, stat in self._native.list(path, True)}
        except NotFoundError:
            rows = {}
        except ArgumentError:
            rows = {path: _entry(path, self._native.stat(path))}
        return rows if detail else list(rows)

    def created(self, path: str) -> Any:
        """Not known; see :meth:`modified`."""
        raise NotImplementedError

    def modified(self, path: str) -> Any:
        """When the file was written."""
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def checksum(self, path: str) -> int:
        """A number that changes with the file."""
        info = self.info(path)
        return hash((info["name"], info["size"], info.get("ETag"), info.get("mtime")))

    # --- reading ---

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a range of a file, of all of it by default."""
        return self._read(self._strip_protocol(path), [start], [end])[0]

    def _read(self, path: str, starts: Sequence[int | None], ends: Sequence[int | None]) -> list[bytes]:
        file = self._native.open(path)
        size = file.stat[0]
        if size < 0:
            size = 1 << 62
        places = [(_place(start, 0, size), _place(end, size, size)) for start, end in zip(starts, ends)]
        return file.read([start for start, _ in places], [max(start, end) for start, end in places])

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Many ranges of many files: of each file in one call, files in parallel."""
        starts = [starts] * len(paths) if not isinstance(starts, (list, tuple)) else starts
        ends = [ends] * len(paths) if not isinstance(ends, (list, tuple)) else ends
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("as many starts and ends as paths are needed")
        groups: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            groups.setdefault(self._strip_protocol(path), []).append(i)
        out: list[Any] = [b""] * len(paths)

        def work(item: tuple[str, list[int]]) -> None:
            path, places = item
            try:
                found: list[Any] = list(self._read(path, [starts[i] for i in places], [ends[i] for i in places]))
            except Exception as error:
                if on_error == "raise":
                    raise
                found = [error] * len(places)
            for i, piece in zip(places, found):
                out[i] = piece

        _each(work, list(groups.items()))
        return out

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """One file's bytes, or a dict of many's."""
        paths = self.expand_path(path, recursive=recursive)
        if len(paths) == 1 and not isinstance(path, list) and "*" not in str(path) and not recursive:
            return self.cat_file(paths[0])
        pieces = self.cat_ranges(paths, None, None, on_error="raise" if on_error == "raise" else "return")
        keep = on_error != "omit"
        return {name: piece for name, piece in zip(paths, pieces) if keep or not isinstance(piece, Exception)}

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, cache_options: Any = None, **kwargs: Any
    ) -> Any:
        path = self._strip_protocol(path)
        if mode in ("wb", "xb"):
            return _Written(self._native.create(path, mode == "wb"), path, mode)
        if mode != "rb":
            raise NotImplementedError(f"files are read or written as a whole, not opened with mode {mode!r}")
        return _Read(self, path, self._native.open(path), block_size or "default", cache_options, **kwargs)

    # --- changing ---

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Writes a file that is there at once, whole."""
        writer = self._native.create(self._strip_protocol(path), mode != "create")
        try:
            writer.write(value)
        except BaseException:
            writer.abort()
            raise
        writer.commit()

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self._native.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, directories with what is in them (where ``recursive``)."""
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            name = self._strip_protocol(one)
            if not recursive or not self.isdir(name):
                self._native.remove(name)
                continue
            found = super().find(name, withdirs=True, detail=True)
            _each(self._native.remove, [key for key, entry in found.items() if entry["type"] == "file"])
            below = [key for key, entry in found.items() if entry["type"] == "directory" and key != name]
            for directory in [*sorted(below, key=len, reverse=True), name]:
                self.rmdir(directory)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory; one that was only a name is gone already."""
        try:
            self._native.remove_directory(self._strip_protocol(path))
        except NotFoundError:
            pass

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory, with its parents; it must not be there yet."""
        path = self._strip_protocol(path)
        if self.exists(path):
            raise ExistsError(f"{path} is there already")
        self._native.make_directory(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory with its parents."""
        if exist_ok:
            self._native.make_directory(self._strip_protocol(path))
        else:
            self.mkdir(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file, piece by piece."""
        with self._open(path1) as source, self._open(path2, "wb") as target:
            while piece := source.read(8 << 20):
                target.write(piece)


class S3FileSystem(NativeFileSystem):
    """``sqrl+s3://bucket/key``."""

    scheme = "s3"
    protocol = ("sqrl+s3",)


class GoogleFileSystem(NativeFileSystem):
    """``sqrl+gs://bucket/key``."""

    scheme = "gs"
    protocol = ("sqrl+gs",)


class AzureFileSystem(NativeFileSystem):
    """``sqrl+az://container/key``."""

    scheme = "az"
    protocol = ("sqrl+az",)


class HTTPFileSystem(NativeFileSystem):
    """``sqrl+http://host/path``."""

    scheme = "http"
    protocol = ("sqrl+http",)


class HTTPSFileSystem(HTTPFileSystem):
    """``sqrl+https://host/path``."""

    scheme = "https"
    protocol = ("sqrl+https",)


class _Read(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read piece by piece."""

    def __init__(self, fs: Any, path: str, native: Any, block_size: Any, cache_options: Any, **kwargs: Any) -> None:
        self._native = native
        size = native.stat[0]
        kwargs.pop("size", None)
        super().__init__(
            fs, path, "rb", block_size, cache_options=cache_options, size=None if size < 0 else size, **kwargs
        )

    def _fetch_range(self, start: int, end: int) -> bytes:
        (piece,) = self._native.read([start], [end])
        return bytes(piece)


class _Written:
    """A file that appears when it is closed; after an exception in a ``with`` it does not."""

    def __init__(self, native: Any, path: str, mode: str) -> None:
        self._native, self.path, self.mode = native, path, mode
        self.closed = False
        self._at = 0

    def write(self, data: Any) -> int:
        """Adds bytes."""
        size = int(self._native.write(data))
        self._at += size
        return size

    def tell(self) -> int:
        """How many bytes were written."""
        return self._at

    def flush(self) -> None:
        """Nothing: the file is written when it is closed."""

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def close(self) -> None:
        """Makes the file appear."""
        if not self.closed:
            self.closed = True
            self._native.commit()

    def discard(self) -> None:
        """Gives the file up."""
        if not self.closed:
            self.closed = True
            self._native.abort()

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def _options(scheme: str, storage_options: dict[str, Any]) -> dict[str, Any]:
    for system in _native.file_systems():
        if scheme in system["schemes"].split("|"):
            options = native_options(system, storage_options)
            if options is None:
                names = ", ".join(option["name"] for option in system["options"])
                raise ArgumentError(f"options that the library's {scheme}:// does not know; it has {names}")
            return options
    raise ArgumentError(f"the library has no file system for {scheme}://")


def _entry(name: str, stat: tuple[int, int, bool, str]) -> dict[str, Any]:
    size, modified, directory, etag = stat
    kind = "directory" if directory else "file"
    entry: dict[str, Any] = {"name": name, "size": None if size < 0 else size, "type": kind}
    if not directory:
        entry.update({"mtime": modified / 1e9, "ETag": etag})
    return entry


def _place(place: int | None, default: int, size: int) -> int:
    if place is None:
        return default
    return max(0, size + place) if place < 0 else min(place, size)


_pool: ThreadPoolExecutor | None = None
_pool_process = 0
_pool_lock = threading.Lock()


def _each(work: Any, items: list[Any]) -> None:
    """Calls `work` for each item, in parallel where there are several."""
    global _pool, _pool_process
    if len(items) <= 1:
        for item in items:
            work(item)
        return
    with _pool_lock:
        if _pool is None or _pool_process != os.getpid():
            _pool = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="squirrel-fsspec")
            _pool_process = os.getpid()
    for done in [_pool.submit(work, item) for item in items]:
        done.result()


def _forget_lock() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)

for _kind in (S3FileSystem, GoogleFileSystem, AzureFileSystem, HTTPFileSystem, HTTPSFileSystem):
    fsspec.register_implementation(_kind.protocol[0], _kind, clobber=True)
