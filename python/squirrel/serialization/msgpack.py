"""MessagePack, with NumPy arrays as msgpack-numpy writes them."""

from __future__ import annotations

import typing as t

from squirrel import _native
from squirrel._errors import LimitError, TruncatedError
from squirrel.serialization._shards import read_shard, write_shard
from squirrel.serialization.serializer import SquirrelSerializer

if t.TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

    from squirrel.constants import ShardType

__all__ = ["MessagepackSerializer"]


class MessagepackSerializer(SquirrelSerializer):
    """Serializes to MessagePack; needs neither msgpack nor msgpack-numpy, and reads what they write."""

    @staticmethod
    def serialize(obj: t.Any) -> bytes:
        """The object as MessagePack.

        Raises:
            SampleTypeError (a TypeError): it holds what MessagePack has no type for.
        """
        return _native.encode(obj)

    @staticmethod
    def deserialize(obj: bytes) -> t.Any:
        """The object of these bytes; lists are lists.

        Raises:
            DataError (a ValueError): they are damaged, or bytes follow the object.
        """
        return _native.decode(obj)

    @staticmethod
    def serialize_shard_to_file(
        shard: ShardType, fp: str, fs: t.Optional[AbstractFileSystem] = None, mode: str = "wb", **open_kwargs: t.Any
    ) -> None:
        """Writes samples to a file, compressed with gzip. A local file is there whole or not at all.

        Args:
            shard: the samples.
            fp: path or URL.
            fs: fsspec's file system; by default the one of `fp`.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``; the compression is always gzip.
        """
        write_shard(shard, fp, fs, mode, "messagepack", open_kwargs)

    @staticmethod
    def deserialize_shard_from_file(
        fp: str,
        fs: t.Optional[AbstractFileSystem] = None,
        mode: str = "rb",
        unpacker_kwargs: t.Optional[t.Dict[str, t.Any]] = None,
        **open_kwargs: t.Any,
    ) -> t.Iterable[t.Any]:
        """The samples of a file; lists in them are tuples.

        Args:
            fp: path or URL.
            fs: fsspec's file system; by default the one of `fp`.
            mode: "rb".
            unpacker_kwargs: ``use_list=True`` gives lists. Others are msgpack.Unpacker's: the file is
                then read by that package, in Python.
            **open_kwargs: hints for the file system; the compression is always gzip.

        Returns:
            An iterator. The library's threads begin to read at once.

        Raises:
            NotFoundError (a FileNotFoundError): there is no such file.
            DataError (a ValueError): it is damaged; raised behind the samples in front of the damage.
        """
        unpacking = dict(unpacker_kwargs or {})
        use_list = bool(unpacking.pop("use_list", False))
        if unpacking:
            return _unpack(fp, fs, mode, {**unpacking, "use_list": use_list}, open_kwargs)
        return read_shard(fp, fs, mode, "messagepack", open_kwargs, tuples=not use_list)


Options = t.Dict[str, t.Any]


def _unpack(fp: str, fs: t.Any, mode: str, unpacking: Options, open_kwargs: Options) -> t.Iterator[t.Any]:
    """Reads with the package msgpack, for options that only that has."""
    import msgpack
    import msgpack_numpy

    if fs is None:
        from squirrel._remote import locate

        fs, fp = locate(fp)
    unpacking.setdefault("object_hook", msgpack_numpy.decode)
    whole = 0
    with fs.open(fp, mode, **{**open_kwargs, "compression": "gzip"}) as file:
        unpacker = msgpack.Unpacker(file, **unpacking)
        while True:
            try:
                sample = unpacker.unpack()
            except msgpack.OutOfData:
                break
            except msgpack.BufferFull:
                raise LimitError("a sample is larger than max_buffer_size of unpacker_kwargs", where=fp) from None
            whole = unpacker.tell()
            yield sample
        if file.tell() > whole:
            raise TruncatedError("the file ends within a sample", where=fp)
