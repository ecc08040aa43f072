"""The hooks that a plug-in may implement."""

from typing import TYPE_CHECKING, List, Tuple, Type

import pluggy

from squirrel.framework.plugins import PLUGGY_HOOKGROUP

if TYPE_CHECKING:
    from squirrel.catalog.catalog import CatalogKey
    from squirrel.catalog.source import Source
    from squirrel.driver.driver import Driver

hookspec = pluggy.HookspecMarker(PLUGGY_HOOKGROUP)


@hookspec
def squirrel_drivers() -> "List[Type[Driver]]":
    """Drivers that catalogs may name."""
    raise NotImplementedError


@hookspec
def squirrel_sources() -> "List[Tuple[CatalogKey, Source]]":
    """Sources of ``Catalog.from_plugins``, each under its name and version."""
    raise NotImplementedError
