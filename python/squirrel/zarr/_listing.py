"""Directories of a store, listed by the file system."""

from __future__ import annotations

import typing as t

from squirrel.fsspec.fs import get_fs_from_url
from squirrel.zarr.key import is_dir, is_squirrel_key, key_end


def file_system(url: str, storage_options: dict[str, t.Any]) -> t.Any:
    """The file system of a URL; a local one makes the directories that it needs."""
    fs = get_fs_from_url(url, **storage_options)
    if type(fs).__module__ == "fsspec.implementations.local" and not fs.auto_mkdir:
        return get_fs_from_url(url, **{**storage_options, "auto_mkdir": True})
    return fs


def names(fs: t.Any, path: str) -> list[str]:
    """What lies in a directory, by name, sorted, without zarr's and squirrel's own; none where there is none."""
    try:
        found = fs.ls(path, detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    ends = sorted(key_end(str(name).rstrip("/")) for name in found)
    return [end for end in ends if is_dir(end) and not is_squirrel_key(end) and end not in _ZARR_OWN]


_ZARR_OWN = {"zarr.json", ".zmetadata"}


def size(fs: t.Any, path: str) -> int:
    """The bytes of all files below a path; 0 where there are none."""
    try:
        return sum(int(entry.get("size") or 0) for entry in fs.find(path, detail=True).values())
    except FileNotFoundError:
        return 0


def require_directory(fs: t.Any, path: str) -> None:
    """NotADirectoryError where the path is there and no directory."""
    if fs.exists(path) and not fs.isdir(path):
        raise NotADirectoryError(20, "the path of a zarr store must be a directory", path)
