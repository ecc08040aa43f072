"""Catalog: names to versioned sources.

The sources are the library's. An object is made of one that is asked for, and kept; it gets its
fields when they are looked at, and may be changed from then on. What concerns a catalog as a
whole is done by the library, once it knows what those objects say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from operator import index as as_int
from typing import NamedTuple

from squirrel import _native
from squirrel._errors import ArgumentError, SampleTypeError
from squirrel.catalog import _places
from squirrel.catalog.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any, NoReturn

__all__ = ["Catalog", "CatalogKey", "CatalogSource"]

LATEST = -1
OWN = ("_native", "_made", "_live", "_latest")
FIELDS = ("driver_name", "driver_kwargs", "metadata")
CONFLICTS = {"error": 0, "ours": 1, "theirs": 2}


class CatalogKey(NamedTuple):
    """Name and version of a source; version -1 is the latest."""

    identifier: str
    version: int = LATEST

    @classmethod
    def to_yaml(cls, representer: Any, obj: CatalogKey) -> Any:
        """For ruamel.yaml: the key as a sequence with its tag."""
        return representer.represent_sequence("!CatalogKey", list(obj))

    @classmethod
    def from_yaml(cls, constructor: Any, node: Any) -> CatalogKey:
        """For ruamel.yaml: the key of such a sequence."""
        return cls(*constructor.construct_sequence(node))


Key = str | tuple[str, int] | CatalogKey


def _split(key: object) -> tuple[str, int]:
    if isinstance(key, str):
        return key, LATEST
    if isinstance(key, tuple) and len(key) == 2:
        return key
    raise TypeError(f"a catalog's key is a name, (name, version) or a CatalogKey, not {key!r}")


def check_version(name: str, version: object) -> int:
    """A version that a source can be set to; 0 for the one above the latest."""
    try:
        number = as_int(version)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number == LATEST:
        return 0
    if number < 1:
        raise ArgumentError(f"source {name!r}: versions are 1, 2, 3 ..., not {version!r}")
    return number


def check_source(source: object) -> None:
    if not isinstance(source, Source):
        raise TypeError(f"a catalog holds Sources, not {type(source).__name__}")


_OF_CATALOG: dict[int, CatalogSource] = {}


class CatalogSource(Source):
    """A source as it stands in a catalog; ``source[version]`` is another version of it."""

    # Of the sources that a catalog made; the others have versions of their own.
    _versions: dict[int, CatalogSource] = _OF_CATALOG

    def __init__(
        self,
        source: Source,
        identifier: str,
        catalog: Catalog,
        version: int = 1,
        versions: dict[int, CatalogSource] | None = None,
    ) -> None:
        super().__init__(source.driver_name, source.driver_kwargs, source.metadata)
        if _untrusted(source):
            self._distrusted = True
        self._identifier = identifier
        self._version = version
        self._catalog = catalog
        if versions is not _OF_CATALOG:
            self._versions = {version: self} if versions is None else versions

    def __getattr__(self, name: str) -> Any:
        """A field that was not looked at before."""
        if name not in FIELDS or "_catalog" not in self.__dict__:
            raise AttributeError(f"a source has no attribute {name!r}")
        self._catalog._load(self)
        return self.__dict__[name]

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
        """All versions of this source, in the order in which they were added."""
        if self._versions is _OF_CATALOG:
            return self._catalog._all_versions(self._identifier)
        return dict(self._versions)

    def __getitem__(self, index: int) -> CatalogSource:
        if self._versions is _OF_CATALOG:
            return self._catalog[self._identifier, index]
        return self._versions[max(self._versions) if index == LATEST else index]

    def __setitem__(self, index: int, value: Source) -> None:
        if self._versions is _OF_CATALOG:
            self._catalog[self._identifier, index] = value
            return
        version = check_version(self._identifier, index) or max(self._versions, default=0) + 1
        self._versions[version] = CatalogSource(
            value, self._identifier, self._catalog, version, self._versions
        )

    def __delitem__(self, index: int) -> None:
        if self._versions is _OF_CATALOG:
            del self._catalog[self._identifier, index]
        else:
            del self._versions[max(self._versions) if index == LATEST else index]

    def __contains__(self, index: object) -> bool:
        versions = self.versions
        return index in versions or (index == LATEST and bool(versions))

    def __iter__(self) -> Iterator[CatalogSource]:
        return iter(self.versions.values())

    def __len__(self) -> int:
        return len(self.versions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CatalogSource):
            return False
        return self._key() == other._key() and self._described() == other._described()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> CatalogKey:
        return CatalogKey(self._identifier, self._version)

    def __repr__(self) -> str:
        import json

        described = {
            "identifier": self.identifier,
            **self._described(),
            "version": self.version,
            "versions": list(self.versions),
        }
        return json.dumps(described, indent=2, default=str)

    def __copy__(self) -> CatalogSource:
        return CatalogSource(self, self._identifier, self._catalog, self._version, self.versions)

    def __reduce__(self) -> Any:
        # The catalog goes along, and the source is the one that stands in it.
        if self._catalog.get(self._key()) is self:
            return _source_of, (self._catalog, self._key())
        source = Source(self.driver_name, self.driver_kwargs, self.metadata)
        if _untrusted(self):
            source.__dict__["_distrusted"] = True
        return CatalogSource, (source, self._identifier, self._catalog, self._version)

    def get_driver(self, **kwargs: Any) -> Any:
        """The source's driver, made with its arguments and those given here, which win.

        ``storage_options`` of both are joined; a driver of a source that has none is not given any.

        A source of a catalog that was read from a URL may not point to loopback, link-local or private addresses,
        unless the environment variable SQRL_ALLOW_PRIVATE is 1, or ``url`` is given here.

        Raises:
            ArgumentError: its place is one where that can't be checked.
            ValueError: no driver has that name; the message lists those there are.
        """
        from squirrel.driver import driver_class

        kind = driver_class(self.driver_name)
        given = dict(self.driver_kwargs or {})
        if "storage_options" in given and "storage_options" in kwargs:
            kwargs["storage_options"] = {
                **(given["storage_options"] or {}),
                **(kwargs["storage_options"] or {}),
            }
        arguments = {**given, **kwargs}
        if "url" not in kwargs and _untrusted(self):
            arguments = _places.public_only(kind, arguments)
        return kind(catalog=self._catalog, **arguments)

    def open(self, **options: Any) -> Any:
        """The source's samples: ``get_driver().get_iter(**options)``."""
        return self.get_driver().get_iter(**options)


def _untrusted(source: Source) -> bool:
    """Whether a source came with a catalog from another machine."""
    if source.__dict__.get("_distrusted"):
        return True
    return isinstance(source, CatalogSource) and source._catalog._native.untrusted(
        source._identifier, source._version
    )


def _source_of(catalog: Catalog, key: CatalogKey) -> CatalogSource:
    return catalog[key]


def _native_of(other: object) -> _native.Catalog:
    if not isinstance(other, Catalog):
        raise TypeError(f"the other one must be a Catalog, not {type(other).__name__}")
    return other._synced()


class DummyCatalogSource:
    """What a name that is not in the catalog gives: a version can be set, all else is an error."""

    def __init__(self, identifier: str, catalog: Catalog) -> None:
        self._identifier = identifier
        self._catalog = catalog

    @property
    def identifier(self) -> str:
        """The name that is not there."""
        return self._identifier

    def __setitem__(self, index: int, value: Source) -> None:
        self._catalog[self._identifier, index] = value

    def __contains__(self, index: object) -> bool:
        return False

    def _fail(self, *unused: object) -> NoReturn:
        raise KeyError(self._catalog._native.missing(self._identifier, LATEST))

    __getitem__ = __delitem__ = __iter__ = __len__ = __bool__ = _fail
    __eq__ = __ne__ = _fail  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol's question, of copy or pickle
            raise AttributeError(name)
        self._fail()

    def __repr__(self) -> str:
        return f"<{self._catalog._native.missing(self._identifier, LATEST)}>"


class _Names(KeysView):  # type: ignore[type-arg]
    """The names of a catalog, as they are when they are looked at."""

    _mapping: Catalog

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping._native.names())

    def __repr__(self) -> str:
        return f"catalog_keys({list(self)})"


class _Latest(ValuesView):  # type: ignore[type-arg]
    """The latest version of each name."""

    _mapping: Catalog

    def __iter__(self) -> Iterator[CatalogSource]:
        return (source for _, source in self._mapping)

    def __contains__(self, value: object) -> bool:
        return any(source is value or source == value for source in self)


class Catalog(MutableMapping):  # type: ignore[type-arg]
    """Names to sources, each in one or more versions.

    ``catalog[name]`` is the latest version; ``catalog[name, version]`` and
    ``catalog[name][version]`` any. Setting ``catalog[name]`` adds a version above the latest.
    Iterating gives (name, latest source), in the order in which names were added; ``keys()`` the
    names. Set algebra takes a name with a version as one element.
    """

    def __init__(self) -> None:
        self._start(_native.Catalog())

    def _start(self, native: _native.Catalog) -> None:
        self._native = native
        self._latest: dict[str, CatalogSource] = {}
        self._made: dict[tuple[str, int], CatalogSource] = {}  # but for those
        self._live: dict[tuple[str, int], CatalogSource] = {}  # those of both that have their fields

    @staticmethod
    def _of(native: _native.Catalog) -> Catalog:
        catalog = Catalog.__new__(Catalog)
        catalog._start(native)
        return catalog

    def _synced(self) -> _native.Catalog:
        if self._live:
            self._native.sync(self._live)
        return self._native

    def _load(self, source: CatalogSource) -> None:
        key = (source._identifier, source._version)
        fields = self._native.find(*key)
        assert fields is not None  # what is removed is loaded first
        source.__dict__.update(zip(FIELDS, fields[1:]))
        self._live[key] = source

    def _locate(self, name: str, version: int) -> CatalogSource | None:
        source: CatalogSource | None = self._native.locate(
            self, self._latest, self._made, CatalogSource, name, version
        )
        return source

    def _unsettle(self, name: str) -> None:
        """Another version will be the latest."""
        source = self._latest.pop(name, None)
        if source is not None:
            self._made[name, source._version] = source

    def _release(self, name: str, version: int) -> None:
        """A source that goes keeps its fields for who holds it."""
        source = self._made.pop((name, version), None)
        if source is not None and self._native.untrusted(name, version):
            source._distrusted = True
        if source is not None and self._live.pop((name, version), None) is None:
            self._load(source)
            del self._live[name, version]

    def _all_versions(self, name: str) -> dict[int, CatalogSource]:
        return {v: self[name, v] for v in self._native.versions(name)}

    @property
    def sources(self) -> dict[str, CatalogSource]:
        """The version of each source that was added first, by its name; ``versions`` has the others."""
        return {name: self[name, self._native.versions(name)[0]] for name in self._native.names()}

    # --- a mapping ---

    def __getitem__(self, identifier: Key) -> CatalogSource:
        if isinstance(identifier, str):
            source = self._latest.get(identifier)
            if source is None:
                source = self._locate(identifier, LATEST)
                if source is None:
                    return DummyCatalogSource(identifier, self)  # type: ignore[return-value]
            return source
        source = self._made.get(identifier)
        if source is not None:
            return source
        name, version = _split(identifier)
        source = self._locate(name, version)
        if source is None:
            raise KeyError(self._native.missing(name, version))
        return source

    def __setitem__(self, identifier: Key, value: Source) -> None:
        name, version = _split(identifier)
        check_source(value)
        number = check_version(name, version)
        self._unsettle(name)
        if number and self._native.resolve(name, number):
            self._release(name, number)
        made = CatalogSource(value, name, self, number, _OF_CATALOG)
        number = made._version = self._native.put(name, number, made, _untrusted(value))
        self._made[name, number] = self._live[name, number] = made

    def _add(self, sources: list[tuple[CatalogKey, Source]]) -> None:
        """Sets sources that are not there yet, all or none: many plain ones at once, others one by one."""
        before = len(self._live)
        try:
            self._add_each(sources)
        except Exception:
            for key in list(self._live)[before:]:  # in the order in which they were added
                del self[key]
            raise

    def _add_each(self, sources: list[tuple[CatalogKey, Source]]) -> None:
        if any(type(s) is not Source or len(s.__dict__) != 3 or key.version == LATEST for key, s in sources):
            for key, source in sources:
                self[key] = source
            return
        if self._latest:
            for key, _ in sources:
                self._unsettle(key.identifier)
        self._native.adopt(self, self._made, self._live, CatalogSource, sources)

    def __delitem__(self, identifier: Key) -> None:
        """A name: all its versions; (name, version): that one."""
        name, version = _split(identifier)
        gone = self._native.versions(name)
        if not isinstance(identifier, str):
            gone = [max(gone) if gone and version == LATEST else version]
        if identifier not in self:
            raise KeyError(self._native.missing(name, version))
        self._unsettle(name)
        for number in gone:
            self._release(name, number)
            self._native.remove(name, number)

    def __contains__(self, identifier: object) -> bool:
        name, version = _split(identifier)
        return self._native.resolve(name, version) != 0

    def __iter__(self) -> Iterator[tuple[str, CatalogSource]]:
        for name in self._native.names():
            yield name, self[name]

    def keys(self) -> KeysView[str]:
        """The names, in the order in which they were added."""
        return _Names(self)

    def items(self) -> Iterator[tuple[str, CatalogSource]]:  # type: ignore[override]
        """Each name with its latest version."""
        return iter(self)

    def values(self) -> ValuesView[CatalogSource]:
        """The latest version of each source."""
        return _Latest(self)

    def get(self, key: Key, default: Any = None) -> Any:
        """``catalog[key]``, or the default where it is not there."""
        return self[key] if key in self else default

    def setdefault(self, key: Key, default: Any = None) -> Any:
        """``catalog[key]``; where it is not there, it is set first."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Key, *default: Any) -> Any:
        """Removes a name (all versions) or a version and gives the source."""
        if key not in self and default:
            return default[0]
        source = self.get(key)
        del self[key]
        return source

    def popitem(self) -> tuple[str, CatalogSource]:
        """Removes the name that was added last, with all versions."""
        if not len(self):
            raise KeyError("the catalog is empty")
        name = self._native.names()[-1]
        return name, self.pop(name)

    def clear(self) -> None:
        """Removes all sources."""
        for name in self._native.names():
            del self[name]

    def update(self, other: Any = (), /, **more: Source) -> None:  # type: ignore[override]
        """Sets each name of a mapping or of pairs; see ``union`` for the versions of catalogs."""
        pairs = other.items() if hasattr(other, "items") else other
        for name, source in (*pairs, *more.items()):
            self[name] = source

    def __len__(self) -> int:
        return len(self._native)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Catalog):
            return False
        try:
            return self._synced().equal(other._synced())
        except SampleTypeError:  # objects that only Python can compare
            mine, theirs = self._rows(), other._rows()
            return len(mine) == len(theirs) and all(row in theirs for row in mine)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return str(sorted(self._native.names(), key=str.lower))

    def _rows(self) -> list[tuple[Any, ...]]:
        """(name, version, driver_name, driver_kwargs, metadata) of all versions."""
        rows: list[tuple[Any, ...]] = []
        for name in self._native.names():
            for version in self._native.versions(name):
                live = self._live.get((name, version))
                if live is not None:
                    rows.append((name, version, *live._described().values()))
                else:
                    rows.append((name, *(self._native.find(name, version) or ())))
        return rows

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in OWN}
        rows = self._rows()
        untrusted = [tuple(row[:2]) for row in rows if self._native.untrusted(*row[:2])]
        return {**state, "_rows": rows, "_untrusted": untrusted}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Catalog.__init__(self)
        untrusted = set(state.get("_untrusted", ()))
        for name, version, driver, kwargs, metadata in state["_rows"]:
            source = Source(driver, kwargs, metadata)
            if (name, version) in untrusted:
                source.__dict__["_distrusted"] = True
            self[name, version] = source
        self.__dict__.update((k, v) for k, v in state.items() if k not in ("_rows", "_untrusted"))

    # --- set algebra; a name and a version together are one element ---

    def copy(self) -> Catalog:
        """A deep copy."""
        return self._of(self._synced().copy())

    def slice(self, keys: Iterable[str]) -> Catalog:
        """A deep copy of all versions of these names alone.

        Raises:
            KeyError: a name is not there.
        """
        names = list(keys)
        if self._live:
            live = [(n, v) for n in names for v in self._native.versions(n) if (n, v) in self._live]
            self._native.sync({key: self._live[key] for key in live})
        return self._of(self._native.slice(names))

    def join(self, other: Catalog) -> Catalog:
        """The sources of both, which have no version of a name in common.

        Raises:
            ExistsError: they have one.
        """
        return self._of(self._synced().join(_native_of(other)))

    def union(self, other: Catalog, on_conflict: str = "error") -> Catalog:
        """The sources of both.

        Args:
            other: the other catalog.
            on_conflict: which source counts where both have a version of a name and the sources
                differ: "ours" (this catalog's), "theirs", or "error".

        Raises:
            ExistsError: there is such a version and ``on_conflict`` is "error".
        """
        if on_conflict not in CONFLICTS:
            raise ArgumentError(f'on_conflict is "error", "ours" or "theirs", not {on_conflict!r}')
        return self._of(self._synced().union(_native_of(other), CONFLICTS[on_conflict]))

    def difference(self, other: Catalog) -> Catalog:
        """What is in one of the two alone: the symmetric difference, as squirrel-core names it.

        See ``subtract`` for what is here and not there.
        """
        return self.symmetric_difference(other)

    def symmetric_difference(self, other: Catalog) -> Catalog:
        """The versions that are in one of the two alone."""
        return self._of(self._synced().symmetric_difference(_native_of(other)))

    def subtract(self, other: Catalog) -> Catalog:
        """The versions that are in this catalog and not in the other."""
        return self._of(self._synced().subtract(_native_of(other)))

    def intersection(self, other: Catalog) -> Catalog:
        """What is in both.

        Raises:
            ExistsError: a version of a name is in both and differs.
        """
        return self._of(self._synced().intersection(_native_of(other)))

    def filter(self, predicate: Callable[[CatalogSource], bool]) -> Catalog:  # type: ignore[valid-type]
        """A deep copy of the versions for which the predicate holds."""
        kept = self.copy()
        for name in self._native.names():
            for version in self._native.versions(name):
                if not predicate(kept[name, version]):
                    del kept[name, version]
        return kept

    # --- where catalogs come from, and go to ---

    @staticmethod
    def default() -> Catalog:
        """What the user has subscribed to and what plug-ins offer.

        Catalogs come from the environment variable SQUIRREL_CATALOGS (paths and URLs, separated by
        ";"), from the user's configuration (see ``subscribe``), from the folders
        squirrel/catalogs in $XDG_DATA_HOME and $XDG_DATA_DIRS, and from plug-ins.

        Raises:
            ExistsError: two of them have the same version of a source, with other contents.
            NotFoundError, DataError: one can't be read; a note says what named it.
        """
        catalog = Catalog._of(_places.join(_places.subscribed(), same_may_repeat=True))
        _places.add_plugins(catalog)
        return catalog

    @staticmethod
    def subscribe(path: str | PathLike[str]) -> bool:
        """Adds a catalog's file or URL to the default catalog; False where it was there already."""
        return _native.catalog_subscribe(os.fspath(path), True)

    @staticmethod
    def unsubscribe(path: str | PathLike[str]) -> bool:
        """Takes a catalog out of the user's configuration; False where it was not there."""
        return _native.catalog_subscribe(os.fspath(path), False)

    @staticmethod
    def from_plugins() -> Catalog:
        """What plug-ins offer. One that fails is reported by name, to the log, and left out."""
        catalog = Catalog()
        _places.add_plugins(catalog)
        return catalog

    @staticmethod
    def from_dirs(paths: list[str]) -> Catalog:
        """Joins all .yaml files of several directories."""
        return Catalog.from_files([file for path in _many(paths) for file in _places.list_files(path)])

    @staticmethod
    def from_files(paths: list[str]) -> Catalog:
        """Joins the catalogs of several files (paths, or URLs that fsspec knows).

        Raises:
            ExistsError: two files have the same version of a source; both are named.
        """
        files = [os.fspath(path) for path in _many(paths)]
        parts = ((path, _places.read(path)) for path in files)
        return Catalog._of(_places.join(parts, same_may_repeat=False))

    @staticmethod
    def from_str(cat: str) -> Catalog:
        """Reads YAML text.

        Raises:
            DataError: it is no catalog; line and column are named.
        """
        catalog = Catalog()
        catalog._native.read(cat, "catalog text", False, False)
        return catalog

    @staticmethod
    def from_json(text: str) -> Catalog:
        """Reads what ``to_json`` gives."""
        catalog = Catalog()
        catalog._native.read(text, "catalog text", True, False)
        return catalog

    def to_str(self) -> str:
        """The catalog as YAML."""
        return self._synced().write(False)

    def to_json(self) -> str:
        """The catalog as canonical JSON: equal catalogs give the same text, whatever their order."""
        return self._synced().write(True)

    def to_file(self, path: str | PathLike[str]) -> None:
        """Writes the catalog as YAML (JSON where the name ends in .json).

        A file that is there is replaced, whole or not at all.
        """
        _places.write(self._synced(), os.fspath(path))


def _many(paths: Any) -> list[Any]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"this takes a list of paths: [{os.fspath(paths)!r}]")
    return list(paths)
