"""Shards of JSON lines."""

from __future__ import annotations

import typing as t

from squirrel.driver._format import FormatDriver
from squirrel.serialization.jsonl import JsonSerializer

if t.TYPE_CHECKING:
    from squirrel.iterstream.base import Composable

__all__ = ["JsonlDriver"]


class JsonlDriver(FormatDriver):
    """A :class:`StoreDriver` with ``JsonSerializer``.

    Args:
        url: the store's directory.
        deser_hook: called with each JSON object that is read, see ``JsonSerializer``.
        storage_options: of fsspec's file system, see :class:`StoreDriver`.
        **kwargs: the catalog; options of the format, see :func:`squirrel.formats`.
    """

    name = "jsonl"

    def __init__(
        self,
        url: str,
        deser_hook: t.Optional[t.Callable[..., t.Any]] = None,
        storage_options: dict[str, t.Any] | None = None,
        **kwargs: t.Any,
    ) -> None:
        super().__init__(url, JsonSerializer(deser_hook), storage_options, kwargs)

    def get_iter(self, get_kwargs: t.Optional[t.Dict[str, t.Any]] = None, **kwargs: t.Any) -> Composable:
        """A stream of the samples.

        Args:
            get_kwargs: of :meth:`get`.
            **kwargs: see :meth:`MapDriver.get_iter`.
        """
        return super().get_iter(get_kwargs=get_kwargs, **kwargs)
