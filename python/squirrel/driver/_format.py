"""Drivers over stores whose format the library reads."""

from __future__ import annotations

import inspect
import logging
import os

from squirrel import _native
from squirrel._errors import NotFoundError
from squirrel._remote import is_local, own
from squirrel.driver.driver import MapDriver
from squirrel.driver.store import StoreDriver, refuse_store
from squirrel.store.filesystem import FilesystemStore
from squirrel.store.squirrel_store import SquirrelStore
from squirrel.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from squirrel.iterstream.base import Composable

__all__ = ["FormatDriver"]

_CHOICES: dict[str, dict[str, Any]] = {"messagepack": {"use_list": False}}  # as squirrel-core reads them


class FormatDriver(StoreDriver):
    """A store driver that also reads single files, and directories of files with the format's own suffix.

    Where neither keys nor items are chosen or shuffled, the stream of a local directory is a
    :class:`squirrel.Stream`: ``filter("expression")``, ``shuffle_all``, ``batch`` and the like run natively.
    """

    def __init__(
        self, url: Any, serializer: Any, storage_options: dict[str, Any] | None, kwargs: dict[str, Any]
    ) -> None:
        refuse_store(self.name, kwargs)
        catalog = kwargs.pop("catalog", None)
        cache = kwargs.pop("cache", None)
        if storage_options and "cache" in storage_options:
            storage_options = dict(storage_options)
            cache = storage_options.pop("cache") if cache is None else cache
        super().__init__(os.fspath(url), serializer, storage_options, catalog=catalog)
        known = _option_names(self.name)
        self._options = {name: value for name, value in kwargs.items() if name in known}
        if cache is not None:
            self._options["cache"] = os.fspath(cache)
        unknown = sorted(set(kwargs) - known)
        if unknown:
            text = "driver %s has no option %s; it has %s"
            there = ", ".join(sorted(known)) or "none"
            logging.getLogger("squirrel").warning(text, self.name, ", ".join(unknown), there)

    def _is_file(self) -> bool:
        store: Any = self.store
        return bool(own(store.fs).isfile(store.url))

    def _plain(self) -> bool:
        """Whether no subclass has its own way to list or get shards."""
        kind = type(self)
        return kind.get is FormatDriver.get and kind.keys is StoreDriver.keys and type(self.store) is SquirrelStore

    def get_iter(self, flatten: bool = True, **kwargs: Any) -> Composable:
        """A stream of the samples, see :meth:`MapDriver.get_iter`, or of one iterable a shard.

        Args:
            flatten: samples rather than shards.
            **kwargs: see :meth:`MapDriver.get_iter`; options of the format too.

        Raises:
            TypeError: an argument that neither of them has.
        """
        known = _option_names(self.name)
        options = {name: kwargs.pop(name) for name in list(kwargs) if name in known}
        storage = {**self.storage_options, **(kwargs.pop("storage_options", None) or {})}
        inspect.signature(MapDriver.get_iter).bind(self, flatten=flatten, **kwargs)
        # No keys are a choice, too.
        chosen = kwargs.get("keys_iterable") is not None
        chosen = chosen or any(kwargs.get(name) for name in ("key_hooks", "keys_kwargs", "get_kwargs"))
        shuffled = max(kwargs.get("shuffle_key_buffer", 1), kwargs.get("shuffle_item_buffer", 1)) > 1
        if flatten and not chosen and not shuffled and self._plain():
            stream = self._stream({**options, **({"storage_options": storage} if storage else {})})
            if stream is not None:
                return stream
        if options:
            kwargs["get_kwargs"] = {**(kwargs.get("get_kwargs") or {}), **options}
        return super().get_iter(flatten=flatten, **kwargs)

    def _stream(self, options: dict[str, Any]) -> Stream | None:
        """One native stream over all shards of a local directory; None where the store knows better, or says why."""
        if not is_local(self.url, self.storage_options) or getattr(self.serializer, "deser_hook", None) is not None:
            return None
        if not os.path.exists(self.url.removeprefix("file://")):
            return None
        try:
            shards = sum(1 for _ in self.keys())
        except NotFoundError:
            return None
        chosen = {**_CHOICES.get(self.name, {}), **self._options, **options}
        stream = Stream(self.url, {"driver": self.name, **chosen}) if shards else None
        return stream if stream is not None and len(stream.shards) == shards else None

    def get(self, key: Any, **kwargs: Any) -> Iterable[Any]:
        """The samples of a shard.

        Args:
            key: of the shard.
            **kwargs: of the serializer's ``deserialize_shard_from_file``.

        Raises:
            FileNotFoundError: there is none.
        """
        store: Any = self.store
        kwargs = {**self._options, **kwargs}
        if type(store) is not SquirrelStore:
            return store.get(key, **kwargs)  # type: ignore[no-any-return]
        path = store.url if self._is_file() else None
        if path is None and str(key).endswith(_suffixes(self.name)):
            if not own(store.fs).exists(store._path(f"{key}.gz")):
                path = store._path(key)
        if path is None:
            return store.get(key, **kwargs)
        return self.serializer.deserialize_shard_from_file(path, fs=own(store.fs), **kwargs)

    def _shards_of(self, kwargs: dict[str, Any]) -> Iterator[Any]:
        yield from super()._shards_of(kwargs)
        store: Any = self.store
        if type(store) is not SquirrelStore:
            return
        if self._is_file():
            yield store.url.rpartition("/")[2]
            return
        for name in FilesystemStore.keys(store, **{"nested": False, **kwargs}):
            if name.endswith(_suffixes(self.name)) and not name.endswith(".gz"):
                yield name


def _option_names(driver: str) -> set[str]:
    names: set[str] = set()
    for listed in (*_native.drivers(), *_native.formats()):
        if listed["name"] == driver:
            names.update(option["name"] for option in listed["options"])
    return names


def _suffixes(format: str) -> tuple[str, ...]:
    for listed in _native.formats():
        if listed["name"] == format:
            return tuple(s for s in listed["suffixes"].split("|") if s and not s.endswith(".gz"))
    return ()
