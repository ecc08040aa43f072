"""What squirrel-core's catalog does wrong and this one does not: a test for each line of docs/migration.md."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import squirrel
from squirrel.catalog import Catalog, CatalogKey, Source
from squirrel.catalog.catalog import CatalogSource, DummyCatalogSource
from squirrel.catalog.yaml import YamlCatalog, YamlSource, prep_yaml, yamlcatalog2catalog
from squirrel.driver import IterDriver


def one(driver: str = "csv", **kwargs: object) -> Catalog:
    catalog = Catalog()
    catalog["data"] = Source(driver, dict(kwargs))
    return catalog


def test_a_union_says_which_source_counts() -> None:
    ours, theirs = one(path="a"), one(path="b")
    with pytest.raises(squirrel.ExistsError, match=r'version 1 of source "data".*\(in driver_kwargs\).*ours or theirs'):
        ours.union(theirs)
    assert ours.union(theirs, on_conflict="ours")["data"].driver_kwargs == {"path": "a"}
    assert ours.union(theirs, on_conflict="theirs")["data"].driver_kwargs == {"path": "b"}
    assert ours.union(one(path="a")) == ours


def test_differences() -> None:
    ours, theirs = one(), one("jsonl")
    ours["mine"], theirs["yours"] = Source("x"), Source("x")
    assert ours.difference(theirs) == ours.symmetric_difference(theirs) == theirs.difference(ours)
    assert list(ours.difference(theirs).keys()) == ["mine", "yours"]
    assert list(ours.subtract(theirs).keys()) == ["mine"] and list(theirs.subtract(ours).keys()) == ["yours"]


def test_equality_knows_the_driver() -> None:
    assert one("csv") != one("jsonl") and one("csv")["data"] != one("jsonl")["data"] and one() == one()


@pytest.mark.parametrize("use", [
    lambda s: s.get_driver(), lambda s: s.metadata, lambda s: s.version, lambda s: s.versions, lambda s: s[1],
    lambda s: s[-1], len, list, bool, lambda s: s == 3, lambda s: s.__delitem__(1), lambda s: s.anything,
])  # fmt: skip
def test_a_placeholder_can_only_be_set(use) -> None:
    catalog = one()
    with pytest.raises(KeyError, match='there is no source "dat"; did you mean "data"'):
        use(catalog["dat"])
    assert 1 not in catalog["dat"] and catalog["dat"].identifier == "dat" and "dat" not in catalog
    assert isinstance(catalog["dat"], DummyCatalogSource)
    catalog["dat"][2] = Source("new")
    assert catalog["dat", 2].driver_name == "new" and list(catalog["dat"].versions) == [2]


def test_near_names() -> None:
    catalog = Catalog()
    for name in ("imagenet-train", "imagenet-test", "cifar", "mnist"):
        catalog[name] = Source("x")
    for wrong, near in {"imagenet": 'did you mean "imagenet-train" or "imagenet-test"', "CIFAR-10": '"cifar"',
                        "mnits": '"mnist"', "imagenet_tarin": '"imagenet-train" or "imagenet-test"',
                        "nothing like it": "among the 4 of this catalog"}.items():
        with pytest.raises(KeyError, match=near):
            catalog[wrong, 1]


def test_values() -> None:
    catalog = one()
    catalog["more"] = Source("x")
    catalog["more"] = Source("y")
    assert [s.driver_name for s in catalog.values()] == ["csv", "y"] and len(catalog.values()) == 2
    assert catalog["more"] in catalog.values() and catalog["more", 1] not in catalog.values()


def test_the_mapping_methods() -> None:
    catalog = one()
    assert catalog.get("other") is None and catalog.get("other", "default") == "default"
    assert catalog.get(("data", 2), 5) == 5 and catalog.get("data").driver_name == "csv"
    assert catalog.setdefault("data", Source("x")).driver_name == "csv"
    assert catalog.setdefault("new", Source("x")).driver_name == "x"
    assert catalog.pop("other", 7) == 7
    with pytest.raises(KeyError, match="other"):
        catalog.pop("other")
    keys = catalog.keys()
    catalog["later"] = Source("x")
    assert "later" in keys and keys & {"later", "z"} == {"later"} and list(keys) == ["data", "new", "later"]
    assert catalog.popitem()[0] == "later" and list(keys) == ["data", "new"]
    with pytest.raises(KeyError):
        Catalog().popitem()


@pytest.mark.parametrize("version", [0, -3, "1", None, 1.5])
def test_wrong_versions_are_value_errors(version: object) -> None:
    for catalog in (one(), Catalog()):
        with pytest.raises(ValueError, match=f"source 'data': versions are 1, 2, 3 ..., not {version!r}"):
            catalog["data"][version] = Source("x")
        with pytest.raises(ValueError, match="versions are"):
            catalog["data", version] = Source("x")
    assert list(one()["data"].versions) == [1]


def test_version_minus_one_is_set_behind_the_latest() -> None:
    catalog = one()
    catalog[CatalogKey("data")] = Source("x")
    catalog["data"][-1] = Source("y")
    assert [s.driver_name for s in catalog["data"]] == ["csv", "x", "y"]


@pytest.mark.parametrize("key", [5, ("a",), ("a", 1, 2), None])
def test_wrong_keys(key: object) -> None:
    for use in (lambda c: c[key], lambda c: key in c, lambda c: c.__setitem__(key, Source("x")), lambda c: c.pop(key)):
        with pytest.raises(TypeError, match="a catalog's key is a name"):
            use(one())


@pytest.mark.parametrize("name", ["join", "union", "intersection", "difference", "subtract"])
def test_sets_are_of_catalogs(name: str) -> None:
    with pytest.raises(TypeError, match="must be a Catalog, not NoneType"):
        getattr(one(), name)(None)


def test_joins_and_intersections_name_what_they_refuse() -> None:
    with pytest.raises(squirrel.ExistsError, match='version 1 of source "data" is in both'):
        one().join(one())
    with pytest.raises(squirrel.ExistsError, match='version 1 of source "data" differs'):
        one().intersection(one("x"))


def test_both_files_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        catalog = one()
        if name == "b":
            catalog = Catalog()
            catalog["else"] = Source("x")
        catalog.to_file(tmp_path / f"{name}.yaml")
    with pytest.raises(squirrel.ExistsError) as raised:
        Catalog.from_dirs([tmp_path])
    message = str(raised.value)
    assert "a.yaml" in message and "c.yaml" in message and "b.yaml" not in message and "'data'" in message


@pytest.mark.parametrize("version", ["0.20.2-dev1", "0.20.2.dev3+g1", "1.0", "0.4"])
def test_versions_of_the_form(version: str) -> None:
    text = f"!YamlCatalog\nversion: {version}\nsources:\n- !YamlSource\n  identifier: data\n  driver_name: csv\n"
    assert Catalog.from_str(text) == one()
    assert yamlcatalog2catalog(YamlCatalog(version, [YamlSource("data", "csv")])) == one()


@pytest.mark.parametrize("version", ["0.3.9", "new", ""])
def test_old_forms_are_refused(version: str) -> None:
    with pytest.raises(squirrel.Error, match="version"):
        Catalog.from_str(f"!YamlCatalog\nversion: '{version}'\nsources: []\n")
    with pytest.raises(ValueError, match="0.4 and later"):
        yamlcatalog2catalog(YamlCatalog(version))


class Plain(IterDriver):
    """A driver that knows no storage_options."""

    name = "plain"

    def __init__(self, catalog: object = None, **kwargs: object) -> None:
        super().__init__(catalog=catalog)
        self.given = kwargs

    def get_iter(self, **kwargs: object) -> object:
        raise NotImplementedError


@pytest.mark.parametrize(("given", "more", "want"), [
    ({"a": 1}, {}, {"a": 1}), ({}, {}, {}), ({"a": 1}, {"a": 2}, {"a": 2}),
    ({"storage_options": {"x": 1, "y": 1}}, {"storage_options": {"y": 2}}, {"storage_options": {"x": 1, "y": 2}}),
    ({"storage_options": {"x": 1}}, {}, {"storage_options": {"x": 1}}),
    ({}, {"storage_options": {"x": 1}}, {"storage_options": {"x": 1}}),
    ({"storage_options": None}, {"storage_options": {"x": 1}}, {"storage_options": {"x": 1}}),
])  # fmt: skip
def test_storage_options_only_where_they_were_given(given, more, want, monkeypatch) -> None:
    monkeypatch.setattr("squirrel.driver.driver_class", lambda name: {"plain": Plain}[name])
    catalog = one("plain", **given)
    driver = catalog["data"].get_driver(**more)
    assert driver.given == want and catalog["data"].driver_kwargs == given


# --- beside squirrel-core ---


def test_what_only_python_can_hold() -> None:
    """Such a catalog can be used, compared and pickled; what is for the whole of it says what is in the way."""
    catalog = one(function=len, path=Path("x"))
    assert catalog["data"].driver_kwargs["function"] is len
    assert catalog == one(function=len, path=Path("x")) != one(function=len, path=Path("y"))
    assert pickle.loads(pickle.dumps(catalog)) == catalog == copy.deepcopy(catalog)
    for use in (Catalog.copy, Catalog.to_str, lambda c: c.union(Catalog()), lambda c: Catalog().join(c)):
        with pytest.raises(squirrel.SampleTypeError, match="can't be stored") as raised:
            use(catalog)
        assert any("'data'" in note for note in raised.value.__notes__)
    catalog["data"].driver_kwargs.clear()
    assert catalog.copy() == one()


def test_bytes_and_arrays_are_copied_but_not_written() -> None:
    numpy = pytest.importorskip("numpy")
    catalog = one(data=b"\0\1", array=numpy.arange(3))
    assert catalog.copy()["data"].driver_kwargs["data"] == b"\0\1"
    assert catalog.copy()["data"].driver_kwargs["array"].tolist() == [0, 1, 2]
    for write in (Catalog.to_str, Catalog.to_json):
        with pytest.raises(squirrel.UnsupportedError, match='source "data"'):
            write(catalog)


def test_a_source_after_its_removal() -> None:
    catalog = one()
    source = catalog["data"]
    del catalog["data"]
    assert (source.identifier, source.version, source.driver_name) == ("data", 1, "csv")
    assert len(source) == 0 and 1 not in source
    again = pickle.loads(pickle.dumps(source))
    assert isinstance(again, CatalogSource) and again == source
    assert copy.copy(source) == source


def test_subclasses_and_attributes_survive_pickling() -> None:
    catalog = one()
    catalog.note = "kept"
    assert pickle.loads(pickle.dumps(catalog)).note == "kept"


def test_prep_yaml() -> None:
    """Programs that read and write by ruamel.yaml themselves."""
    import io

    ruamel = pytest.importorskip("ruamel.yaml")
    from squirrel.catalog.yaml import catalog2yamlcatalog

    yaml = prep_yaml()
    assert isinstance(yaml, ruamel.YAML)
    catalog = one(key=CatalogKey("x", 2), nested={"a": [1, {"b": None}]})
    out = io.StringIO()
    yaml.dump(catalog2yamlcatalog(catalog), out)
    assert Catalog.from_str(out.getvalue()) == catalog
    assert yamlcatalog2catalog(yaml.load(catalog.to_str())) == catalog


def test_json() -> None:
    import json

    catalog = one(b=1, a={"z": [1.5, None, "é"], "y": CatalogKey("x", 2)})
    catalog["data"] = Source("x")
    catalog["a first one"] = Source("x")
    text = catalog.to_json()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert [s["identifier"] for s in json.loads(text)["sources"]] == ["a first one", "data", "data"]
    assert Catalog.from_json(text) == catalog and Catalog.from_json(text).to_json() == text
    other = Catalog()
    for name, version in (("a first one", 1), ("data", 2), ("data", 1)):
        source = catalog[name, version]
        other[name, version] = Source(source.driver_name, dict(reversed(source.driver_kwargs.items())))
    assert other == catalog and other.to_json() == text
    with pytest.raises(squirrel.UnsupportedError, match="key is no text"):
        one(a={1: 2}).to_json()
    with pytest.raises(squirrel.DataError, match="catalog text"):
        Catalog.from_json(text[:-4])


def test_json_files(tmp_path: Path) -> None:
    one(path="x").to_file(tmp_path / "c.json")
    assert (tmp_path / "c.json").read_text() == one(path="x").to_json()
    assert Catalog.from_files([tmp_path / "c.json"]) == one(path="x")
