"""Catalogs as objects that ruamel.yaml reads and writes, for programs that work with it themselves.

``Catalog.from_files`` and ``to_file`` do not need it: they read and write the same files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from squirrel.catalog.catalog import Catalog, CatalogKey
from squirrel.catalog.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import ruamel.yaml  # type: ignore[import-not-found,unused-ignore]

__all__ = ["prep_yaml", "catalog2yamlcatalog", "yamlcatalog2catalog"]

sq_ver = "0.20.2"  # the form that is written: squirrel-core reads 0.4 and later
OLDEST = (0, 4)


def prep_yaml() -> ruamel.yaml.YAML:
    """A ruamel.yaml reader and writer that knows catalogs.

    Raises:
        ImportError: ruamel.yaml is not installed.
    """
    try:
        import ruamel.yaml
    except ImportError:
        raise ImportError("prep_yaml needs ruamel.yaml: pip install ruamel.yaml") from None
    yaml = ruamel.yaml.YAML()
    for known in (YamlSource, YamlCatalog, CatalogKey):
        yaml.register_class(known)
    return yaml


@dataclass
class YamlSource:
    """One version of a source, as a file has it."""

    identifier: str
    driver_name: str
    driver_kwargs: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class YamlCatalog:
    """A catalog as a file has it; ``version`` is that of squirrel-core whose form it has."""

    version: str = sq_ver
    sources: list[YamlSource] = field(default_factory=list)


def catalog2yamlcatalog(catobj: Catalog) -> YamlCatalog:
    """All versions of all sources, one after another."""
    return YamlCatalog(
        sources=[
            YamlSource(
                name, s.driver_name, s.driver_kwargs or {}, s.version, s.metadata or {}
            )
            for name in catobj.keys()
            for s in catobj[name]
        ]
    )


def yamlcatalog2catalog(yamlcat: YamlCatalog) -> Catalog:
    """A catalog of what was read; fields that are not there have their defaults.

    Raises:
        ValueError: it has a version before 0.4.
    """
    whole = YamlCatalog(**vars(yamlcat))
    number = re.match(r"(\d+)\.(\d+)", str(whole.version))
    if not number or tuple(map(int, number.groups())) < OLDEST:
        raise ValueError(f"a catalog of version {whole.version}; 0.4 and later are read")
    catalog = Catalog()
    for source in whole.sources:
        s = YamlSource(**vars(source))
        catalog[s.identifier, s.version] = Source(
            s.driver_name, dict(s.driver_kwargs or {}), dict(s.metadata or {})
        )
    return catalog
