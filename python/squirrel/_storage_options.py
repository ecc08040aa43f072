"""Options of fsspec's file systems, as the library's own ones call them.

The names of s3fs, gcsfs and adlfs are understood where they mean something here, beside the library's own
(``squirrel.file_systems()`` lists those). What only tunes fsspec is left out; what asks for something that the
library does not do (a session object, a browser's login) makes fsspec read instead.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["native_options", "without_secrets"]

# They tune fsspec's caches and event loops: nothing to the library.
_IGNORED = {
    "asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths",
    "default_block_size", "default_fill_cache", "default_cache_type", "block_size", "cache_type", "cache_regions",
    "blocksize", "fill_cache", "max_concurrency", "version_aware", "consistency", "check_connection", "access",
    "project", "secure_serialize", "default_location", "auto_mkdir",
}  # fmt: skip


class _Unknown(Exception):
    """An option that only fsspec's file system knows."""


def _true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unknown
    return value


def _text(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise _Unknown
    return os.fspath(value)


def _s3(name: str, value: Any) -> dict[str, Any]:
    plain = {
        "anon": "anonymous", "endpoint_url": "endpoint", "key": "access_key_id", "username": "access_key_id",
        "secret": "secret_access_key", "password": "secret_access_key", "token": "session_token",
    }  # fmt: skip
    if name in plain:
        return {plain[name]: value}
    if name == "client_kwargs":
        inner = {
            "endpoint_url": "endpoint", "region_name": "region", "aws_access_key_id": "access_key_id",
            "aws_secret_access_key": "secret_access_key", "aws_session_token": "session_token",
        }  # fmt: skip
        found: dict[str, Any] = {}
        for key, item in dict(value).items():
            if key == "verify" and isinstance(item, str):
                found["ca_file"] = item
            elif key == "verify" and item is True or key == "use_ssl" and item is True:
                pass
            elif key in inner:
                found[inner[key]] = item
            else:
                raise _Unknown
        return found
    if name == "config_kwargs":
        found = {}
        for key, item in dict(value).items():
            if key == "region_name":
                found["region"] = item
            elif key == "s3" and set(item) == {"addressing_style"}:
                if item["addressing_style"] != "auto":
                    found["path_style"] = item["addressing_style"] == "path"
            elif key not in ("retries", "max_pool_connections", "connect_timeout", "read_timeout"):
                raise _Unknown
        return found
    if name == "use_ssl" and _true(value):
        return {}
    raise _Unknown


def _gs(name: str, value: Any) -> dict[str, Any]:
    if name == "token":
        if value == "anon":
            return {"anonymous": True}
        if value in ("google_default", "cloud"):
            return {}
        if value in ("browser", "cache"):
            raise _Unknown
        text = _text(value)
        return {"credentials" if text.endswith(".json") or os.path.exists(text) else "token": text}
    if name == "endpoint_url":
        return {"endpoint": _text(value)}
    if name == "requester_pays":
        if isinstance(value, str):
            return {"user_project": value}
        if not _true(value):
            return {}
    raise _Unknown


def _az(name: str, value: Any) -> dict[str, Any]:
    if name == "anon":
        return {"anonymous": _true(value)}
    raise _Unknown


_FOREIGN: dict[str, Callable[[str, Any], dict[str, Any]]] = {"s3": _s3, "gs": _gs, "az": _az}
_MEANS_MORE = {("gs", "token")}  # here and there, but there it may be a file's name


def native_options(system: Mapping[str, Any], storage_options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The library's options for one of its file systems.

    Args:
        system: an item of ``squirrel.file_systems()``.
        storage_options: as for fsspec, or the library's own.

    Returns:
        Options, or None where fsspec has to read.
    """
    own = {option["name"] for option in system["options"]}
    foreign = _FOREIGN.get(system["name"])
    found: dict[str, Any] = {}
    if foreign is None:  # a file system without options ignores those for storage, as fsspec's local one does
        return dict(storage_options or {}) if own else {}
    for name, value in (storage_options or {}).items():
        if value is None:
            continue
        try:
            if name in own and (system["name"], name) not in _MEANS_MORE:
                found[name] = value
            elif name not in _IGNORED:
                found.update(foreign(name, value))
        except (_Unknown, TypeError, ValueError):
            return None
    return found


def without_secrets(system: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with ``"***"`` in place of the secret ones."""
    secret = {option["name"] for option in system["options"] if option["kind"] == "secret"}
    return {name: "***" if name in secret else value for name, value in options.items()}
