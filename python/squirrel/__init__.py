"""Share, load and transform data for large-scale deep learning.

    import squirrel

    squirrel.pack(samples, "data/train")              # any iterable of dicts
    for batch in squirrel.open("data/train").shuffle_all(seed=1).batch(256):
        train(batch["image"], batch["label"])
"""

from __future__ import annotations

from squirrel._errors import (
    AccessError,
    ArgumentError,
    CallbackError,
    CancelledError,
    CorruptError,
    DataError,
    Error,
    ExistsError,
    FormatError,
    LimitError,
    NoSpaceError,
    NotFoundError,
    OutOfMemoryError,
    SampleTypeError,
    StateError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)
from squirrel._native import __version__, configure, drivers, file_systems, formats, info, metrics
from squirrel.stream import Stream, index, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from squirrel._add_fields import add_fields
    from squirrel._pack import PackReport, pack
    from squirrel.batch import Batch, Column
    from squirrel.access import sample_rng, sample_seed
    from squirrel.mixing import concat, interleave, mix, sample, zip

__all__ = [
    "AccessError",
    "ArgumentError",
    "Batch",
    "CallbackError",
    "CancelledError",
    "Column",
    "CorruptError",
    "DataError",
    "Error",
    "ExistsError",
    "FormatError",
    "LimitError",
    "NoSpaceError",
    "NotFoundError",
    "OutOfMemoryError",
    "PackReport",
    "SampleTypeError",
    "StateError",
    "StorageError",
    "Stream",
    "TruncatedError",
    "UnsupportedError",
    "__version__",
    "add_fields",
    "concat",
    "configure",
    "drivers",
    "file_systems",
    "formats",
    "index",
    "info",
    "interleave",
    "metrics",
    "mix",
    "open",
    "pack",
    "sample",
    "sample_rng",
    "sample_seed",
    "zip",
]

# Imported on first use: they are not needed to read.
_LATER = {
    "add_fields": "squirrel._add_fields",
    "pack": "squirrel._pack",
    "PackReport": "squirrel._pack",
    "Batch": "squirrel.batch",
    "Column": "squirrel.batch",
    "concat": "squirrel.mixing",
    "interleave": "squirrel.mixing",
    "mix": "squirrel.mixing",
    "sample": "squirrel.mixing",
    "sample_rng": "squirrel.access",
    "sample_seed": "squirrel.access",
    "zip": "squirrel.mixing",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value
    raise AttributeError(f"module 'squirrel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
