"""Catalogs: versioned sources under names, kept and shared as YAML.

    catalog = Catalog()
    catalog["train"] = Source("sqrl", driver_kwargs={"url": "data/train"})
    catalog.to_file("catalog.yaml")
    Catalog.from_files(["catalog.yaml"])["train"].get_driver().get_iter()
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from squirrel import _native

__all__ = ["Catalog", "CatalogKey", "CatalogSource", "Source"]


@dataclass
class Source:
    """What opens a data set: a driver's name, its arguments, and free metadata."""

    driver_name: str
    driver_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CatalogKey:
    """Name and version of a source; version -1 is the latest."""

    identifier: str
    version: int = -1


@dataclass
class CatalogSource(Source):
    """A source as it stands in a catalog."""

    identifier: str = ""
    version: int = 1

    def get_driver(self, **kwargs: Any) -> Any:
        """The source's driver, made with its arguments and those given here.

        Raises:
            KeyError: no driver has that name.
        """
        from squirrel.driver import driver_class

        return driver_class(self.driver_name)(**{**self.driver_kwargs, **kwargs})

    def open(self, **options: Any) -> Any:
        """The source's samples: ``get_driver().get_iter(**options)``."""
        return self.get_driver().get_iter(**options)


class Catalog(MutableMapping[str, CatalogSource]):
    """Names to sources. ``catalog[name]`` is the latest version, ``catalog[name, version]`` any.

    Setting a name adds a version above the latest; setting ``catalog[name, version]`` sets that version. Iterating
    gives names in the order they were added.
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[int, CatalogSource]] = {}

    @staticmethod
    def _key(key: str | tuple[str, int] | CatalogKey) -> tuple[str, int]:
        if isinstance(key, CatalogKey):
            return key.identifier, key.version
        return key if isinstance(key, tuple) else (key, -1)

    def _missing(self, name: str, version: int) -> str:
        import difflib

        if name in self._sources:
            there = ", ".join(str(v) for v in sorted(self._sources[name]))
            return f"source {name!r} has no version {version}; there are {there}"
        near = difflib.get_close_matches(name, self._sources, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no source {name!r} in this catalog{hint}"

    def __getitem__(self, key: str | tuple[str, int] | CatalogKey) -> CatalogSource:
        name, version = self._key(key)
        versions = self._sources.get(name, {})
        if version == -1 and versions:
            version = max(versions)
        try:
            return versions[version]
        except KeyError:
            raise KeyError(self._missing(name, version)) from None

    def __setitem__(self, key: str | tuple[str, int] | CatalogKey, source: Source) -> None:
        name, version = self._key(key)
        versions = self._sources.setdefault(name, {})
        if version == -1:
            version = max(versions, default=0) + 1
        versions[version] = CatalogSource(
            source.driver_name, dict(source.driver_kwargs), dict(source.metadata), name, version)

    def __delitem__(self, key: str | tuple[str, int] | CatalogKey) -> None:
        name, version = self._key(key)
        if isinstance(key, str):
            self[name]
            del self._sources[name]
            return
        del self._sources[name][self[name, version].version]
        if not self._sources[name]:
            del self._sources[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._sources == other._sources

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._sources)})"

    def versions(self, name: str) -> list[CatalogSource]:
        """All versions of a source, oldest first.

        Raises:
            KeyError: there is no such source.
        """
        self[name]
        return [source for _, source in sorted(self._sources[name].items())]

    def _add(self, text: str, where: str) -> Catalog:
        for name, version, driver_name, kwargs, metadata in _native.catalog_read(text, where):
            if version in self._sources.get(name, {}):
                raise KeyError(f"{where}: source {name!r} version {version} is in the catalog already")
            self[name, version] = Source(driver_name, kwargs, metadata)
        return self

    @classmethod
    def from_str(cls, text: str) -> Catalog:
        """Reads YAML text.

        Raises:
            FormatError: it is no catalog; line and column are named.
        """
        return cls()._add(text, "catalog text")

    @classmethod
    def from_files(cls, paths: list[str]) -> Catalog:
        """Joins the catalogs of several YAML files.

        Raises:
            KeyError: two files have the same version of a source; the second file is named.
        """
        catalog = cls()
        for path in paths:
            with open(path, encoding="utf-8") as file:
                catalog._add(file.read(), str(path))
        return catalog

    def to_str(self) -> str:
        """The catalog as YAML."""
        return _native.catalog_write(
            (name, source.version, source.driver_name, source.driver_kwargs, source.metadata)
            for name in self._sources for source in self.versions(name))

    def to_file(self, path: str) -> None:
        """Writes the catalog as YAML."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_str())
