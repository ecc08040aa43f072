"""Catalogs: versioned sources under names, joined by set algebra, shared as YAML.

    catalog = Catalog()
    catalog["train"] = Source("sqrl", driver_kwargs={"url": "data/train"})   # version 1, then 2, ...
    catalog.to_file("catalog.yaml")

    catalog = Catalog.from_files(["catalog.yaml"])
    catalog["train"].get_driver().get_iter()                                 # the latest version
    catalog["train"][1].open()                                               # one version, a Stream
"""

from squirrel.catalog.catalog import Catalog, CatalogKey, CatalogSource
from squirrel.catalog.source import Source

__all__ = ["Catalog", "CatalogKey", "CatalogSource", "Source"]
