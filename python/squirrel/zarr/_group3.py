"""Groups for zarr 3."""

from __future__ import annotations

import typing as t

import zarr

from squirrel.zarr.store import SquirrelFSStore

if t.TYPE_CHECKING:
    from collections.abc import MutableMapping

    from squirrel.constants import URL


class ReadOnlyError(PermissionError):
    """A store that is open for reading only would have to be written; zarr 2's error of the same name."""


class SquirrelGroup(zarr.Group):  # type: ignore[misc]
    """A zarr group whose :meth:`keys` asks the file system.

    Args:
        store: of the group, or zarr's asynchronous group.
        path: of the group in the store.
        read_only: refuse to write.
        chunk_store, cache_attrs, synchronizer: zarr 2's; accepted and without effect.

    Raises:
        Exception: there is no group.
    """

    def __init__(
        self,
        store: MutableMapping[str, t.Any] | t.Any,
        path: URL | None = None,
        read_only: bool = False,
        chunk_store: MutableMapping[str, t.Any] | None = None,
        cache_attrs: bool = True,
        synchronizer: t.Any = None,
    ) -> None:
        if not isinstance(store, zarr.AsyncGroup):
            try:
                inner = None if path is None else str(path)
                found = zarr.open_group(store, mode="r" if read_only else "r+", path=inner)
            except FileNotFoundError as error:
                raise Exception(f"Group not found at path {getattr(store, 'url', store)}") from error
            store = found._async_group
        super().__init__(store)

    def keys(self, prefix: str = "") -> t.Generator[str, None, None]:
        """The names one level below `prefix`, sorted."""
        inner = "/".join(part for part in (self.path, prefix.strip("/")) if part)
        if isinstance(self.store, SquirrelFSStore):
            yield from self.store.listdir(inner or None)
        else:
            yield from (super().keys() if not prefix else self[prefix].keys())


def get_group(path: URL, mode: str = "a", overwrite: bool = False, **storage_options: t.Any) -> SquirrelGroup:
    """Opens a group; makes it (in zarr's format 2) where it is not there, unless `mode` is "r".

    Args:
        path: URL of the group.
        mode: "r" for reading only, "w" or "a".
        overwrite: remove what is there.
        **storage_options: of fsspec's file system.

    Raises:
        ReadOnlyError: `overwrite` with mode "r".
    """
    if mode == "r" and overwrite:
        raise ReadOnlyError("a group that is opened for reading only can't be overwritten")
    store = SquirrelFSStore(path, mode=mode, **storage_options)
    if mode != "r" and (overwrite or not _is_group(store)):
        zarr.create_group(store, overwrite=overwrite, zarr_format=2)
    return SquirrelGroup(store, read_only=mode == "r")


def _is_group(store: SquirrelFSStore) -> bool:
    fs, path = store._sync_fs, store.path
    return any(fs.exists(f"{path}/{name}") for name in (".zgroup", "zarr.json"))
