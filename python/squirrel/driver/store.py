"""A driver over a store of shards."""

from __future__ import annotations

from squirrel._errors import NotFoundError
from squirrel._remote import own
from squirrel.driver.driver import MapDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from squirrel.iterstream.base import Composable
    from squirrel.serialization.serializer import SquirrelSerializer
    from squirrel.store.store import AbstractStore

__all__ = ["StoreDriver"]

_SHARDS_AHEAD = 32


class StoreDriver(MapDriver):
    """Shards of a :class:`squirrel.store.SquirrelStore`.

    Args:
        url: the store's directory.
        serializer: of its shards.
        storage_options: of fsspec's file system; a cache is ``{"protocol": "simplecache",
            "target_protocol": "gs", "cache_storage": "/tmp/cache"}``.
        **kwargs: of :class:`Driver`.

    The library's threads read and decompress the shards. ``prefetch_buffer`` (see
    :meth:`MapDriver.get_iter`) says how many are open and read at a time, by default 32. Of each, at most 8 MiB of
    samples are held ahead.
    """

    name = "store_driver"

    def __init__(
        self, url: str, serializer: SquirrelSerializer, storage_options: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.serializer = serializer
        self.storage_options = storage_options if storage_options is not None else {}
        self._store: AbstractStore | None = None

    def get_iter(self, flatten: bool = True, **kwargs: Any) -> Composable:
        """A stream of the samples, or with ``flatten=False`` of iterables, one a shard.

        Args:
            flatten: samples rather than shards.
            **kwargs: see :meth:`MapDriver.get_iter`.
        """
        kwargs.setdefault("prefetch_buffer", _SHARDS_AHEAD)
        return super().get_iter(flatten=flatten, **kwargs)

    def get(self, key: Any, **kwargs: Any) -> Iterable[Any]:
        """The samples of a shard, from :attr:`store`.

        Args:
            key: of the shard.
            **kwargs: of the store's ``get``.
        """
        return self.store.get(key, **kwargs)

    def keys(self, **kwargs: Any) -> Iterable[Any]:
        """The keys of the shards, sorted, from :attr:`store`.

        Args:
            **kwargs: of the store's ``keys``.

        Raises:
            NotFoundError (a FileNotFoundError), when the first key is asked for: there is no such directory.
        """
        return self._keys(kwargs)

    def _keys(self, kwargs: dict[str, Any]) -> Iterator[Any]:
        none = True
        for key in self._shards_of(kwargs):
            none = False
            yield key
        if none:
            self._refuse_wrong_place()

    def _shards_of(self, kwargs: dict[str, Any]) -> Iterator[Any]:
        yield from self.store.keys(**kwargs)

    def _refuse_wrong_place(self) -> None:
        """No shard is there: an empty directory is an empty store, anything else a wrong URL."""
        fs, url = getattr(self.store, "fs", None), getattr(self.store, "url", None)
        if fs is None or url is None:
            return
        fs = own(fs)
        if not fs.exists(url):
            raise NotFoundError("there is no such directory", where=str(self.url))
        names = sorted(str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(url, detail=False))
        if names:
            more = " ..." if len(names) > 3 else ""
            raise NotFoundError(
                f"the directory holds no shards (*.gz), only {', '.join(names[:3])}{more}; open the one that does",
                where=str(self.url),
            )

    @property
    def store(self) -> AbstractStore:
        """The store; made when it is first asked for."""
        if self._store is None:
            from squirrel.store.squirrel_store import SquirrelStore

            self._store = SquirrelStore(self.url, serializer=self.serializer, **self.storage_options)
        return self._store


def refuse_store(name: str, kwargs: dict[str, Any]) -> None:
    """What makes its own store takes none."""
    if "store" in kwargs:
        raise ValueError(f"driver {name!r} makes its store from url: leave `store` out")
