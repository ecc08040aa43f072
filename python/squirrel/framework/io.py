"""Whole files, read and written at once."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any, Optional

from squirrel._errors import DataError

if TYPE_CHECKING:
    from squirrel.constants import FILESYSTEM
    from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["read_from_file", "write_to_file"]

UNFINISHED = ".sqrl-tmp"  # how the names of files end that are being written


def _open(fp: str, fs: Optional[FILESYSTEM], open_kwargs: dict[str, Any]) -> Any:
    if fs is None:
        from squirrel.fsspec.fs import get_fs_from_url

        fs = get_fs_from_url(fp)
    return fs.open(fp, **open_kwargs)  # type: ignore[union-attr]


def _local_path(fp: str, fs: Optional[FILESYSTEM], mode: str) -> Optional[str]:
    """Where a file of this machine is to be replaced as a whole; None for others, and for pipes and devices."""
    from fsspec.implementations.local import LocalFileSystem

    from squirrel._remote import is_local

    if mode not in ("w", "wb") or not (is_local(fp) if fs is None else type(fs) is LocalFileSystem):
        return None
    path = os.path.realpath(str(LocalFileSystem._strip_protocol(fp)))
    return path if os.path.isfile(path) or not os.path.exists(path) else None


def write_to_file(
    fp: str,
    obj: Any,
    fs: Optional[FILESYSTEM] = None,
    serializer: Optional[SquirrelSerializer] = None,
    **open_kwargs: Any,
) -> None:
    """Writes an object to a file. A local one stands under its name when it is whole, or not at all.

    Args:
        fp: path or URL.
        obj: what is written: bytes or, with ``mode="w"``, text; with a serializer any object.
        fs: the file system; by default the one of `fp`.
        serializer: turns `obj` into bytes.
        **open_kwargs: of the file system's ``open``, e.g. ``mode`` (default "wb").
    """
    open_kwargs.setdefault("mode", "w" if serializer is None and isinstance(obj, str) else "wb")
    data = serializer.serialize(obj) if serializer is not None else obj
    path = _local_path(fp, fs, open_kwargs["mode"])
    if path is None:
        with _open(fp, fs, open_kwargs) as file:
            file.write(data)
        return
    folder, name = os.path.split(path)
    unfinished = f"{folder}/.{name[:200]}.{secrets.token_hex(8)}{UNFINISHED}"
    try:
        with _open(unfinished, fs, open_kwargs) as file:
            file.write(data)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def read_from_file(
    fp: str,
    fs: Optional[FILESYSTEM] = None,
    serializer: Optional[SquirrelSerializer] = None,
    **open_kwargs: Any,
) -> Any:
    """What a file holds.

    Args:
        fp: path or URL.
        fs: the file system; by default the one of `fp`.
        serializer: turns the bytes into an object.
        **open_kwargs: of the file system's ``open``, e.g. ``mode`` (default "rb").
    """
    with _open(fp, fs, open_kwargs) as file:
        data = file.read()
    if serializer is None:
        return data
    try:
        return serializer.deserialize(data)
    except DataError as err:
        raise type(err)(err.message, where=": ".join(filter(None, (str(fp), err.where)))) from err
    except Exception as err:  # of another serializer
        err.add_note(f"in file {fp}")
        raise
