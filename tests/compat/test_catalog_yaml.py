"""Catalogs as YAML, files and directories: the same in squirrel-core and here."""

from __future__ import annotations

import pathlib
import tempfile

from squirrel.catalog import Catalog, CatalogKey, Source
from squirrel.catalog.yaml import YamlCatalog, YamlSource, catalog2yamlcatalog, yamlcatalog2catalog

TEXT = """!YamlCatalog
version: 0.4.0
sources:
- !YamlSource
  identifier: first
  driver_name: csv
- !YamlSource
  identifier: second
  driver_name: jsonl
  driver_kwargs: &id001
    url: data/second
    storage_options: {anon: true, retries: 3}
  version: 4
  metadata:
    "yes": yes
    octal: 012
    number: -1.5e3
    nothing: ~
    text: "12"
    folded: >-
      one
      two
    keys: [!CatalogKey [first, 1], {nested: [1, [2, {}], []]}]
- !YamlSource
  identifier: second
  driver_name: jsonl
  driver_kwargs: *id001
  version: 2
"""


def read() -> Catalog:
    return Catalog.from_str(TEXT)


def test_reading() -> None:
    catalog = read()
    assert list(catalog.keys()) == ["first", "second"] and list(catalog["second"].versions) == [4, 2]
    first = catalog["first"]
    assert (first.version, first.driver_name, first.driver_kwargs, first.metadata) == (1, "csv", {}, {})
    assert catalog["second", 4].driver_kwargs == catalog["second", 2].driver_kwargs == {
        "url": "data/second", "storage_options": {"anon": True, "retries": 3}}
    assert catalog["second", 4].metadata == {
        "yes": "yes", "octal": 12, "number": -1500.0, "nothing": None, "text": "12", "folded": "one two",
        "keys": [CatalogKey("first", 1), {"nested": [1, [2, {}], []]}]}
    key = catalog["second", 4].metadata["keys"][0]
    assert isinstance(key, CatalogKey) and (key.identifier, key.version) == ("first", 1)


def test_copies_keep_keys_and_lists() -> None:
    catalog = Catalog()
    catalog["both"] = Source("source_combiner", driver_kwargs={"subsets": {"a": CatalogKey("x", 2)}, "pair": [1, 2]})
    kwargs = catalog.copy()["both"].driver_kwargs
    assert kwargs == {"subsets": {"a": CatalogKey("x", 2)}, "pair": [1, 2]}
    assert isinstance(kwargs["subsets"]["a"], CatalogKey)


def test_files_and_directories() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = f"{folder}/one.yaml", f"{folder}/two.yaml"
        read().slice(["first"]).to_file(one)
        read().slice(["second"]).to_file(path=two)
        pathlib.Path(folder, "three.yml").write_text("no catalog")
        assert Catalog.from_files([one, two]) == read() and Catalog.from_files(paths=[one]) == read().slice(["first"])
        assert Catalog.from_dirs([folder]) == read() and Catalog.from_dirs(paths=[]) == Catalog()
        assert Catalog.from_files([f"file://{one}"]) == read().slice(["first"])
        assert Catalog.from_str(cat=pathlib.Path(two).read_text()) == read().slice(["second"])
        text = pathlib.Path(one).read_text()
        assert text.startswith("!YamlCatalog\nversion: 0.20.2\nsources:\n- !YamlSource\n  identifier: first\n")
        read().to_file(one)
        assert Catalog.from_files([one]) == read()


def test_objects_between() -> None:
    between = catalog2yamlcatalog(read())
    assert isinstance(between, YamlCatalog) and between.version == "0.20.2"
    assert [(s.identifier, s.version) for s in between.sources] == [("first", 1), ("second", 4), ("second", 2)]
    assert all(isinstance(s, YamlSource) for s in between.sources)
    assert yamlcatalog2catalog(between) == read()
    sources = [YamlSource("a", "csv"), YamlSource("a", "x", {"k": 1}, 2, {"m": 1})]
    whole = yamlcatalog2catalog(YamlCatalog(sources=sources))
    assert whole["a", 1].driver_name == "csv" and whole["a"].driver_kwargs == {"k": 1}
    assert whole["a"].metadata == {"m": 1}
