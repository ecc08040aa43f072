"""Where catalogs come from: files and URLs, the user's configuration, plug-ins."""

from __future__ import annotations

import os
import re

from squirrel import _native
from squirrel._errors import ArgumentError, ExistsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike
    from typing import Any

    from squirrel.catalog.catalog import Catalog, CatalogKey
    from squirrel.catalog.source import Source


def is_url(path: str) -> bool:
    """Whether fsspec is asked for it; all else is a local file, which the library reads."""
    return "://" in path and not path.startswith("file://")


def is_json(path: str) -> bool:
    return path.endswith(".json")


def _fsspec() -> Any:
    try:
        import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("catalogs at URLs need the package fsspec: pip install fsspec") from None
    return fsspec


def read(path: str) -> _native.Catalog:
    """The catalog in a YAML or JSON file, local or at a URL."""
    from squirrel._remote import own_system

    catalog = _native.Catalog()
    if own_system(path) is None:
        with _fsspec().open(path, "r", encoding="utf-8") as file:
            catalog.read(file.read(), path, is_json(path), not path.startswith("memory://"))
    else:
        catalog.read_file(os.path.expanduser(path))
    return catalog


def write(catalog: _native.Catalog, path: str) -> None:
    """Replaces a file; a local one whole or not at all, one at a URL by one write of all its bytes."""
    if is_url(path):
        text = catalog.write(is_json(path)).encode()
        with _fsspec().open(path, "wb") as file:
            file.write(text)
    else:
        catalog.write_file(os.path.expanduser(path))


def public_only(kind: type[Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a source that came from another machine, so that it reaches public addresses only.

    The library's file systems check addresses: its drivers are told so, and those that read through fsspec get
    the library's file systems there.

    Args:
        kind: the driver's class.
        arguments: what it is made with. A class that takes no storage_options is given what stands there.

    Raises:
        ArgumentError: a file system that does not check addresses would read.
    """
    from squirrel._remote import own_system
    from squirrel._storage_options import native_options

    url, options = str(arguments.get("url", "")), dict(arguments.get("storage_options") or {})
    protocol = options.get("protocol", "")
    plain = "://" not in url and "::" not in url and not protocol
    if plain or not _takes_options(kind) or url.startswith("memory://") or os.environ.get("SQRL_ALLOW_PRIVATE") == "1":
        return arguments
    scheme = url.partition("://")[0]
    if scheme.startswith("sqrl+"):
        scheme, url = scheme[5:], url[5:]
    system = own_system(url, options)
    native = native_options(system, options) if system is not None else None
    if system is None or native is None:
        raise ArgumentError(
            f"the catalog of this source was read from a URL, so that the source may reach public addresses only; "
            f"{protocol or scheme} with these storage_options is read by fsspec, which does not look at addresses: "
            f"if you trust the catalog, set SQRL_ALLOW_PRIVATE=1 in the environment"
        )
    if all(option["name"] != "public_only" for option in system["options"]):
        return arguments
    if _reads_natively(kind):
        return {**arguments, "storage_options": {**options, "public_only": True}}
    url = f"sqrl+{_SCHEMES.get(scheme, scheme)}{url[url.index('://') :]}"
    return {**arguments, "url": url, "storage_options": {**native, "public_only": True}}


_SCHEMES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}  # of fsspec's, to those of squirrel.fsspec


def _takes_options(kind: type[Any]) -> bool:
    import inspect

    taken = inspect.signature(kind).parameters.values()
    return any(p.name == "storage_options" or p.kind is p.VAR_KEYWORD for p in taken)


def _reads_natively(kind: type[Any]) -> bool:
    from squirrel.driver.native import NativeDriver

    return issubclass(kind, NativeDriver)


def list_files(folder: str | PathLike[str]) -> list[str]:
    """The .yaml files of a directory, sorted."""
    path = os.fspath(folder)
    if "://" in path:
        fs, inner = _fsspec().url_to_fs(path)
        names = [fs.unstrip_protocol(name) for name in fs.ls(inner, detail=False)]
    else:
        path = os.path.expanduser(path)
        names = [os.path.join(path, name) for name in os.listdir(path)]
    return sorted(name for name in names if name.endswith(".yaml"))


def _first_common(
    place: str, part: _native.Catalog, before: list[tuple[str, _native.Catalog]], differs: bool
) -> str:
    """Which version two places have (with ``differs``: unlike), for a message."""
    for name in part.names():
        for version in part.versions(name):
            for other, catalog in before:
                found = catalog.find(name, version)
                if found and not (differs and found == part.find(name, version)):
                    return f"{other} and {place}: both have version {version} of source {name!r}"
    return f"{place}: a version that another place has, too"


def join(places: Iterable[tuple[str, _native.Catalog]], *, same_may_repeat: bool) -> _native.Catalog:
    """All sources of several places.

    Raises:
        ExistsError: two places have the same version of a source; both are named. With
            ``same_may_repeat`` only where the sources differ.
    """
    whole = _native.Catalog()
    before: list[tuple[str, _native.Catalog]] = []
    for place, part in places:
        try:
            whole = whole.union(part, 0) if same_may_repeat else whole.join(part)
        except ExistsError:
            raise ExistsError(
                _first_common(place, part, before, same_may_repeat)
                + ("; they differ" if same_may_repeat else "")
                + ": give one of them another version, or leave one of the places out"
            ) from None
        before.append((place, part))
    return whole


def subscribed() -> Iterator[tuple[str, _native.Catalog]]:
    """The user's catalogs: environment, configuration, known folders."""
    for url, origin, line in _native.catalog_places():
        try:
            yield url, read(url)
        except Exception as error:
            where = f"{origin}, line {line}" if line else origin
            error.add_note(f"this catalog is one of the default catalog's: {where}")
            raise


def open_default(reference: str) -> _native.Source:
    """Opens ``name`` or ``name@version`` of the default catalog, plug-ins' sources too."""
    from squirrel.catalog.catalog import Catalog

    catalog = Catalog.default()._synced()
    name, mark, version = reference.rpartition("@")
    if not (name and mark and re.fullmatch(r"-1|[0-9]+", version)):
        name, version = reference, "-1"
    return catalog.open(name, int(version))


# --- plug-ins ---


def add_plugins(catalog: Catalog) -> None:
    """Adds what plug-ins offer.

    One that fails, or whose sources contradict what is there, is left out and named in the log.
    """
    from squirrel.framework.plugins.plugin_manager import squirrel_plugin_manager

    for plugin, pairs in squirrel_plugin_manager.offers("squirrel_sources"):
        try:
            catalog._add(_new_sources(catalog, pairs))
        except Exception as error:
            import logging

            logging.getLogger("squirrel").warning(
                "the sources of the plug-in %s are left out: %s: %s", plugin, type(error).__name__, error
            )


def _new_sources(
    catalog: Catalog, pairs: Iterable[tuple[CatalogKey, Source]]
) -> list[tuple[CatalogKey, Source]]:
    """The pairs that are not there yet, all of which can be added."""
    from squirrel.catalog.catalog import LATEST, CatalogKey, check_source, check_version
    from squirrel.catalog.source import Source

    new: list[tuple[CatalogKey, Source]] = []
    seen: set[CatalogKey] = set()
    resolve = catalog._native.resolve
    for given, source in pairs:
        key = given if type(given) is CatalogKey else CatalogKey(*given)
        name, number = key
        if type(source) is not Source:
            check_source(source)
        if type(number) is not int or number < 1:
            number = check_version(name, number)
            key = CatalogKey(name, number or LATEST)
        if number and key in seen:
            raise ExistsError(f"version {number} of source {name!r} stands there twice")
        seen.add(key)
        if not number or not resolve(name, number):
            new.append((key, source))
        elif catalog[key]._described() != source._described():
            raise ExistsError(
                f"version {number} of source {name!r} is there already, and differs"
            )
    return new
