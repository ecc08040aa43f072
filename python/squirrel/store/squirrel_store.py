"""A store of shards."""

from __future__ import annotations

import typing as t

from squirrel._remote import own
from squirrel.store.filesystem import FilesystemStore, get_random_key

if t.TYPE_CHECKING:
    from squirrel.constants import SampleType, ShardType
    from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["SquirrelStore"]


class SquirrelStore(FilesystemStore):
    """A directory of shards ``<key>.gz``: lists of samples, compressed with gzip.

    Args:
        url: the directory; it is made when the first shard is set.
        serializer: of the shards, e.g. ``MessagepackSerializer()``.
        clean: remove all that the directory holds, now.
        **storage_options: of fsspec's file system.
    """

    def __init__(self, url: str, serializer: SquirrelSerializer, clean: bool = False, **storage_options: t.Any) -> None:
        super().__init__(url=url, serializer=serializer, clean=clean, **storage_options)

    def get(self, key: str, **kwargs: t.Any) -> t.Iterator[SampleType]:
        """The samples of a shard; the library's threads begin to read it at once.

        Args:
            key: of the shard.
            **kwargs: of the serializer's ``deserialize_shard_from_file``.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.serializer.deserialize_shard_from_file(  # type: ignore[union-attr, return-value]
            self._path(f"{key}.gz"), fs=own(self.fs), **kwargs
        )

    def set(self, value: t.Union[SampleType, ShardType], key: t.Optional[str] = None, **kwargs: t.Any) -> None:
        """Keeps a shard.

        Args:
            value: a list of samples; anything else is one sample.
            key: of the shard; a random one by default, that no other process has.
            **kwargs: of the serializer's ``serialize_shard_to_file``.
        """
        shard = value if isinstance(value, list) else [value]
        path = self._path(f"{get_random_key() if key is None else key}.gz")
        self._make_room(path)
        self.serializer.serialize_shard_to_file(shard, path, fs=own(self.fs), **kwargs)  # type: ignore[union-attr]

    def keys(self, nested: bool = False, **kwargs: t.Any) -> t.Iterator[str]:
        """The keys of all shards, sorted.

        Args:
            nested: also those of subdirectories, such as ``"train/0"``.
            **kwargs: see :meth:`FilesystemStore.keys`.
        """
        for path in super().keys(nested=nested, **kwargs):
            if path.endswith(".gz"):
                yield path[:-3]
