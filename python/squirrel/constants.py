"""Names and types that several modules share."""

from __future__ import annotations

import random
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

SQUIRREL_DIR = ".squirrel"
SQUIRREL_PREFIX = ".squirrel_"
SQUIRREL_BUCKET = "gs://squirrel-core-public-data"
SQUIRREL_TMP_DATA_BUCKET = "gs://squirrel-core-public-data-tmp"

URL = Union[str, Path]
SampleType = Dict[str, Any]
ShardType = List[SampleType]
MetricsType = Dict[str, Union[int, float]]
SeedType = Optional[Union[int, float, str, bytes, bytearray]]


def __getattr__(name: str) -> Any:
    """FILESYSTEM needs fsspec, which is imported when it is asked for."""
    if name in ("FILESYSTEM", "AbstractFileSystem"):
        from fsspec.spec import AbstractFileSystem

        globals()["AbstractFileSystem"] = AbstractFileSystem
        globals()["FILESYSTEM"] = Union[MutableMapping, AbstractFileSystem]
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
