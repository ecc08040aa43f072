"""Catalog: names to versioned sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, KeysView, MutableMapping
from typing import NamedTuple, cast

from squirrel import _native
from squirrel._errors import ArgumentError, ExistsError
from squirrel.catalog.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any, NoReturn

__all__ = ["Catalog", "CatalogKey", "CatalogSource"]

LATEST = -1


class CatalogKey(NamedTuple):
    """Name and version of a source; version -1 is the latest."""

    identifier: str
    version: int = LATEST


class CatalogSource(Source):
    """A source as it stands in a catalog; its other versions are ``source[version]``."""

    def __init__(
        self,
        source: Source,
        identifier: str,
        catalog: Catalog,
        version: int = 1,
        versions: dict[int, CatalogSource] | None = None,
    ) -> None:
        super().__init__(source.driver_name, dict(source.driver_kwargs), dict(source.metadata))
        self._identifier = identifier
        self._version = version
        self._catalog = catalog
        self._versions = {} if versions is None else versions

    @property
    def identifier(self) -> str:
        """The source's name."""
        return self._identifier

    @property
    def version(self) -> int:
        """1, 2, 3 ..."""
        return self._version

    @property
    def versions(self) -> dict[int, CatalogSource]:
        """All versions of this source, oldest first."""
        return dict(sorted(self._versions.items()))

    def __getitem__(self, version: int) -> CatalogSource:
        return self._catalog[self._identifier, version]

    def __setitem__(self, version: int, source: Source) -> None:
        self._catalog[self._identifier, version] = source

    def __delitem__(self, version: int) -> None:
        del self._catalog[self._identifier, version]

    def __contains__(self, version: object) -> bool:
        return version == LATEST or version in self._versions

    def __iter__(self) -> Iterator[CatalogSource]:
        return iter(self.versions.values())

    def __len__(self) -> int:
        return len(self._versions)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CatalogSource):
            return NotImplemented
        return self._described() == other._described()

    __hash__ = None  # type: ignore[assignment]

    def _described(self) -> tuple[object, ...]:
        return (self.identifier, self.version, self.driver_name, self.driver_kwargs, self.metadata)

    def __repr__(self) -> str:
        others = "".join(f", {v}" for v in self.versions if v != self.version)
        return (
            f"CatalogSource({self.identifier!r}, version={self.version}, driver_name={self.driver_name!r}, "
            f"driver_kwargs={self.driver_kwargs}, metadata={self.metadata})"
            + (f" (other versions:{others[1:]})" if others else "")
        )

    def get_driver(self, **kwargs: Any) -> Any:
        """The source's driver, made with its arguments and those given here, which win.

        ``storage_options`` of both are joined.

        Raises:
            ValueError: no driver has that name; the message lists those there are.
        """
        from squirrel.driver import driver_class

        merged = {**self.driver_kwargs, **kwargs}
        storage = {
            **(self.driver_kwargs.get("storage_options") or {}),
            **(kwargs.get("storage_options") or {}),
        }
        if storage:
            merged["storage_options"] = storage
        return driver_class(self.driver_name)(catalog=self._catalog, **merged)

    def open(self, **options: Any) -> Any:
        """The source's samples: ``get_driver().get_iter(**options)``."""
        return self.get_driver().get_iter(**options)


class MissingSource:
    """What a name that is not in the catalog gives: a version can be set, all else is an error."""

    def __init__(self, identifier: str, catalog: Catalog) -> None:
        self._identifier = identifier
        self._catalog = catalog

    def __setitem__(self, version: int, source: Source) -> None:
        self._catalog[self._identifier, version] = source

    def __contains__(self, version: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[CatalogSource]:
        self._fail()

    def __getitem__(self, version: int) -> NoReturn:
        self._fail()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol's question, of copy or pickle
            raise AttributeError(name)
        self._fail()

    def _fail(self) -> NoReturn:
        raise KeyError(self._catalog._missing(self._identifier, LATEST))

    def __repr__(self) -> str:
        return f"<{self._catalog._missing(self._identifier, LATEST)}>"


Key = str | tuple[str, int] | CatalogKey


class Catalog(MutableMapping):  # type: ignore[type-arg]
    """Names to sources, each in one or more versions.

    ``catalog[name]`` is the latest version; ``catalog[name, version]`` and
    ``catalog[name][version]`` any. Setting ``catalog[name]`` adds a version above the latest.
    Iterating gives (name, latest source), in the order in which names were added; ``keys()`` the
    names.
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[int, CatalogSource]] = {}

    def _missing(self, name: str, version: int) -> str:
        if name in self._sources:
            there = ", ".join(str(v) for v in sorted(self._sources[name]))
            return f"source {name!r} has no version {version}; there are {there}"
        import difflib

        near = difflib.get_close_matches(name, self._sources, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no source {name!r} in this catalog{hint}"

    @property
    def sources(self) -> dict[str, CatalogSource]:
        """The latest version of each source by its name."""
        return dict(self.items())

    # --- a mapping ---

    def __getitem__(self, key: Key) -> CatalogSource:
        name, version = (key, LATEST) if isinstance(key, str) else key
        versions = self._sources.get(name)
        if versions is None and isinstance(key, str):
            return MissingSource(name, self)  # type: ignore[return-value]
        if versions is not None and version == LATEST:
            version = max(versions)
        if versions is None or version not in versions:
            raise KeyError(self._missing(name, version))
        return versions[version]

    def __setitem__(self, key: Key, source: Source) -> None:
        name, version = (key, LATEST) if isinstance(key, str) else key
        if not isinstance(source, Source):
            raise TypeError(f"a catalog holds Sources, not {type(source).__name__}")
        versions = self._sources.get(name, {})
        if version == LATEST:
            version = max(versions, default=0) + 1
        if not isinstance(version, int) or version < 1:
            raise ArgumentError(f"source {name!r}: versions are 1, 2, 3 ..., not {version!r}")
        versions[version] = CatalogSource(source, name, self, version, versions)
        self._sources[name] = versions

    def __delitem__(self, key: Key) -> None:
        """A name: all its versions; (name, version): that one."""
        if isinstance(key, str):
            if key not in self._sources:
                raise KeyError(self._missing(key, LATEST))
            del self._sources[key]
            return
        source = self[key]
        del self._sources[source.identifier][source.version]
        if not self._sources[source.identifier]:
            del self._sources[source.identifier]

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return key in self._sources
        name, version = cast("tuple[str, int]", key)
        versions = self._sources.get(name, {})
        return bool(versions) and (version == LATEST or version in versions)

    def __iter__(self) -> Iterator[tuple[str, CatalogSource]]:
        for name in self._sources:
            yield name, self[name]

    def keys(self) -> KeysView[str]:
        """The names, in the order in which they were added."""
        return self._sources.keys()

    def items(self) -> Iterator[tuple[str, CatalogSource]]:  # type: ignore[override]
        """Each name with its latest version."""
        return iter(self)

    def values(self) -> list[CatalogSource]:  # type: ignore[override]
        """The latest version of each source."""
        return [source for _, source in self]

    def get(self, key: Key, default: Any = None) -> Any:
        """``catalog[key]``, or the default where it is not there."""
        return self[key] if key in self else default

    def pop(self, key: Key, *default: Any) -> Any:
        """Removes a name (all versions) or a version and gives the source."""
        if key not in self and default:
            return default[0]
        source = self.get(key)
        del self[key]
        return source

    def popitem(self) -> tuple[str, CatalogSource]:
        """Removes the name that was added last, with all versions."""
        name = next(reversed(self._sources))
        return name, self.pop(name)

    def clear(self) -> None:
        """Removes all sources."""
        self._sources.clear()

    def update(self, other: Any = (), /, **more: Source) -> None:  # type: ignore[override]
        """Sets each name of a mapping or of pairs; see ``union`` for the versions of catalogs."""
        pairs = other.items() if hasattr(other, "items") else other
        for name, source in (*pairs, *more.items()):
            self[name] = source

    def __len__(self) -> int:
        return len(self._sources)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Catalog):
            return NotImplemented
        return self._sources == other._sources

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._sources)})"

    # --- set algebra; a name and a version together are one element ---

    def _all(self) -> Iterator[tuple[CatalogKey, CatalogSource]]:
        for name, versions in self._sources.items():
            for version in sorted(versions):
                yield CatalogKey(name, version), versions[version]

    @classmethod
    def _of(cls, sources: Iterable[tuple[CatalogKey, Source]]) -> Catalog:
        catalog = cls()
        for key, source in sources:
            catalog[key] = source
        return catalog._deep()

    def _deep(self) -> Catalog:
        from copy import deepcopy

        for _, source in self._all():
            source.driver_kwargs = deepcopy(source.driver_kwargs)
            source.metadata = deepcopy(source.metadata)
        return self

    def copy(self) -> Catalog:
        """A deep copy."""
        return self._of(self._all())

    def __copy__(self) -> Catalog:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Catalog:
        return self.copy()

    def slice(self, keys: Iterable[str]) -> Catalog:
        """A copy with all versions of these names alone.

        Raises:
            KeyError: a name is not there.
        """
        names = list(keys)
        for name in names:
            if name not in self._sources:
                raise KeyError(self._missing(name, LATEST))
        return self._of((CatalogKey(n, v), s) for n in names for v, s in self._sources[n].items())

    def join(self, other: Catalog) -> Catalog:
        """The sources of both, which have no version of a name in common.

        Raises:
            ExistsError: they have one.
        """
        for key, _ in other._all():
            if key in self:
                raise ExistsError(
                    f"both catalogs have version {key.version} of source {key.identifier!r}"
                )
        return self.union(other)

    def union(self, other: Catalog) -> Catalog:
        """The sources of both; of a version that both have, the other's."""
        return self._of((*self._all(), *other._all()))

    def difference(self, other: Catalog) -> Catalog:
        """What is in one of the two alone (a symmetric difference, as in squirrel-core)."""
        return self._of(
            (*((k, s) for k, s in self._all() if k not in other),
             *((k, s) for k, s in other._all() if k not in self))
        )  # fmt: skip

    def intersection(self, other: Catalog) -> Catalog:
        """What is in both.

        Raises:
            ExistsError: a version of a name is in both and differs.
        """
        both = [(key, source) for key, source in self._all() if key in other]
        for key, source in both:
            if source != other[key]:
                raise ExistsError(
                    f"version {key.version} of source {key.identifier!r} differs between the catalogs"
                )
        return self._of(both)

    def filter(self, predicate: Callable[[CatalogSource], bool]) -> Catalog:  # type: ignore[valid-type]
        """A copy with the versions for which the predicate holds."""
        return self._of((key, source) for key, source in self._all() if predicate(source))

    # --- YAML ---

    @classmethod
    def from_str(cls, cat: str) -> Catalog:
        """Reads YAML text.

        Raises:
            FormatError: it is no catalog; line and column are named.
        """
        return cls._read(cat, "catalog text")

    @classmethod
    def _read(cls, text: str, where: str) -> Catalog:
        catalog = cls()
        for name, version, driver, kwargs, metadata in _native.catalog_read(text, where):
            catalog[name, version] = Source(driver, kwargs, metadata)
        return catalog

    @classmethod
    def from_files(cls, paths: Iterable[str | PathLike[str]]) -> Catalog:
        """Joins the catalogs of several YAML files (paths, or URLs that fsspec knows).

        Raises:
            ExistsError: two files have the same version of a source; the second file is named.
        """
        if isinstance(paths, (str, os.PathLike)):
            raise TypeError(f"from_files takes a list of paths: from_files([{os.fspath(paths)!r}])")
        catalog = cls()
        for path in [os.fspath(path) for path in paths]:
            with _open(path, "r") as file:
                new = cls._read(file.read(), path)
            try:
                catalog = catalog.join(new)
            except ExistsError as error:
                raise ExistsError(f"{path}: an earlier file and this one: {error}") from None
        return catalog

    @classmethod
    def from_dirs(cls, paths: Iterable[str | PathLike[str]]) -> Catalog:
        """Joins all .yaml and .yml files of several directories."""
        files: list[str] = []
        for path in paths:
            files += sorted(f for f in _list(os.fspath(path)) if f.endswith((".yaml", ".yml")))
        return cls.from_files(files)

    def to_str(self) -> str:
        """The catalog as YAML."""
        return _native.catalog_write(
            (*key, source.driver_name, source.driver_kwargs, source.metadata)
            for key, source in self._all()
        )

    def to_file(self, path: str | PathLike[str]) -> None:
        """Writes the catalog as YAML; a file that is there is replaced, whole or not at all."""
        text, path = self.to_str(), os.fspath(path)
        if "://" in path:
            with _open(path, "w") as file:
                file.write(text)
            return
        new = f"{path}.{os.getpid()}.tmp"
        try:
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        finally:
            if os.path.exists(new):
                os.unlink(new)


def _fsspec() -> Any:
    try:
        import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("catalogs at URLs need the package fsspec: pip install fsspec") from None
    return fsspec


def _open(path: str, mode: str) -> Any:
    if "://" in path:
        return _fsspec().open(path, mode, encoding="utf-8")
    return open(path, mode, encoding="utf-8")


def _list(path: str) -> list[str]:
    if "://" not in path:
        return [os.path.join(path, name) for name in os.listdir(path)]
    fs, inner = _fsspec().url_to_fs(path)
    return [fs.unstrip_protocol(name) for name in fs.ls(inner, detail=False)]
