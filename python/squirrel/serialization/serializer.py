"""What a store needs of a serializer."""

from __future__ import annotations

import abc
import typing as t

if t.TYPE_CHECKING:
    from squirrel.constants import SampleType, ShardType

__all__ = ["SquirrelSerializer"]


class SquirrelSerializer(abc.ABC):
    """Turns objects into bytes and back; those of shards also write and read whole files."""

    @abc.abstractmethod
    def serialize(self, obj: t.Any) -> t.Any:
        """The object as bytes."""

    @abc.abstractmethod
    def deserialize(self, obj: t.Any) -> t.Any:
        """The object that these bytes are."""

    def serialize_shard_to_file(self, obj: ShardType, fp: str, **kwargs: t.Any) -> None:
        """Writes a list of samples to a file."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to write shards")

    def deserialize_shard_from_file(self, fp: str, **kwargs: t.Any) -> t.Iterable[SampleType]:
        """The samples of a file."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to read shards")
