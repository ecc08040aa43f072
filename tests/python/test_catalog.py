"""Catalogs: versions, set algebra, YAML, and opening what they name."""

from __future__ import annotations

import copy
import datetime
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import squirrel
from squirrel.catalog import Catalog, CatalogKey, CatalogSource, Source
from squirrel.driver import JsonlDriver, MessagepackDriver, driver_class


def some(*keys: tuple[str, int]) -> Catalog:
    catalog = Catalog()
    for name, version in keys:
        catalog[name, version] = Source("sqrl", {"url": f"{name}/{version}"}, {"list": [version]})
    return catalog


def keys(catalog: Catalog) -> list[tuple[str, int]]:
    return [(name, source.version) for name in catalog.keys() for source in catalog[name]]


# --- a mapping of versions ---


def test_versions_count_up() -> None:
    catalog = Catalog()
    for i in range(3):
        catalog["train"] = Source("sqrl", {"url": str(i)})
    assert [s.version for s in catalog["train"]] == [1, 2, 3]
    assert catalog["train"].version == 3 and catalog["train"].driver_kwargs == {"url": "2"}
    assert catalog["train", 1].driver_kwargs == {"url": "0"}
    assert catalog[CatalogKey("train", 2)] is catalog["train"][2]
    assert catalog[CatalogKey("train")] is catalog["train", -1] is catalog["train"][-1]
    assert list(catalog["train"].versions) == [1, 2, 3] and len(catalog["train"]) == 3


def test_versions_are_set_as_squirrel_core_sets_them() -> None:
    catalog = Catalog()
    catalog["new"][3] = Source("a")  # of a name that is not there yet
    catalog["new"][1] = Source("b")
    assert keys(catalog) == [("new", 3), ("new", 1)]
    catalog["new"] = Source("c")
    assert catalog["new"].version == 4
    catalog["new"][3] = Source("d")
    assert catalog["new", 3].driver_name == "d"
    for wrong in (0, -2, "1", 1.0, None):
        with pytest.raises(squirrel.ArgumentError, match="versions are"):
            catalog["new"][wrong] = Source("e")
    with pytest.raises(TypeError, match="holds Sources"):
        catalog["new"] = {"driver_name": "e"}
    assert keys(catalog) == [("new", 3), ("new", 1), ("new", 4)]


def test_membership_and_removal() -> None:
    catalog = some(("a", 1), ("a", 2), ("b", 5))
    assert "a" in catalog and ("a", 2) in catalog and CatalogKey("b") in catalog and 2 in catalog["a"]
    assert "c" not in catalog and ("a", 3) not in catalog and ("c", 1) not in catalog and 3 not in catalog["a"]
    del catalog["a", 2]
    assert keys(catalog) == [("a", 1), ("b", 5)]
    del catalog["a"][1]
    assert list(catalog.keys()) == ["b"]
    with pytest.raises(KeyError, match='no version 4; it has 5'):
        del catalog["b", 4]
    with pytest.raises(KeyError, match='no source "c"'):
        del catalog["c"]
    assert catalog.pop("b").version == 5 and len(catalog) == 0 and catalog.pop("b", None) is None


def test_iteration_gives_names_and_latest_sources() -> None:
    catalog = some(("b", 1), ("a", 1), ("b", 2))
    assert [(name, source.version) for name, source in catalog] == [("b", 2), ("a", 1)]
    assert list(catalog.items()) == list(catalog) and list(catalog.keys()) == ["b", "a"] and len(catalog) == 2
    assert [s.identifier for s in catalog.values()] == ["b", "a"]
    assert {name: list(s.versions) for name, s in catalog.sources.items()} == {"b": [1, 2], "a": [1]}
    other = Catalog()
    other.update(catalog)
    assert keys(other) == [("b", 1), ("a", 1)]
    assert other.popitem()[0] == "a"
    other.clear()
    assert not other


def test_what_is_missing_is_named() -> None:
    catalog = some(("train", 1), ("train", 4))
    with pytest.raises(KeyError, match="no version 2; it has 1, 4"):
        catalog["train", 2]
    with pytest.raises(KeyError, match='"train" has no version 0'):
        catalog["train", 0]
    with pytest.raises(KeyError, match='did you mean "train"'):
        catalog["trian"].get_driver()
    with pytest.raises(KeyError, match='did you mean "train"'):
        catalog["trian"][1]
    with pytest.raises(KeyError, match='did you mean "train"'):
        catalog["trian", 1]
    with pytest.raises(KeyError):
        list(catalog["trian"])
    assert catalog.get("trian") is None and catalog.get("trian", 3) == 3
    assert 'did you mean "train"' in repr(catalog["trian"])
    catalog["table"] = Source("cvs")
    with pytest.raises(ValueError, match="driver 'cvs' is not known; there are sqrl, messagepack"):
        catalog["table"].get_driver()


def test_equality() -> None:
    assert some(("a", 1), ("b", 2)) == some(("b", 2), ("a", 1))
    for other in (some(("a", 1)), some(("a", 1), ("b", 3)), some(("a", 1), ("b", 2), ("b", 3)), {}):
        assert some(("a", 1), ("b", 2)) != other
    for field in ("driver_name", "driver_kwargs", "metadata"):
        changed = some(("a", 1))
        setattr(changed["a"], field, "changed" if field == "driver_name" else {"changed": 1})
        assert changed != some(("a", 1))


# --- set algebra ---


def test_set_algebra() -> None:
    one, two = some(("a", 1), ("a", 2), ("b", 1)), some(("a", 2), ("a", 3), ("c", 1))
    assert keys(one.union(two)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    assert keys(one.symmetric_difference(two)) == keys(one.difference(two))
    assert keys(one.subtract(two)) == [("a", 1), ("b", 1)] and keys(two.subtract(one)) == [("a", 3), ("c", 1)]
    assert keys(one.intersection(two)) == [("a", 2)]
    assert keys(one.difference(two)) == [("a", 1), ("a", 3), ("b", 1), ("c", 1)]
    assert keys(one.slice(["a"])) == [("a", 1), ("a", 2)]
    assert keys(one.filter(lambda s: s.version == 1)) == [("a", 1), ("b", 1)]
    assert keys(one.join(some(("c", 1), ("a", 3)))) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    with pytest.raises(squirrel.ExistsError, match='version 2 of source "a"'):
        one.join(two)
    two["a", 2].metadata["changed"] = True
    with pytest.raises(squirrel.ExistsError, match='version 2 of source "a" differs'):
        one.intersection(two)
    with pytest.raises(squirrel.ExistsError, match='version 2 of source "a" differs'):
        one.union(two)
    assert one.union(two, on_conflict="theirs")["a", 2].metadata["changed"] is True
    assert "changed" not in one.union(two, on_conflict="ours")["a", 2].metadata
    with pytest.raises(squirrel.ArgumentError, match="right"):
        one.union(two, on_conflict="right")
    with pytest.raises(KeyError, match='no source "z"'):
        one.slice(["z"])
    assert keys(one) == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("copied", [
    Catalog.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), lambda c: c.union(Catalog()),
    lambda c: Catalog.from_str(c.to_str()),
])
def test_copies_are_deep(copied) -> None:
    catalog = some(("a", 1), ("a", 2))
    other = copied(catalog)
    assert other == catalog and isinstance(other["a"], CatalogSource)
    other["a", 1].metadata["list"].append("more")
    other["a"] = Source("new")
    assert catalog == some(("a", 1), ("a", 2)) and keys(other) == [("a", 1), ("a", 2), ("a", 3)]


# --- YAML ---


def test_files_and_directories(tmp_path: Path) -> None:
    some(("a", 1)).to_file(tmp_path / "one.yaml")
    some(("a", 2), ("b", 1)).to_file(str(tmp_path / "two.yaml"))
    (tmp_path / "other.txt").write_text("no catalog")
    both = some(("a", 1), ("a", 2), ("b", 1))
    assert Catalog.from_files([tmp_path / "one.yaml", str(tmp_path / "two.yaml")]) == both
    assert Catalog.from_dirs([tmp_path]) == both
    pytest.importorskip("fsspec")
    assert Catalog.from_files([(tmp_path / "one.yaml").as_uri()]) == some(("a", 1))
    assert Catalog.from_dirs([tmp_path.as_uri()]) == both
    both.to_file((tmp_path / "three.yaml").as_uri())
    assert Catalog.from_files([tmp_path / "three.yaml"]) == both
    with pytest.raises(squirrel.ExistsError, match="one.yaml and .*three.yaml: .*version 1 of source 'a'"):
        Catalog.from_files([tmp_path / "one.yaml", tmp_path / "three.yaml"])
    with pytest.raises(TypeError, match=r"a list of paths: \['/"):
        Catalog.from_files(str(tmp_path / "one.yaml"))
    with pytest.raises(FileNotFoundError):
        Catalog.from_files([tmp_path / "missing.yaml"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.yaml", "other.txt", "three.yaml", "two.yaml"]


def test_the_text_is_squirrel_cores() -> None:
    catalog = Catalog()
    catalog["train"] = Source("messagepack", {"url": "data/train"}, {"classes": 10})
    catalog["train"] = Source("messagepack", {"url": "data/train-2"})
    head, _, sources = catalog.to_str().partition("sources:\n")
    assert head.splitlines()[0] == "!YamlCatalog" and head.splitlines()[1].startswith("version: ")
    assert sources == """\
- !YamlSource
  identifier: train
  driver_name: messagepack
  driver_kwargs:
    url: data/train
  version: 1
  metadata:
    classes: 10
- !YamlSource
  identifier: train
  driver_name: messagepack
  driver_kwargs:
    url: data/train-2
  version: 2
  metadata: {}
"""


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    some(("a", 1)).to_file(path)
    before = path.read_bytes()
    bad = some(("a", 1))
    bad["b"] = Source("sqrl", {"url": b"bytes are no YAML"})
    with pytest.raises(squirrel.Error, match="b"):
        bad.to_file(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    some(("c", 1)).to_file(path)
    assert Catalog.from_files([path]) == some(("c", 1)) and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("text", "where"), [
    ("", "catalog"),
    ("- a\n- b\n", "line 1"),
    ("!YamlCatalog\nversion: 0.20.2\nsources:\n- !YamlSource\n  driver_name: sqrl\n", "identifier"),
    ("!YamlCatalog\nversion: 0.20.2\nsources:\n- !YamlSource\n  identifier: [a\n", "line"),
    ("!YamlCatalog\nversion: 0.20.2\nsources:\n- !!python/object:os.system\n  identifier: a\n", "python/object"),
])  # fmt: skip
def test_what_is_no_catalog_is_an_error_with_its_place(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(squirrel.Error, match=where):
        Catalog.from_str(text)
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(squirrel.Error, match="bad.yaml"):
        Catalog.from_files([tmp_path / "bad.yaml"])


# --- opening ---


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog over 50 samples in three formats."""
    folder = tmp_path_factory.mktemp("shared")
    samples = [{"n": i, "a": np.full(3, i, np.int16)} for i in range(50)]
    catalog = Catalog()
    for name in ("sqrl", "messagepack", "jsonl"):
        squirrel.pack(samples, folder / name, format=name, samples_per_shard=20, prefix="s")
        catalog["data"] = Source(name, {"url": str(folder / name)}, {"format": name})
    catalog.to_file(folder / "catalog.yaml")
    return folder


def test_all_versions_give_the_samples(shared: Path) -> None:
    catalog = Catalog.from_files([shared / "catalog.yaml"])
    for source in catalog["data"]:
        for stream in (source.get_driver().get_iter(), source.open()):
            assert stream.driver == source.metadata["format"]
            assert [int(s["a"][0]) for s in stream] == list(range(50))
    assert [s["n"] for s in catalog["data"].open().filter("n >= 48")] == [48, 49]


def test_references_open_a_version(shared: Path) -> None:
    drivers = {"#data": "jsonl", "#data@1": "sqrl", "#data@2": "messagepack", "#data@-1": "jsonl"}
    for reference, driver in drivers.items():
        assert squirrel.open(f"{shared}/catalog.yaml{reference}").driver == driver
    with pytest.raises(squirrel.NotFoundError, match="9"):
        squirrel.open(f"{shared}/catalog.yaml#data@9")
    with pytest.raises(squirrel.NotFoundError, match="data"):
        squirrel.open(f"{shared}/catalog.yaml#dato")


def test_the_command_reads_the_catalog(shared: Path) -> None:
    command = Path(sys.executable).with_name("squirrel")
    if not command.exists():
        pytest.skip("the command is not installed beside this Python")
    listed = subprocess.run([command, "ls", shared / "catalog.yaml"], capture_output=True, text=True, check=True)
    assert listed.stdout.count("data") >= 3 and "messagepack" in listed.stdout


def test_drivers(shared: Path) -> None:
    driver = MessagepackDriver(shared / "messagepack", storage_options={"anon": True})
    assert list(driver.keys()) == ["s-000000", "s-000001", "s-000002"]
    assert [s["n"] for s in driver.get("s-000001")] == list(range(20, 40))
    assert len(list(JsonlDriver(str(shared / "jsonl")).get_iter())) == 50
    assert list(JsonlDriver(shared / "jsonl" / "s-000002.jsonl").keys()) == ["s-000002.jsonl"]
    with pytest.raises(FileNotFoundError, match="x.gz"):
        driver.get("x")
    with pytest.raises(squirrel.NotFoundError, match="holds no shards.*only s-000000.jsonl"):
        list(MessagepackDriver(shared / "jsonl").get_iter())
    assert driver_class("jsonl") is JsonlDriver
    assert pickle.loads(pickle.dumps(driver)).url == str(shared / "messagepack")


def test_storage_options_reach_a_file_system_that_has_some(tmp_path: Path, monkeypatch) -> None:
    """Local files have none and ignore them; where there are some, the library gets them."""
    from squirrel import _native
    from squirrel.driver import JsonlDriver

    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    local = JsonlDriver(f"file://{tmp_path}/a.jsonl", storage_options={"anon": True}, nan=False)
    assert local.get_iter(storage_options={"b": 2}).collect() == [{"a": 1}]
    here = [{"name": "local", "doc": "", "schemes": "file|", "options": [{"name": "anon"}]}]
    monkeypatch.setattr(_native, "file_systems", lambda: here)
    with pytest.raises(squirrel.ArgumentError, match='has no option "anon"'):
        local.get_iter()


def test_arguments_of_the_call_win_and_storage_options_are_joined(shared: Path) -> None:
    catalog = Catalog()
    catalog["x"] = Source("jsonl", {"url": "nowhere", "storage_options": {"a": 1, "b": 1}})
    driver = catalog["x"].get_driver(url=str(shared / "jsonl"), storage_options={"b": 2})
    assert driver.storage_options == {"a": 1, "b": 2} and driver._catalog is catalog
    assert len(list(driver.get_iter(max_line="1 MiB"))) == 50
    assert catalog["x"].driver_kwargs["storage_options"] == {"a": 1, "b": 1}


def test_what_is_changed_in_a_source_is_seen_each_time() -> None:
    """A catalog as a whole looks at its sources' objects each time, whatever in them was changed."""
    catalog, empty = Catalog(), Catalog()
    catalog["a"] = Source("csv", {"path": "x", "deep": {"list": [1, [2]], "pair": (3, 4)}}, {"n": 1})
    source = catalog["a"]
    kwargs, metadata = source.driver_kwargs, source.metadata

    def check() -> None:
        for whole in (catalog.copy(), catalog.union(empty), Catalog.from_str(catalog.to_str())):
            found = whole["a"]
            assert (found.driver_name, found.driver_kwargs, found.metadata) == (
                source.driver_name, json.loads(json.dumps(source.driver_kwargs)), source.metadata)
            assert [type(v) for v in found.metadata.values()] == [type(v) for v in source.metadata.values()]
        assert catalog.copy() == catalog

    changes = [
        lambda: kwargs.update(path="y"), lambda: kwargs.pop("path"), lambda: kwargs.update(path="y"),
        lambda: kwargs["deep"]["list"].append(5), lambda: kwargs["deep"]["list"][1].append(2),
        lambda: kwargs["deep"].update(list=[[1, 2], 2, 5]), lambda: kwargs["deep"].update(list=[1, 2, [2], 5]),
        lambda: kwargs["deep"].update(pair=[3, 4]), lambda: kwargs["deep"].update(pair={"3": 4}),
        lambda: metadata.update(n=1.0), lambda: metadata.update(n=True), lambda: metadata.update(n="1"),
        lambda: metadata.update(n=None), lambda: metadata.update(more=10**15), lambda: metadata.update(more=10**15 + 1),
        lambda: metadata.clear(), lambda: metadata.update({str(i): i for i in range(300)}),
        lambda: metadata.update({"299": 0}), lambda: setattr(source, "driver_name", "jsonl"),
        lambda: setattr(source, "driver_kwargs", {}), lambda: setattr(source, "metadata", {"n": {}}),
    ]
    check()
    for change in changes:
        change()
        check()
        check()


def test_one_object_stands_for_a_version() -> None:
    catalog = Catalog.from_str(_yaml("a", 1) + _yaml("a", 3)[len(HEAD):])
    third = catalog["a"]
    assert third.version == 3 and catalog["a", 3] is catalog["a", -1] is catalog["a"][3] is third
    catalog["a"] = Source("csv")
    fourth = catalog["a", 4]
    assert catalog["a"] is fourth is not third and catalog["a", 3] is third and catalog["a", 1].version == 1
    del catalog["a", 4]
    assert catalog["a"] is third and catalog["a", 3] is third and fourth.driver_name == "csv"
    del catalog["a"]
    assert third.metadata == {"v": 3} and "a" not in catalog


HEAD = "!YamlCatalog\nversion: 0.20.2\nsources:\n"


def _yaml(name: str, version: int) -> str:
    return HEAD + (f"- !YamlSource\n  identifier: {name}\n  driver_name: jsonl\n  version: {version}\n"
                   f"  metadata:\n    v: {version}\n")


def test_dates_and_times(tmp_path: Path) -> None:
    """What squirrel-core writes for them; read back equal, and equal however they are written."""
    day, time = datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 12, 0, 0, 500)
    there = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    catalog = Catalog()
    catalog["a"] = Source("csv", {"from": day, "list": [time]}, {"there": there, "text": "2024-01-31"})
    text = catalog.to_str()
    for line in ("from: 2024-01-31\n", "- 2024-01-31 12:00:00.000500\n", "there: 2024-01-31 12:00:00-05:00\n",
                 "text: '2024-01-31'\n"):
        assert line in text or line.replace("'", '"') in text
    catalog.to_file(tmp_path / "c.json")
    assert '{"!Time":"2024-01-31"}' in (tmp_path / "c.json").read_text()
    for again in (catalog.copy(), Catalog.from_str(text), Catalog.from_files([tmp_path / "c.json"])):
        source = again["a"]
        assert source.driver_kwargs == {"from": day, "list": [time]}
        assert type(source.driver_kwargs["from"]) is datetime.date
        assert source.metadata == {"there": there, "text": "2024-01-31"} and again == catalog
        assert source.metadata["there"].utcoffset() == datetime.timedelta(hours=-5)
    odd = text.replace("2024-01-31 12:00:00-05:00", "2024-1-31t12:00:00.0 -5")
    assert odd != text and Catalog.from_str(odd) == catalog and Catalog.from_str(odd)["a"].metadata["there"] == there
    assert Catalog.from_str(odd).to_json() == catalog.to_json()
    assert Catalog.from_str(text.replace("from: 2024-01-31", "from: 2024-01-30")) != catalog
    catalog["a"].metadata["there"] = there.replace(tzinfo=datetime.timezone(datetime.timedelta(seconds=1)))
    with pytest.raises(squirrel.UnsupportedError, match="date or time"):
        catalog.to_str()
    catalog["a"].metadata["there"] = datetime.time(1, 2)  # squirrel-core refuses it, too
    with pytest.raises(squirrel.Error, match="time"):
        catalog.to_str()
