"""The store for zarr 2."""

from __future__ import annotations

import typing as t

from zarr.errors import FSPathExistNotDir
from zarr.storage import FSStore

from squirrel.zarr import _listing
from squirrel.zarr.key import normalize_key

if t.TYPE_CHECKING:
    from squirrel.constants import URL


class SquirrelFSStore(FSStore):  # type: ignore[misc]
    """zarr's FSStore over squirrel's file systems.

    Args:
        url: the store's directory.
        key_separator: stands between the numbers of a chunk.
        mode: "r", "w" or "a".
        exceptions: what counts for a missing key when data are read.
        check_exists: refuse a `url` that is no directory.
        **storage_options: of fsspec's file system.

    Raises:
        FSPathExistNotDir: with `check_exists`, `url` is no directory.
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
        url = str(url)
        fs = _listing.file_system(url, storage_options)
        super().__init__(url, mode=mode, exceptions=exceptions, dimension_separator=key_separator, fs=fs)
        self.url = url
        if check_exists and fs.exists(self.path) and not fs.isdir(self.path):
            raise FSPathExistNotDir(url)

    def _full(self, path: URL | None) -> str:
        inner = normalize_key(str(path)).strip("/") if path else ""
        return f"{self.path}/{inner}" if inner else str(self.path)

    def listdir(self, path: URL | None = None) -> t.List[str]:
        """What lies below a path, without zarr's and squirrel's own."""
        return _listing.names(self.fs, self._full(path))

    def getsize(self, path: URL | None = None) -> int:
        """The bytes of all that lies below a path."""
        return _listing.size(self.fs, self._full(path))
