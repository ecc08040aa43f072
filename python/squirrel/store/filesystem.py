"""A store of files."""

from __future__ import annotations

import os
import secrets
import string
import typing as t

from squirrel._remote import own
from squirrel.framework.io import UNFINISHED
from squirrel.store.store import AbstractStore

if t.TYPE_CHECKING:
    from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["FilesystemStore", "get_random_key"]


def get_random_key(length: int = 16) -> str:
    """A random key of capitals and digits.

    The system's random numbers, whatever the program seeds: processes never draw the same.
    """
    return "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(length))


class FilesystemStore(AbstractStore):
    """A directory, local or at any URL that fsspec knows: a file for each item.

    Args:
        url: the directory; it is made when the first item is set.
        serializer: of the items; without one they are bytes.
        clean: remove all that the directory holds, now.
        **storage_options: of fsspec's file system.
    """

    def __init__(
        self, url: str, serializer: t.Optional[SquirrelSerializer] = None, clean: bool = False, **storage_options: t.Any
    ) -> None:
        from squirrel.fsspec.fs import get_fs_from_url

        self.url = str(url).rstrip("/") or "/"
        self.storage_options = storage_options
        self.serializer = serializer
        self.fs = get_fs_from_url(self.url, **storage_options)
        self._dir_exists = False
        if clean and self.fs.exists(self.url):
            self.fs.rm(self.url, recursive=True)

    def _path(self, key: t.Any) -> str:
        """The file of a key; one that leads out of the directory is refused."""
        key = os.fspath(key)
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"the key {key!r} leads out of the store {self.url}; keys are relative paths")
        return f"{self.url}/{key}"

    def _make_room(self, path: str) -> None:
        """Makes the directories that the file needs."""
        folder = path.rpartition("/")[0]
        if folder == self.url and self._dir_exists:
            return
        own(self.fs).makedirs(folder, exist_ok=True)
        self._dir_exists = True

    def get(self, key: str, mode: str = "rb", **open_kwargs: t.Any) -> t.Any:
        """The item under a key.

        Args:
            key: of the item.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``.

        Raises:
            FileNotFoundError: there is none.
        """
        from squirrel.framework.io import read_from_file

        return read_from_file(self._path(key), own(self.fs), self.serializer, mode=mode, **open_kwargs)

    def set(self, value: t.Any, key: t.Optional[str] = None, mode: str = "wb", **open_kwargs: t.Any) -> None:
        """Keeps an item.

        Args:
            value: the item.
            key: of the item; a random one by default, that no other process has.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``.
        """
        from squirrel.framework.io import write_to_file

        path = self._path(get_random_key() if key is None else key)
        self._make_room(path)
        write_to_file(path, value, own(self.fs), self.serializer, mode=mode, **open_kwargs)

    def keys(self, nested: bool = True, **kwargs: t.Any) -> t.Iterator[str]:
        """The paths of all files relative to the directory, sorted; none where there is no directory.

        Files that a process has not finished to write are left out.

        Args:
            nested: also those in subdirectories; otherwise what lies in the directory itself: files, and
                subdirectories by their name.
            **kwargs: other storage options than the store's; those of ``FilePathGenerator`` are accepted
                and need no choice here.
        """
        yield from sorted(self._paths(nested, kwargs))

    def _paths(self, nested: bool, kwargs: dict[str, t.Any]) -> t.Iterator[str]:
        options = {k: v for k, v in kwargs.items() if k not in ("max_workers", "max_keys", "max_dirs")}
        fs = own(self.fs)
        if options:
            from squirrel.fsspec.fs import get_fs_from_url

            fs = get_fs_from_url(self.url, **{**self.storage_options, **options})
        root = fs._strip_protocol(self.url).rstrip("/")
        try:
            found = fs.find(root) if nested else fs.ls(root, detail=False)
        except FileNotFoundError:
            return
        for path in found:
            path = str(path).rstrip("/")
            if path.startswith(root + "/") and not path.endswith(UNFINISHED):
                yield path[len(root) + 1 :]
