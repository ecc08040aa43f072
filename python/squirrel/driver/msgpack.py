"""Shards of MessagePack."""

from __future__ import annotations

from squirrel.driver._format import FormatDriver
from squirrel.serialization.msgpack import MessagepackSerializer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MessagepackDriver"]


class MessagepackDriver(FormatDriver):
    """A :class:`StoreDriver` with ``MessagepackSerializer``.

    Args:
        url: the store's directory.
        storage_options: of fsspec's file system, see :class:`StoreDriver`.
        **kwargs: the catalog; options of the format, see :func:`squirrel.formats`.
    """

    name = "messagepack"

    def __init__(self, url: str, storage_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(url, MessagepackSerializer(), storage_options, kwargs)
