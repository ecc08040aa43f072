"""The driver of artifacts that are files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from squirrel.driver.store import StoreDriver, refuse_store

if TYPE_CHECKING:
    from squirrel.store.store import AbstractStore

__all__ = ["DirectoryDriver"]


class DirectoryDriver(StoreDriver):
    """All files of a directory; an item is a file's bytes, its key the path below the directory.

    ``get_iter(flatten=False)`` gives the files' bytes one after another.

    Args:
        url: the directory.
        storage_options: of fsspec's file system.
        **kwargs: of :class:`squirrel.driver.Driver`.
    """

    name = "directory"

    def __init__(self, url: str, storage_options: Optional[dict[str, Any]] = None, **kwargs: Any) -> None:
        refuse_store(self.name, kwargs)
        super().__init__(url=url, serializer=None, storage_options=storage_options, **kwargs)  # type: ignore[arg-type]

    @property
    def store(self) -> AbstractStore:
        """The store; made when it is first asked for."""
        if self._store is None:
            from squirrel.store.filesystem import FilesystemStore

            self._store = FilesystemStore(self.url, **self.storage_options)
        return self._store
