"""Drivers of the library: formats that squirrel-core does not have."""

from __future__ import annotations

import os

from squirrel.driver.driver import IterDriver
from squirrel.stream import Stream, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from squirrel.driver.driver import Driver

__all__ = ["IdxDriver", "NativeDriver", "SqrlDriver", "driver_class"]


class NativeDriver(IterDriver):
    """A driver of the C library: opens files of one format.

    Args:
        url: file or directory, local or at any URL that fsspec knows.
        catalog: the catalog that the source stands in.
        storage_options: of fsspec's file system; local files need none.
        **options: of the driver and its format, see :func:`squirrel.drivers`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        catalog: Any = None,
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
        return self._open(self.url, kwargs)

    def _open(self, url: str, kwargs: dict[str, Any]) -> Stream:
        storage = {**self.storage_options, **(kwargs.pop("storage_options", None) or {})}
        options = {**self.options, **kwargs, **({"storage_options": storage} if storage else {})}
        return open(url, driver=self.name, **options)

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
        return self._open(paths[key], kwargs)

    def _paths(self) -> dict[str, str]:
        paths = [str(shard["path"]) for shard in self.get_iter().shards]
        root = self.url.rstrip("/") + "/"
        names = [p.removeprefix(root) if p.startswith(root) else os.path.basename(p) for p in paths]
        return {name.removesuffix(".gz"): path for name, path in zip(names, paths)}

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.url!r}{more})"


class SqrlDriver(NativeDriver):
    """Native shards: one file, or a directory with its commits."""

    name = "sqrl"


class IdxDriver(NativeDriver):
    """IDX files: images with their labels."""

    name = "idx"


def driver_class(name: str) -> type[Driver]:
    """The class of a driver by its name: one of a plug-in, of this package, or of the library.

    Raises:
        ValueError: there is none of that name; the message lists those there are, and the plug-ins that
            could not be loaded.
    """
    from squirrel.framework.plugins.plugin_manager import failed_plugins, plugin_drivers

    for known in plugin_drivers():
        if known.name == name:
            return known
    import squirrel

    names = [str(driver["name"]) for driver in squirrel.drivers()]
    if name in names:
        title = f"{name.capitalize()}Driver"
        return type(title, (NativeDriver,), {"name": name, "__module__": __name__})
    names += sorted({driver.name for driver in plugin_drivers()} - set(names))
    text = f"driver {name!r} is not known; there are {', '.join(names)}"
    for plugin, why in failed_plugins().items():
        text += f"; the plug-in {plugin} could not be loaded ({why})"
    raise ValueError(text)
