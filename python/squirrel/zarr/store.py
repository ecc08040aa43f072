"""zarr's store over fsspec, with squirrel's file systems."""

from __future__ import annotations

import typing as t

from squirrel.zarr._version import ZARR_2

if ZARR_2:
    from squirrel.zarr._store2 import SquirrelFSStore
else:
    from squirrel.zarr._store3 import SquirrelFSStore

if t.TYPE_CHECKING:
    from numcodecs.abc import Codec

__all__ = ["SquirrelFSStore", "suggest_compression"]


def suggest_compression() -> Codec:
    """A codec for arrays that compresses well and is quick to decompress."""
    from numcodecs import Blosc

    return Blosc(cname="lz4hc", clevel=5, shuffle=Blosc.BITSHUFFLE)
