"""Catalog as a mapping of versions, and its set algebra: the same in squirrel-core and here."""

from __future__ import annotations

import copy
import json
import pickle

from squirrel.catalog import Catalog, CatalogKey, Source
from squirrel.catalog.catalog import CatalogSource


def make() -> Catalog:
    catalog = Catalog()
    catalog["b"] = Source("csv", {"path": "x"}, {"rows": 1})
    catalog["a"] = Source("csv")
    catalog["a"] = Source("jsonl", driver_kwargs={"url": "u"})
    catalog["C"][3] = Source("x", metadata={"list": [1, {"k": None}]})
    catalog["C"][1] = Source("y")
    return catalog


def versions(catalog: Catalog) -> dict:
    return {name: list(catalog[name].versions) for name in catalog.keys()}


def raises(error: type, function, *arguments) -> bool:
    try:
        function(*arguments)
    except error:
        return True
    return False


def test_names_and_versions() -> None:
    catalog = make()
    assert versions(catalog) == {"b": [1], "a": [1, 2], "C": [3, 1]}
    assert len(catalog) == 3 and list(catalog.keys()) == ["b", "a", "C"] and repr(catalog) == "['a', 'b', 'C']"
    assert [(name, source.version) for name, source in catalog] == [("b", 1), ("a", 2), ("C", 3)]
    assert [(name, source.version) for name, source in catalog.items()] == [("b", 1), ("a", 2), ("C", 3)]
    assert {name: source.version for name, source in catalog.sources.items()} == {"b": 1, "a": 1, "C": 3}
    assert catalog["C"].version == catalog["C"][-1].version == catalog["C", -1].version == 3
    assert catalog[CatalogKey("C")].version == 3 and catalog[CatalogKey("C", 1)].driver_name == "y"
    catalog["C"] = Source("next")
    assert catalog["C"].version == 4
    catalog["C"][3] = Source("again")
    catalog["C", 9] = Source("nine")
    assert catalog["C", 3].driver_name == "again" and list(catalog["C"].versions) == [3, 1, 4, 9]
    assert [source.version for source in catalog["C"]] == [3, 1, 4, 9] and len(catalog["C"]) == 4


def test_membership() -> None:
    catalog = make()
    for there in ("a", ("a", 2), ("a", -1), CatalogKey("a", 1), CatalogKey("a")):
        assert there in catalog
    for missing in ("z", ("a", 3), ("z", 1), CatalogKey("z")):
        assert missing not in catalog
    assert 1 in catalog["a"] and -1 in catalog["a"] and 3 not in catalog["a"]
    assert raises(KeyError, lambda: catalog["a", 3]) and raises(KeyError, lambda: catalog["z", 1])
    assert raises(KeyError, lambda: catalog["a"][3])
    assert 1 not in catalog["z"] and catalog["z"].identifier == "z"


def test_removal() -> None:
    catalog = make()
    del catalog["a", -1]
    del catalog["C"][3]
    assert versions(catalog) == {"b": [1], "a": [1], "C": [1]}
    del catalog["a", 1]
    del catalog["b"]
    assert versions(catalog) == {"C": [1]}
    assert raises(KeyError, catalog.__delitem__, "a") and raises(KeyError, catalog.__delitem__, ("C", 2))
    assert catalog.pop("C").driver_name == "y" and len(catalog) == 0


def test_sources() -> None:
    given = Source("d", {"k": [1]}, {"m": 2})
    assert (given.driver_name, given.driver_kwargs, given.metadata) == ("d", {"k": [1]}, {"m": 2})
    assert Source("d").driver_kwargs == {} == Source("d").metadata and Source("d") == Source("d") != Source("e")
    assert json.loads(repr(given)) == {"driver_name": "d", "driver_kwargs": {"k": [1]}, "metadata": {"m": 2}}
    catalog = Catalog()
    catalog["n"] = given
    source = catalog["n"]
    assert isinstance(source, CatalogSource) and isinstance(source, Source) and source is not given
    assert source is catalog["n"] is catalog["n", 1] is source[1] is source[-1]
    assert source.driver_kwargs is given.driver_kwargs and source != given
    assert json.loads(repr(source)) == {"identifier": "n", "driver_name": "d", "driver_kwargs": {"k": [1]},
                                        "metadata": {"m": 2}, "version": 1, "versions": [1]}
    for wrong in ("identifier", "version", "versions"):
        assert raises(AttributeError, setattr, source, wrong, 1)
    assert raises(TypeError, hash, source) and raises(TypeError, hash, given)


def test_a_source_of_no_catalogs() -> None:
    source = CatalogSource(Source("d"), "id", Catalog())
    source[2] = Source("e")
    assert (source.identifier, source.version, list(source.versions), len(source)) == ("id", 1, [1, 2], 2)
    assert source[1] is source and source[2].driver_name == "e" and source[-1].version == 2 and 2 in source[2]
    del source[-1]
    assert list(source.versions) == [1]
    named = CatalogSource(source=Source("d"), identifier="id", catalog=Catalog(), version=4, versions=None)
    assert named.version == 4


def test_equality() -> None:
    assert make() == make() and not make() != make() and make() != {} and Catalog() == Catalog()
    other = make()
    other["new"] = Source("x")
    assert other != make() and make() != other
    for field, value in (("driver_kwargs", {"url": "v"}), ("metadata", {"url": "v"})):
        other = make()
        setattr(other["a"], field, value)
        assert other != make() and other["a"] != make()["a"] and other["a", 1] == make()["a", 1]
    assert raises(TypeError, hash, make())


def test_set_algebra() -> None:
    one, two = make(), Catalog()
    two["a"][2] = Source("jsonl", driver_kwargs={"url": "u"})
    two["a"][5] = Source("new")
    two["z"] = Source("z")
    assert versions(one.union(two)) == {"b": [1], "a": [1, 2, 5], "C": [3, 1], "z": [1]}
    assert versions(one.intersection(two)) == {"a": [2]}
    assert versions(one.difference(two)) == {"b": [1], "a": [1, 5], "C": [3, 1], "z": [1]}
    assert versions(one.slice(["C", "a"])) == {"C": [3, 1], "a": [1, 2]}
    assert versions(one.filter(lambda source: source.version == 1)) == {"b": [1], "a": [1], "C": [1]}
    assert versions(one.filter(predicate=lambda source: source.identifier == "C")) == {"C": [3, 1]}
    del two["a", 2]
    assert one.join(other=two) == one.union(other=two) and len(one.intersection(other=two)) == 0
    assert versions(one) == versions(make()) and one == make()


def test_results_are_deep_copies() -> None:
    catalog = make()
    results = [catalog.copy(), catalog.union(Catalog()), Catalog().union(catalog), catalog.slice(["C"]),
               catalog.filter(lambda source: True), catalog.intersection(make()), catalog.difference(Catalog()),
               catalog.join(Catalog()), copy.deepcopy(catalog), pickle.loads(pickle.dumps(catalog))]
    for result in results:
        assert isinstance(result, Catalog) and result["C", 3] == catalog["C", 3]
        result["C", 3].metadata["list"][1]["k"] = "changed"
        result["C"] = Source("more")
        assert catalog == make()


def test_changes_count_at_once() -> None:
    catalog = make()
    catalog["a"].metadata["size"] = 3
    catalog["a", 1].driver_name = "other"
    catalog["a", 1].driver_kwargs = {"k": 1}
    for result in (catalog.copy(), catalog.union(Catalog()), catalog.slice(["a"])):
        assert result["a"].metadata == {"size": 3} and result["a", 1].driver_name == "other"
        assert result["a", 1].driver_kwargs == {"k": 1}


def test_a_source_pickles_with_its_catalog() -> None:
    source = pickle.loads(pickle.dumps(make()["a"]))
    assert source == make()["a"] and list(source.versions) == [1, 2] and source[1].driver_name == "csv"


def test_keys() -> None:
    assert CatalogKey("a") == ("a", -1) and CatalogKey(identifier="a", version=2) == ("a", 2)
    assert CatalogKey._fields == ("identifier", "version") and hash(CatalogKey("a", 2)) == hash(("a", 2))
