"""The plug-ins of this process, loaded once, when something asks for them.

One that fails is named in a warning of the logger ``squirrel`` and in :func:`failed_plugins`; the others work.
"""

from __future__ import annotations

import logging
import threading
from importlib import metadata
from itertools import count

import pluggy

from squirrel.framework.plugins import PLUGGY_HOOKGROUP, hookimpl, hookspec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from squirrel.catalog.catalog import CatalogKey
    from squirrel.catalog.source import Source
    from squirrel.driver.driver import Driver

__all__ = [
    "failed_plugins",
    "list_driver_names",
    "plugin_drivers",
    "plugin_sources",
    "register_driver",
    "register_source",
    "squirrel_plugin_manager",
]


class _PluginManager(pluggy.PluginManager):
    """Loads the entry points when ``hook`` is used for the first time."""

    def __init__(self, group: str) -> None:
        self._loading = threading.RLock()
        self._loaded = True  # until the hooks are specified, nothing must load
        self.failed: dict[str, str] = {}
        super().__init__(group)
        self.add_hookspecs(hookspec)
        self.register(hookimpl, name="squirrel")
        self._loaded = False

    @property  # type: ignore[misc]
    def hook(self) -> Any:
        """The hooks, of all plug-ins."""
        self._load()
        return self._hooks

    @hook.setter
    def hook(self, hooks: Any) -> None:
        self._hooks = hooks

    def _load(self) -> None:
        if self._loaded:
            return
        with self._loading:
            if self._loaded:
                return
            self._loaded = True  # what a plug-in imports may ask for drivers, too
            for point in _entry_points():
                self._load_one(point)

    def _load_one(self, point: metadata.EntryPoint) -> None:
        if self.has_plugin(point.name) or self.is_blocked(point.name):
            return
        try:
            plugin = point.load()
            if self.is_registered(plugin):  # under two names
                return
            self.register(plugin, name=point.name)
        except Exception as error:
            self.fail(_title(point), error)

    def fail(self, name: str, error: Exception) -> None:
        """Notes a plug-in that does not work."""
        self.failed[name] = f"{type(error).__name__}: {error}"
        logging.getLogger("squirrel").warning("the plug-in %s could not be loaded: %s", name, self.failed[name])

    def offers(self, hook: str) -> Iterator[tuple[str, list[Any]]]:
        """(name, what it gives) of each plug-in, the latest registered first; one that fails is noted and left out."""
        for implementation in reversed(getattr(self.hook, hook).get_hookimpls()):
            if implementation.plugin_name in self.failed:
                continue
            try:
                found = list(implementation.function() or ())
            except Exception as error:
                self.fail(implementation.plugin_name, error)
                continue
            yield implementation.plugin_name, found

    def gather(self, hook: str) -> Iterator[Any]:
        """What all plug-ins give, one after another."""
        for _, found in self.offers(hook):
            yield from found


def _entry_points() -> list[metadata.EntryPoint]:
    """One of each name: a package that is installed twice on the path counts once."""
    points: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=PLUGGY_HOOKGROUP):
        points.setdefault(point.name, point)
    return list(points.values())


def _title(point: metadata.EntryPoint) -> str:
    package = point.dist.metadata["Name"] if point.dist is not None else None
    return f"{point.name} of {package}" if package else point.name


squirrel_plugin_manager = _PluginManager(PLUGGY_HOOKGROUP)


class _Plugin:
    """What is registered by code, as a plug-in."""

    def __init__(self, drivers: list[Any], sources: list[Any]) -> None:
        if drivers:
            self.squirrel_drivers = hookimpl.hookimpl(lambda: list(drivers))
        if sources:
            self.squirrel_sources = hookimpl.hookimpl(lambda: list(sources))


_numbers = count(1)


def _register(drivers: list[Any], sources: list[Any]) -> None:
    squirrel_plugin_manager.register(_Plugin(drivers, sources), name=f"registered-{next(_numbers)}")


def register_driver(driver: type[Driver]) -> None:
    """Makes a driver known to catalogs, by its ``name``; it goes before others of that name."""
    if not isinstance(getattr(driver, "name", None), str):
        raise TypeError(f"{driver!r} has no name: give the class an attribute name, a str")
    _register([driver], [])


def register_source(identifier: str, source: Source, version: int = 1) -> None:
    """Adds a source to what ``Catalog.from_plugins`` gives."""
    from squirrel.catalog.catalog import CatalogKey

    _register([], [(CatalogKey(identifier, version), source)])


def plugin_drivers() -> list[type[Driver]]:
    """The drivers of all plug-ins that work, the latest registered first."""
    return list(squirrel_plugin_manager.gather("squirrel_drivers"))


def plugin_sources() -> list[tuple[CatalogKey, Source]]:
    """The sources of all plug-ins that work, the latest registered first."""
    return list(squirrel_plugin_manager.gather("squirrel_sources"))


def failed_plugins() -> dict[str, str]:
    """The plug-ins that could not be loaded, and why."""
    squirrel_plugin_manager._load()
    return dict(squirrel_plugin_manager.failed)


def list_driver_names() -> list[str]:
    """The names of all drivers, the latest registered first."""
    return [driver.name for driver in plugin_drivers()]
