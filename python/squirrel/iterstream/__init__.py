"""Streams of any Python objects, stage by stage."""

from squirrel.iterstream.base import Composable
from squirrel.iterstream.source import IterableSource

__all__ = ["Composable", "IterableSource"]
