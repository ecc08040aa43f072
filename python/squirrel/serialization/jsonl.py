"""JSON lines, with NumPy arrays as objects of data, type and shape."""

from __future__ import annotations

import functools
import json
import typing as t

from squirrel.serialization._shards import read_shard, write_shard
from squirrel.serialization.serializer import SquirrelSerializer

if t.TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

    from squirrel.constants import ShardType

__all__ = ["JsonSerializer", "SquirrelJsonDecoder", "SquirrelJsonEncoder"]


class SquirrelJsonEncoder(json.JSONEncoder):
    """Python's encoder, which knows NumPy's arrays and scalars too."""

    def default(self, obj: t.Any) -> t.Any:
        """What stands for an object that JSON has no type for."""
        import numpy as np

        if isinstance(obj, np.ndarray):
            return {"data": obj.tolist(), "type": obj.dtype.str, "shape": list(obj.shape)}
        if isinstance(obj, (np.bool_, np.integer, np.floating)):
            return obj.item()
        return super().default(obj)


class SquirrelJsonDecoder(json.JSONDecoder):
    """Python's decoder, which makes arrays again.

    Args:
        *args, **kwargs: of ``json.JSONDecoder``. An ``object_hook`` is called with every object that is
            no array.
    """

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        hook = kwargs.pop("object_hook", None)
        super().__init__(*args, object_hook=self.object_hook, **kwargs)
        self._hook = hook

    def object_hook(self, dct: t.Dict[str, t.Any]) -> t.Any:
        """The array that a JSON object stands for, or what the user's hook makes of it."""
        if dct.keys() == {"data", "type", "shape"}:
            import numpy as np

            try:
                return np.array(dct["data"], dtype=np.dtype(dct["type"])).reshape(dct["shape"])
            except (TypeError, ValueError):
                pass  # somebody's own object
        hook = getattr(self, "_hook", None)
        return dct if hook is None else hook(dct)


class _WithHook(staticmethod):  # type: ignore[type-arg]
    """A static method; of an instance with a hook, the function with that hook."""

    def __get__(self, instance: t.Any, owner: t.Any = None) -> t.Any:
        function = super().__get__(instance, owner)
        hook = None if instance is None else instance.deser_hook
        return function if hook is None else functools.partial(_read_with_hook, hook)


class JsonSerializer(SquirrelSerializer):
    """Serializes to JSON.

    Args:
        deser_hook: called with each JSON object (a dict) that is read, innermost first, and what it
            returns takes the object's place; objects that stand for arrays are arrays before. The same
            for single objects and for the samples of shards.
    """

    def __init__(self, deser_hook: t.Optional[t.Callable[..., t.Any]] = None) -> None:
        self.deser_hook = deser_hook

    @staticmethod
    def serialize(obj: t.Any) -> bytes:
        """The object as JSON, in ASCII.

        Raises:
            TypeError: it holds what JSON has no type for, e.g. bytes.
        """
        return json.dumps(obj, cls=SquirrelJsonEncoder).encode()

    def deserialize(self, obj: bytes) -> t.Any:
        """The object of this text."""
        return json.loads(obj, cls=SquirrelJsonDecoder, object_hook=self.deser_hook)

    @staticmethod
    def serialize_shard_to_file(
        shard: ShardType, fp: str, fs: t.Optional[AbstractFileSystem] = None, mode: str = "wb", **open_kwargs: t.Any
    ) -> None:
        """Writes samples to a file, one a line, compressed with gzip. A local file is there whole or not at all.

        Args:
            shard: the samples.
            fp: path or URL.
            fs: fsspec's file system; by default the one of `fp`.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``; the compression is always gzip.
        """
        write_shard(shard, fp, fs, mode, "jsonl", open_kwargs)

    @_WithHook
    def deserialize_shard_from_file(
        fp: str, fs: t.Optional[AbstractFileSystem] = None, mode: str = "rb", **open_kwargs: t.Any
    ) -> t.Iterable[t.Any]:
        """The samples of a file.

        Args:
            fp: path or URL.
            fs: fsspec's file system; by default the one of `fp`.
            mode: "rb".
            **open_kwargs: hints for the file system; the compression is always gzip.

        Returns:
            An iterator. The library's threads begin to read at once.

        Raises:
            NotFoundError (a FileNotFoundError): there is no such file.
            DataError (a ValueError): it is damaged; raised behind the samples in front of the damage.
        """
        return read_shard(fp, fs, mode, "jsonl", open_kwargs)


def _read_with_hook(hook: t.Callable[..., t.Any], *args: t.Any, **kw: t.Any) -> t.Iterator[t.Any]:
    return map(functools.partial(_hooked, hook), JsonSerializer.deserialize_shard_from_file(*args, **kw))


def _hooked(hook: t.Callable[..., t.Any], value: t.Any) -> t.Any:
    """The value with the hook applied to its objects, innermost first, as Python's json does."""
    if isinstance(value, dict):
        return hook({key: _hooked(hook, part) for key, part in value.items()})
    if isinstance(value, list):
        return [_hooked(hook, part) for part in value]
    return value
