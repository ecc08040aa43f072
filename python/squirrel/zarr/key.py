"""Keys of a zarr store: what is a directory, a chunk, zarr's own, or squirrel's own."""

import itertools
import re
import typing as t

from squirrel.constants import SQUIRREL_DIR, SQUIRREL_PREFIX

ZARR_CHUNK_PATTERN = re.compile(r"(\d+\.)+\d+")
_ZARR_ENDINGS = (".zarray", ".zgroup", ".zattrs")


def normalize_key(key: str, key_separator: str = "/") -> str:
    """The key without white space and separators around it; with one behind it when it is a directory's."""
    if not key:
        return key
    whole = key.strip().strip(key_separator)
    return whole + key_separator if is_dir(key_end(whole, key_separator)) else whole


def is_dir(key: str) -> bool:
    """Whether a key is a directory's, by its name alone; a .zip is a file."""
    return not (is_squirrel_key(key) or is_zarr_key(key) or is_zarr_chunk(key) or key.endswith(".zip"))


def is_squirrel_key(key: str) -> bool:
    """Whether a key is one that squirrel keeps for itself."""
    return SQUIRREL_DIR in key or SQUIRREL_PREFIX in key


def is_zarr_key(key: str) -> bool:
    """Whether a key is one of zarr's descriptions."""
    return key.endswith(_ZARR_ENDINGS)


def is_zarr_chunk(key: str) -> bool:
    """Whether a key ends in a chunk's numbers, as in ``"image/0.0.0"``."""
    return ZARR_CHUNK_PATTERN.fullmatch(key_end(key)) is not None


def key_end(key: str, separator: str = "/") -> str:
    """The part behind the last separator: ``"my.file"`` of ``"path/to/my.file"``."""
    return key.rpartition(separator)[2]


def flatten(nested_keys: t.List[t.Iterable[str]]) -> t.List[str]:
    """All keys of several lists, as one."""
    return list(itertools.chain.from_iterable(nested_keys))
