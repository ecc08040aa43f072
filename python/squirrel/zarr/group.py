"""zarr's group, whose keys are listed by the file system: one request, whatever their number."""

from __future__ import annotations

from squirrel.zarr._version import ZARR_2

if ZARR_2:
    from squirrel.zarr._group2 import SquirrelGroup, get_group
else:
    from squirrel.zarr._group3 import SquirrelGroup, get_group

__all__ = ["SquirrelGroup", "get_group"]
