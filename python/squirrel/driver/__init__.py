"""Drivers: what a catalog's source names, and what opens it."""

from __future__ import annotations

import os

from squirrel import _native
from squirrel.stream import Stream, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = [
    "Driver",
    "IdxDriver",
    "IterDriver",
    "JsonlDriver",
    "MessagepackDriver",
    "NativeDriver",
    "SqrlDriver",
    "driver_class",
]


class Driver:
    """Base class: something that a source in a catalog can name.

    Attributes:
        name: what ``driver_name`` in a catalog says.
    """

    name: str = ""

    def __init__(self, catalog: object = None, **kwargs: object) -> None:
        self._catalog = catalog


class IterDriver(Driver):
    """A driver whose samples can be iterated."""

    def get_iter(self, **kwargs: Any) -> Any:
        """A stream of samples."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to iterate: define get_iter")


class NativeDriver(IterDriver):
    """A driver of the C library: opens files of one format.

    Args:
        url: file or directory.
        catalog: the catalog that the source stands in.
        storage_options: options of the URL's file system; local files have none.
        **options: of the driver and its format, see :func:`squirrel.drivers`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        catalog: object = None,
        storage_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(catalog=catalog)
        self.url = os.fspath(url)
        self.storage_options = storage_options or {}
        self.options = options

    def get_iter(self, **kwargs: Any) -> Stream:
        """The samples as a :class:`squirrel.Stream`; arguments add to the options given before.

        Raises:
            NotFoundError: nothing is at the URL. FormatError: it is of another format.
        """
        return open(self.url, driver=self.name, **self._settings(kwargs))

    def _settings(self, more: dict[str, Any]) -> dict[str, Any]:
        """All options by name: the library gives each to its owner, and refuses unknown ones.

        A file system without any options ignores those for storage, as fsspec's local one does.
        """
        storage = {**self.storage_options, **(more.pop("storage_options", None) or {})}
        return {**(storage if _has_options(self.url) else {}), **self.options, **more}

    def keys(self) -> Iterator[str]:
        """The shards: their names, without ".gz"."""
        return iter(self._paths())

    def get(self, key: str, **kwargs: Any) -> Stream:
        """The samples of one shard.

        Raises:
            KeyError: there is no such shard.
        """
        paths = self._paths()
        if key not in paths:
            raise KeyError(f"there is no shard {key!r} in {self.url}")
        return open(paths[key], driver=self.name, **self._settings(kwargs))

    def _paths(self) -> dict[str, str]:
        paths = [str(shard["path"]) for shard in self.get_iter().shards]
        root = self.url.rstrip("/") + "/"
        names = [p.removeprefix(root) if p.startswith(root) else os.path.basename(p) for p in paths]
        return {name.removesuffix(".gz"): path for name, path in zip(names, paths)}

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.url!r}{more})"


def _has_options(url: str) -> bool:
    scheme, mark, _ = url.partition("://")
    for system in _native.file_systems() if mark else ():
        if scheme in system["schemes"].split("|"):
            return bool(system["options"])
    return False


class SqrlDriver(NativeDriver):
    """Native shards: one file, or a directory with its commits."""

    name = "sqrl"


class MessagepackDriver(NativeDriver):
    """MessagePack samples one after another: squirrel-core's store with MessagepackSerializer."""

    name = "messagepack"


class JsonlDriver(NativeDriver):
    """JSON lines, plain or compressed: also squirrel-core's store with JsonSerializer."""

    name = "jsonl"


class IdxDriver(NativeDriver):
    """IDX files: images with their labels."""

    name = "idx"


def driver_class(name: str) -> type[NativeDriver]:
    """The class of a driver by its name, e.g. ``"sqrl"`` or ``"jsonl"``.

    Raises:
        ValueError: there is none of that name; the message lists those there are.
    """
    import squirrel

    for known in (SqrlDriver, MessagepackDriver, JsonlDriver, IdxDriver):
        if known.name == name:
            return known
    names = [str(driver["name"]) for driver in squirrel.drivers()]
    if name not in names:
        raise ValueError(f"driver {name!r} is not known; there are {', '.join(names)}")
    made = type(f"{name.capitalize()}Driver", (NativeDriver,), {"name": name, "__module__": __name__})
    return made
