"""From a URL to a file system."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from squirrel.constants import FILESYSTEM, URL

__all__ = ["get_fs_from_url", "get_protocol"]


_OWN = {
    "s3": "S3FileSystem", "s3a": "S3FileSystem", "gs": "GoogleFileSystem", "gcs": "GoogleFileSystem",
    "az": "AzureFileSystem", "abfs": "AzureFileSystem", "abfss": "AzureFileSystem",
    "http": "HTTPFileSystem", "https": "HTTPSFileSystem",
}  # fmt: skip


def get_protocol(url: str) -> str:
    """What stands in front of the path, ``"s3://"``; empty for local paths."""
    mark = url.find("://")
    return url[: mark + 3] if mark >= 0 else ""


def get_fs_from_url(url: URL, **storage_options: Any) -> FILESYSTEM:
    """fsspec's file system for a URL; the path in it does not matter.

    Args:
        url: a path or URL; a chain such as ``"simplecache::s3://bucket"`` too.
        **storage_options: what fsspec makes the file system with. ``protocol`` overrides the URL's: a
            cache is ``protocol="simplecache", target_protocol="s3", cache_storage="/tmp/cache"``.

    Google's file system is :class:`squirrel.fsspec.custom_gcsfs.CustomGCSFileSystem`, which tries again
    where gcsfs gives up. For a bucket whose requester pays, choose the project that pays
    (``gcloud config set project``) rather than ``requester_pays=True``.

    Where s3fs, gcsfs or adlfs is not installed, the library's own file system serves
    (:mod:`squirrel.fsspec.native`), if it knows the options.
    """
    import fsspec

    url = str(url)
    options = dict(storage_options)
    protocol = options.pop("protocol", None)
    if protocol is None:
        if "::" in url:
            return fsspec.core.url_to_fs(url, **options)[0]
        protocol = get_protocol(url)[:-3] or "file"
    try:
        if protocol in ("gs", "gcs"):
            from squirrel.fsspec.custom_gcsfs import CustomGCSFileSystem

            return CustomGCSFileSystem(**options)
        return fsspec.filesystem(protocol, **options)
    except ImportError:
        if protocol not in _OWN:
            raise
        return _own(_OWN[protocol], options)


def _own(name: str, options: dict[str, Any]) -> FILESYSTEM:
    from squirrel.fsspec import native

    return getattr(native, name)(**options)
