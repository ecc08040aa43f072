"""The store for zarr 3."""

from __future__ import annotations

import typing as t

from zarr.storage import FsspecStore

from squirrel.fsspec.fs import get_fs_from_url
from squirrel.zarr import _listing
from squirrel.zarr.key import normalize_key

if t.TYPE_CHECKING:
    from squirrel.constants import URL


class SquirrelFSStore(FsspecStore):  # type: ignore[misc]
    """zarr's FsspecStore over squirrel's file systems.

    Args:
        url: the store's directory.
        key_separator: accepted for zarr 2's sake; arrays have their own now.
        mode: "r" opens it for reading only.
        exceptions: what counts for a missing key when data are read.
        check_exists: refuse a `url` that is no directory.
        **storage_options: of fsspec's file system.

    Raises:
        NotADirectoryError: with `check_exists`, `url` is no directory.
    """

    def __init__(
        self,
        url: URL,
        key_separator: str = ".",
        mode: str = "w",
        exceptions: t.Sequence[t.Type[Exception]] = (KeyError, PermissionError, IOError),
        check_exists: bool = False,
        **storage_options: t.Any,
    ) -> None:
        self.url = str(url)
        self.key_separator = key_separator
        self.mode = mode
        self._storage_options = dict(storage_options)
        self._sync_fs = _listing.file_system(self.url, storage_options)
        path = self._sync_fs._strip_protocol(self.url)
        super().__init__(
            fs=_asynchronous(self._sync_fs, self.url, storage_options),
            read_only=mode == "r",
            path=path,
            allowed_exceptions=tuple({*exceptions, FileNotFoundError, IsADirectoryError, NotADirectoryError}),
        )
        if check_exists:
            _listing.require_directory(self._sync_fs, path)

    def with_read_only(self, read_only: bool = False) -> SquirrelFSStore:
        """The same store, for reading only or not."""
        mode = "r" if read_only else ("a" if self.mode == "r" else self.mode)
        return type(self)(self.url, self.key_separator, mode, **self._storage_options)

    def _full(self, path: URL | None) -> str:
        inner = normalize_key(str(path)).strip("/") if path else ""
        return f"{self.path}/{inner}" if inner else str(self.path)

    def listdir(self, path: URL | None = None) -> t.List[str]:
        """What lies below a path, without zarr's and squirrel's own."""
        return _listing.names(self._sync_fs, self._full(path))

    def getsize(self, path: URL | None = None) -> t.Any:
        """The bytes of all that lies below a path."""
        return _listing.size(self._sync_fs, self._full(path))


def _asynchronous(fs: t.Any, url: str, storage_options: dict[str, t.Any]) -> t.Any:
    if fs.async_impl:
        return get_fs_from_url(url, **{**storage_options, "asynchronous": True})
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    return AsyncFileSystemWrapper(fs, asynchronous=True)
