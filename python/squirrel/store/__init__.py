"""Stores: items under keys, in any file system."""

from squirrel.store.filesystem import FilesystemStore
from squirrel.store.squirrel_store import SquirrelStore
from squirrel.store.store import AbstractStore

__all__ = ["AbstractStore", "FilesystemStore", "SquirrelStore"]
