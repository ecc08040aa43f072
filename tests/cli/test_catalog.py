"""Catalogs on the command line."""
from __future__ import annotations

import json

import pytest

from command import samples

CATALOG = """!YamlCatalog
version: 0.20.2
sources:
- !YamlSource
  identifier: lines
  driver_name: jsonl
  driver_kwargs: &kwargs
    url: lines.jsonl
- !YamlSource
  identifier: lines
  driver_name: sqrl
  driver_kwargs:
    url: packed
  version: 2
- !YamlSource
  identifier: same
  driver_name: jsonl
  driver_kwargs: *kwargs
- !YamlSource
  identifier: table
  driver_name: parquet
  driver_kwargs: {path: x}
- !YamlSource
  identifier: typo
  driver_name: jsnol
  driver_kwargs: *kwargs
"""


@pytest.fixture
def catalog(squirrel, packed):
    (squirrel.folder / "catalog.yaml").write_text(CATALOG)
    return squirrel


def test_ls(catalog):
    assert catalog("ls", "catalog.yaml").stdout.splitlines() == [
        "lines@1  jsonl  lines.jsonl", "lines@2  sqrl  packed", "same@1  jsonl  lines.jsonl", "table@1  parquet  ",
        "typo@1  jsnol  lines.jsonl"]
    rows = json.loads(catalog("ls", "catalog.yaml", "--json").stdout)
    assert rows[1] == {"name": "lines", "version": 2, "driver": "sqrl", "url": "packed"}
    assert rows[3]["url"] is None


@pytest.mark.parametrize("name, driver", [("lines", "sqrl"), ("lines@-1", "sqrl"), ("lines@1", "jsonl"),
                                          ("same", "jsonl")])
def test_every_reading_command_takes_a_reference(catalog, name, driver):
    reference = f"catalog.yaml#{name}"
    assert json.loads(catalog("info", reference, "--json").stdout)["driver"] == driver
    assert catalog.rows("head", reference, "-n", 3) == samples(3)
    catalog("verify", reference)
    catalog("pack", reference, "copy", "--where", "id < 4")
    assert catalog.rows("cat", "copy") == samples(4)


@pytest.mark.parametrize("name, part", [
    ("line", 'did you mean "lines"'), ("lines@3", "it has 1, 2"), ("table", "Python"),
    ("typo", 'did you mean "jsonl"')])
def test_wrong_references(catalog, name, part):
    message = catalog.error("cat", f"catalog.yaml#{name}")
    assert part in message and "catalog.yaml" in message


def test_options_behind_the_catalogs(catalog):
    assert "max_line" in catalog.error("head", "catalog.yaml#lines@1", "--max-line", "many", code=2)


@pytest.mark.parametrize("text, place", [
    ("a: [", "line 2"), ("sources: [{identifier: a}]", "line 1, column 11"), ("!!python/object:os.x {}", "line 1"),
    ("sources: &a [*a]", "line 1, column 14"), ("[" * 10_000, "line 1, column 101"), ("", "catalog.yaml")])
def test_damaged_catalogs(squirrel, text, place):
    (squirrel.folder / "catalog.yaml").write_text(text)
    message = squirrel.error("ls", "catalog.yaml")
    assert "catalog.yaml" in message and place in message


def test_a_file_with_a_hash_in_its_name(squirrel, lines):
    lines.rename(squirrel.folder / "a#b.jsonl")
    assert squirrel.rows("head", "a#b.jsonl", "-n", 1) == samples(1)
