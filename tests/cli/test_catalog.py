"""Catalogs on the command line."""
from __future__ import annotations

import json
import os
import sys

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


# --- squirrel catalog ---

MINE = """sources:
- {identifier: lines, driver_name: jsonl, driver_kwargs: {url: lines.jsonl}, metadata: {by: me}}
- {identifier: own, driver_name: jsonl, driver_kwargs: {url: lines.jsonl, max_line: 1 MiB}}
"""


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A user without catalogs."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "SQUIRREL_CATALOGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def two(catalog, home):
    (catalog.folder / "mine.yaml").write_text(MINE)
    return catalog


def test_list_of_several(two):
    listed = two("catalog", "ls", "mine.yaml").stdout.splitlines()
    assert listed == ["lines@1  jsonl  lines.jsonl", "own@1  jsonl  lines.jsonl"]
    message = two.error("catalog", "ls", "catalog.yaml", "mine.yaml")
    assert "mine.yaml" in message and 'version 1 of source "lines" differs' in message and "(in metadata)" in message


def test_show(two):
    assert two("catalog", "show", "mine.yaml#own").stdout == """!YamlCatalog
version: 0.20.2
sources:
- !YamlSource
  identifier: own
  driver_name: jsonl
  driver_kwargs:
    url: lines.jsonl
    max_line: "1 MiB"
  version: 1
  metadata: {}
"""
    shown = json.loads(two("catalog", "show", "catalog.yaml#lines@2", "--json").stdout)
    assert shown == {"version": "0.20.2", "sources": [
        {"identifier": "lines", "version": 2, "driver_name": "sqrl", "driver_kwargs": {"url": "packed"},
         "metadata": {}}]}
    assert len(json.loads(two("catalog", "show", "catalog.yaml", "--json").stdout)["sources"]) == 5
    assert 'did you mean "own"' in two.error("catalog", "show", "mine.yaml#ow")


def test_diff(two):
    done = two("catalog", "diff", "catalog.yaml", "mine.yaml", code=1)
    assert done.stdout.splitlines() == [
        "! lines@1  metadata", "- lines@2", "- same@1", "- table@1", "- typo@1", "+ own@1"] and done.stderr == ""
    rows = json.loads(two("catalog", "diff", "mine.yaml", "catalog.yaml", "--json", code=1).stdout)
    assert {"name": "own", "version": 1, "change": "removed", "fields": None} in rows and len(rows) == 6
    assert {"name": "lines", "version": 1, "change": "changed", "fields": "metadata"} in rows
    two("catalog", "convert", "mine.yaml", "same.json")
    assert two("catalog", "diff", "mine.yaml", "same.json").stdout == ""


@pytest.mark.parametrize("which, metadata", [("ours", {}), ("theirs", {"by": "me"})])
def test_merge(two, which, metadata):
    assert "lines" in two.error("catalog", "merge", "catalog.yaml", "mine.yaml", "all.yaml")
    assert not (two.folder / "all.yaml").exists()
    two("catalog", "merge", "catalog.yaml", "mine.yaml", "all.json", "--on-conflict", which)
    sources = json.loads((two.folder / "all.json").read_text())["sources"]
    assert len(sources) == 6 and [s["metadata"] for s in sources if s["identifier"] == "lines"] == [metadata, {}]
    message = two.error("catalog", "merge", "mine.yaml", "all.json")
    assert "--overwrite" in message and "all.json" in message
    two("catalog", "merge", "mine.yaml", "all.json", "--overwrite")
    assert len(json.loads((two.folder / "all.json").read_text())["sources"]) == 2
    assert "on-conflict" in two.error("catalog", "merge", "mine.yaml", "x.yaml", "--on-conflict", "right", code=2)


def test_convert_there_and_back(two):
    """Equal catalogs have one JSON, whatever the order and the layout of their YAML."""
    two("catalog", "convert", "catalog.yaml", "a.json")
    two("catalog", "convert", "a.json", "b.yaml")
    two("catalog", "convert", "b.yaml", "b.json")
    text = (two.folder / "a.json").read_text()
    assert (two.folder / "b.json").read_text() == text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert two("catalog", "convert", "catalog.yaml", "-", "--json").stdout == text
    assert json.loads(two("info", "a.json#lines@1", "--json").stdout)["driver"] == "jsonl"


def test_validate(two):
    done = two("catalog", "validate", "mine.yaml")
    assert done.stdout == "2 good, 0 not checked, 0 wrong\n"
    lines = two("catalog", "validate", "catalog.yaml", "mine.yaml", code=1).stdout.splitlines()
    assert lines[-1] == "5 good, 1 not checked, 1 wrong"
    assert lines[0].startswith("catalog.yaml: table@1: not checked") and "Python" in lines[0]
    assert lines[1].startswith("catalog.yaml: typo@1: wrong") and 'did you mean "jsonl"' in lines[1]
    (two.folder / "bad.yaml").write_text(MINE.replace("max_line", "max_lime"))
    report = json.loads(two("catalog", "validate", "bad.yaml", "--json", code=1).stdout)
    assert report["wrong"] == 1 and "max_line" in report["findings"][0]["message"]
    (two.folder / "gone.yaml").write_text(MINE.replace("lines.jsonl", "gone.jsonl"))
    two("catalog", "validate", "gone.yaml")
    assert "2 wrong" in two("catalog", "validate", "gone.yaml", "--open", code=1).stdout


def test_the_users_catalogs(two, home, monkeypatch):
    assert "subscribe" in two("catalog", "subscribe").stdout and two("catalog", "ls").stdout == ""
    two("catalog", "subscribe", "mine.yaml")
    config = home / ".config/squirrel/catalogs"
    assert config.read_text() == f"{two.folder}/mine.yaml\n"
    assert "already" in two("catalog", "subscribe", "mine.yaml").stderr
    config.write_text("# of the team\n\n" + config.read_text())
    assert [line.split("@")[0] for line in two("catalog", "ls").stdout.splitlines()] == ["lines", "own"]
    assert two.rows("head", "#own", "-n", 1) == samples(1)
    assert 'did you mean "own"' in two.error("head", "#ow")
    folder = two.folder / "data/squirrel/catalogs"
    folder.mkdir(parents=True)
    (folder / "b.yaml").write_text(MINE.replace("own", "shared"))
    (folder / "c.txt").write_text("no catalog")
    monkeypatch.setenv("SQUIRREL_CATALOGS", " ~/env.yaml ;")
    (home / "env.yaml").write_text(MINE.replace("own", "env"))
    assert [row["url"] for row in json.loads(two("catalog", "subscribe", "--json").stdout)] == [
        f"{home}/env.yaml", f"{two.folder}/mine.yaml", f"{folder}/b.yaml"]
    assert [line.split("@")[0] for line in two("catalog", "ls").stdout.splitlines()] == [
        "lines", "env", "own", "shared"]
    (folder / "b.yaml").write_text(MINE.replace("by: me", "by: them"))
    message = two.error("catalog", "ls")
    assert f"{home}/env.yaml" in message and f"{folder}/b.yaml" in message and 'source "lines"' in message
    (folder / "b.yaml").write_text("sources: {")
    assert f"{folder}/b.yaml" in two.error("catalog", "ls")
    (folder / "b.yaml").unlink()
    two("catalog", "subscribe", "--remove", "mine.yaml")
    assert config.read_text() == "# of the team\n\n"
    assert "not subscribed" in two("catalog", "subscribe", "--remove", "mine.yaml", code=1).stderr


def test_a_catalog_that_is_not_there_is_no_subscription(two, home):
    assert "nowhere.yaml" in two.error("catalog", "subscribe", "nowhere.yaml")
    assert not (home / ".config").exists()
    (home / ".config/squirrel").mkdir(parents=True)
    (home / ".config/squirrel/catalogs").write_text("\n/nowhere/x.yaml\n")
    message = two.error("catalog", "ls")
    assert "squirrel/catalogs: line 2" in message and "/nowhere/x.yaml" in message


@pytest.mark.parametrize("words, part", [
    (["lst"], "did you mean 'ls'"), (["frobnicate"], "subscribe"), (["diff", "a.yaml"], "diff wants"),
    (["show"], "show wants"), (["subscribe", "--remove"], "--remove")])
def test_wrong_words(squirrel, words, part):
    assert part in squirrel.error("catalog", *words, code=2)


def test_plugins_of_a_python_that_is_named(squirrel, tmp_path):
    """SQUIRREL_PYTHON names an interpreter: what its packages offer is in the default catalog."""
    pytest.importorskip("squirrel._native")
    site = tmp_path / "site"
    (site / "offer-1.0.dist-info").mkdir(parents=True)
    (site / "offer-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: offer\nVersion: 1.0\n")
    (site / "offer-1.0.dist-info/entry_points.txt").write_text("[squirrel]\noffer = offer\n")
    (site / "offer.py").write_text(
        "from squirrel.catalog import CatalogKey, Source\n"
        "from squirrel.framework.plugins.hookimpl import hookimpl\n"
        "print('noise')\n"
        "@hookimpl\n"
        "def squirrel_sources():\n"
        f"    return [(CatalogKey('offered', 3), Source('jsonl', {{'url': {str(tmp_path / 'x.jsonl')!r}}}))]\n")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "mine.yaml").write_text("sources: [{identifier: mine, driver_name: csv}]\n")
    bare = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "",
            "XDG_DATA_DIRS": str(tmp_path), "SQUIRREL_CATALOGS": str(tmp_path / "mine.yaml"),
            "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    assert squirrel("catalog", "ls", env=bare).stdout == "mine@1  csv  \n"
    env = {**bare, "SQUIRREL_PYTHON": sys.executable}
    listed = squirrel("catalog", "ls", env=env)
    assert listed.stdout.splitlines() == ["mine@1  csv  ", f"offered@3  jsonl  {tmp_path}/x.jsonl"]
    assert "noise" in listed.stderr
    assert json.loads(squirrel("cat", "#offered@3", env=env).stdout) == {"a": 1}
    message = squirrel.error("catalog", "ls", env={**bare, "SQUIRREL_PYTHON": "no-such-python"})
    assert "SQUIRREL_PYTHON" in message and "no-such-python can't be started" in message
    (tmp_path / "mine.yaml").write_text("sources: [")
    message = squirrel("catalog", "ls", env=env, code=1).stderr
    assert "mine.yaml" in message and "line 2" in message
