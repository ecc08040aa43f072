"""Shards through the library: written to a file that is there whole or not at all, read by its threads."""

from __future__ import annotations

import os
import tempfile

from squirrel import _native
from squirrel._remote import is_local, locate, open_source, own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# What open() of a file system may be told that changes nothing for the library's reading.
_HINTS = {"compression", "block_size", "cache_type", "cache_options", "fill_cache", "size"}

_AHEAD_BYTES = 8 << 20  # of one shard; many may be open at a time
_SUFFIX = {"messagepack": ".gz", "jsonl": ".jsonl.gz"}  # by which a packer knows a file's format


def write_shard(shard: Iterable[Any], fp: str, fs: Any, mode: str, format: str, open_kwargs: dict[str, Any]) -> None:
    """Writes samples, gzip-compressed."""
    open_kwargs.pop("compression", None)
    path = _local_path(fp, fs)
    if path is not None and mode == "wb" and not open_kwargs:
        folder, name = os.path.split(os.path.abspath(path))
        part = _pack(shard, folder, name, format)
        try:
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
        return
    with tempfile.TemporaryDirectory(prefix="squirrel-") as folder:
        part = _pack(shard, folder, "shard", format)
        if fs is None:
            fs, fp = locate(fp)
        with open(part, "rb") as whole, own(fs).open(fp, mode, **open_kwargs) as file:
            while piece := whole.read(1 << 20):
                file.write(piece)


def _pack(shard: Iterable[Any], folder: str, name: str, format: str) -> str:
    """A file beside the one that is to be; hidden until it is whole."""
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "there is no such directory", folder)
    part = os.path.join(folder, f".{name}.{os.urandom(6).hex()}{_SUFFIX[format]}")
    packer = _native.Packer(part, options={"codec": "gzip"}, format=format)
    try:
        packer.extend(shard)
        packer.finish()
    except BaseException:
        packer.abandon()
        raise
    return part


def read_shard(
    fp: str, fs: Any, mode: str, driver: str, open_kwargs: dict[str, Any], tuples: bool = False
) -> _native.Samples:
    """The samples of a file, read by the library's threads from now on. What is left of `open_kwargs` without the
    file system's hints are the format's options.

    Raises:
        NotFoundError: there is no such file. FormatError: it is of another format.
    """
    if mode != "rb":
        raise ValueError(f'a shard is read with mode "rb", not {mode!r}')
    own_options = {name: value for name, value in open_kwargs.items() if name not in _HINTS}
    options = {"driver": driver, "use_list": not tuples, **own_options}
    source = open_source(os.fspath(fp), options, fs=fs, ahead=True)
    return source.plan().prefetch(_AHEAD_BYTES).iterate()  # type: ignore[return-value]


def _local_path(fp: str, fs: Any) -> str | None:
    if fs is None:
        return os.fspath(fp).removeprefix("file://") if is_local(fp) else None
    if type(fs).__module__ != "fsspec.implementations.local":
        return None
    return str(fs._strip_protocol(fp))
