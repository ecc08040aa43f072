"""Whole files, read and written at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from squirrel.constants import FILESYSTEM
    from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["read_from_file", "write_to_file"]


def _open(fp: str, fs: Optional[FILESYSTEM], open_kwargs: dict[str, Any]) -> Any:
    if fs is None:
        from squirrel.fsspec.fs import get_fs_from_url

        fs = get_fs_from_url(fp)
    return fs.open(fp, **open_kwargs)  # type: ignore[union-attr]


def write_to_file(
    fp: str,
    obj: Any,
    fs: Optional[FILESYSTEM] = None,
    serializer: Optional[SquirrelSerializer] = None,
    **open_kwargs: Any,
) -> None:
    """Writes an object to a file.

    Args:
        fp: path or URL.
        obj: what is written: bytes or, with ``mode="w"``, text; with a serializer any object.
        fs: the file system; by default the one of `fp`.
        serializer: turns `obj` into bytes.
        **open_kwargs: of the file system's ``open``, e.g. ``mode`` (default "wb").
    """
    open_kwargs.setdefault("mode", "w" if serializer is None and isinstance(obj, str) else "wb")
    data = serializer.serialize(obj) if serializer is not None else obj
    with _open(fp, fs, open_kwargs) as file:
        file.write(data)


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
    return serializer.deserialize(data) if serializer is not None else data
