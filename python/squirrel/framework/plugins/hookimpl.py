"""This package's own drivers, and what plug-ins mark their hooks with."""

from typing import TYPE_CHECKING, List, Type

import pluggy

from squirrel.framework.plugins import PLUGGY_HOOKGROUP

if TYPE_CHECKING:
    from squirrel.driver.driver import Driver

hookimpl = pluggy.HookimplMarker(PLUGGY_HOOKGROUP)


@hookimpl
def squirrel_drivers() -> "List[Type[Driver]]":
    """The drivers of this package."""
    from squirrel import driver
    from squirrel.artifact_manager.drivers import DirectoryDriver

    return [
        driver.CsvDriver,
        driver.FeatherDriver,
        driver.FileDriver,
        driver.JsonlDriver,
        driver.MessagepackDriver,
        driver.ParquetDriver,
        driver.SourceCombiner,
        driver.StoreDriver,
        driver.ExcelDriver,
        driver.ZarrDriver,
        driver.SqrlDriver,
        driver.IdxDriver,
        DirectoryDriver,
    ]
