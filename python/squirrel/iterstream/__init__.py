"""Streams of any Python objects, stage by stage."""

from __future__ import annotations

from squirrel.iterstream.base import Composable
from squirrel.iterstream.on_error import SKIP, SUBSTITUTE, OnError
from squirrel.iterstream.source import FilePathGenerator, IterableSamplerSource, IterableSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from squirrel.iterstream.multiplexer import Multiplexer, MultiplexingStrategy

__all__ = [
    "Composable",
    "IterableSource",
    "FilePathGenerator",
    "IterableSamplerSource",
    "Multiplexer",
    "MultiplexingStrategy",
    "OnError",
    "SKIP",
    "SUBSTITUTE",
]


def __getattr__(name: str) -> Any:
    if name in ("Multiplexer", "MultiplexingStrategy"):
        from squirrel.iterstream import multiplexer

        return getattr(multiplexer, name)
    raise AttributeError(f"module 'squirrel.iterstream' has no attribute {name!r}")
