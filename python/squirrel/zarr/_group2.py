"""Groups for zarr 2."""

from __future__ import annotations

import typing as t

from zarr.errors import ReadOnlyError
from zarr.hierarchy import Group
from zarr.storage import contains_group, init_group

from squirrel.zarr.store import SquirrelFSStore
from squirrel.zarr.sync import SquirrelThreadSynchronizer

if t.TYPE_CHECKING:
    from collections.abc import MutableMapping

    from zarr.sync import ThreadSynchronizer

    from squirrel.constants import URL


class SquirrelGroup(Group):  # type: ignore[misc]
    """A zarr group whose :meth:`keys` asks the file system.

    Args:
        store: of the group.
        path: of the group in the store.
        read_only: refuse to write.
        chunk_store: for chunks, where they lie elsewhere.
        cache_attrs: keep the attributes that were read.
        synchronizer: locks of its arrays.

    Raises:
        Exception: there is no group.
    """

    def __init__(
        self,
        store: MutableMapping[str, t.Any],
        path: URL | None = None,
        read_only: bool = False,
        chunk_store: MutableMapping[str, t.Any] | None = None,
        cache_attrs: bool = True,
        synchronizer: ThreadSynchronizer | None = None,
    ) -> None:
        if not contains_group(store, path=path):
            raise Exception(f"Group not found at path {getattr(store, 'url', '')}{'/' + str(path) if path else ''}")
        super().__init__(store, path, read_only, chunk_store, cache_attrs, synchronizer)

    def __reduce__(self) -> tuple[t.Any, ...]:
        arguments = (self.store, self.path, self.read_only, self._chunk_store, self.attrs.cache, self.synchronizer)
        return type(self), arguments

    def keys(self, prefix: str = "") -> t.Generator[str, None, None]:
        """The names one level below `prefix`, sorted."""
        inner = "/".join(part for part in (self.path, prefix.strip("/")) if part)
        yield from self.store.listdir(inner or None)


def get_group(path: URL, mode: str = "a", overwrite: bool = False, **storage_options: t.Any) -> SquirrelGroup:
    """Opens a group; makes it where it is not there, unless `mode` is "r".

    Args:
        path: URL of the group.
        mode: "r" for reading only, "w" or "a".
        overwrite: remove what is there.
        **storage_options: of fsspec's file system.

    Raises:
        ReadOnlyError: `overwrite` with mode "r".
    """
    if mode == "r" and overwrite:
        raise ReadOnlyError()
    store = SquirrelFSStore(path, mode=mode, **storage_options)
    if mode != "r" and (overwrite or not contains_group(store)):
        init_group(store, overwrite=overwrite)
    return SquirrelGroup(store, read_only=mode == "r", synchronizer=SquirrelThreadSynchronizer())
