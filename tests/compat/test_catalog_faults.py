"""What squirrel-core's catalog does wrong: each test must fail there. More of it is in tests/python."""

from __future__ import annotations

from pathlib import Path

import pytest
from squirrel.catalog import Catalog, CatalogKey, Source
from squirrel.catalog.yaml import YamlCatalog, YamlSource, yamlcatalog2catalog


def one(driver: str = "csv", **kwargs: object) -> Catalog:
    catalog = Catalog()
    catalog["data"] = Source(driver, dict(kwargs))
    return catalog


@pytest.mark.fault("union-conflict")
def test_a_union_does_not_choose_silently() -> None:
    with pytest.raises(Exception, match="version 1 of source .data. differs"):
        one(path="a").union(one(path="b"))
    assert one(path="a").union(one(path="b"), on_conflict="theirs")["data"].driver_kwargs == {"path": "b"}


@pytest.mark.fault("difference-symmetric")
def test_both_differences_have_names() -> None:
    other = one()
    other["new"] = Source("x")
    assert list(other.subtract(one()).keys()) == ["new"] and list(one().subtract(other).keys()) == []
    assert one().symmetric_difference(other) == one().difference(other)


@pytest.mark.fault("equality-driver")
def test_equality_knows_the_driver() -> None:
    assert one("csv") != one("jsonl") and one("csv")["data"] != one("jsonl")["data"]


@pytest.mark.fault("missing-name")
@pytest.mark.parametrize("use", [lambda s: s.get_driver(), lambda s: s[1], lambda s: s.version, len, list, bool])
def test_a_name_that_is_not_there(use) -> None:
    with pytest.raises(KeyError, match='did you mean "data"'):
        use(one()["dat"])


@pytest.mark.fault("missing-message")
def test_a_version_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="it has 1"):
        one()["data", 7]


@pytest.mark.fault("values")
def test_values() -> None:
    assert [source.driver_name for source in one().values()] == ["csv"]


@pytest.mark.fault("mapping-methods")
@pytest.mark.parametrize("use", [
    lambda c: c.get("x", 7) == 7, lambda c: c.pop("x", 7) == 7, lambda c: c.popitem()[0] == "data",
    lambda c: c.setdefault("x", Source("y")).driver_name == "y",
    lambda c: c.update(one("z")) or c["data"].driver_name == "z",
    lambda c: c.clear() or len(c) == 0,
])  # fmt: skip
def test_the_methods_of_a_mapping(use) -> None:
    assert use(one())


@pytest.mark.fault("catalog-asserts")
@pytest.mark.parametrize("version", [0, -3])
def test_wrong_versions(version: int) -> None:
    with pytest.raises(ValueError, match="versions are 1, 2, 3"):
        one()["data"][version] = Source("x")


@pytest.mark.fault("catalog-asserts")
def test_joins_say_what_is_in_both() -> None:
    with pytest.raises(OSError, match="version 1 of source .data."):
        one().join(one())


@pytest.mark.fault("catalog-asserts")
def test_only_sources_are_set() -> None:
    with pytest.raises(TypeError, match="Sources, not dict"):
        one()["more"] = {"driver_name": "x"}


@pytest.mark.fault("key-latest")
def test_a_key_without_a_version_appends() -> None:
    catalog = one()
    catalog[CatalogKey("data")] = Source("x")
    assert list(catalog["data"].versions) == [1, 2]


@pytest.mark.fault("files-named")
def test_both_files_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        one().to_file(str(tmp_path / f"{name}.yaml"))
    with pytest.raises(OSError, match="a.yaml and .*b.yaml: .*'data'"):
        Catalog.from_files([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])


@pytest.mark.fault("form-version")
def test_versions_with_a_suffix() -> None:
    assert yamlcatalog2catalog(YamlCatalog("0.20.2-dev1", [YamlSource("data", "csv")])) == one()


@pytest.mark.fault("storage-options")
def test_a_driver_without_storage_options(tmp_path: Path) -> None:
    from squirrel.driver import IterDriver
    from squirrel.framework.plugins.plugin_manager import register_driver

    class Plain(IterDriver):
        name = "plain"

        def __init__(self, catalog: object = None, **kwargs: object) -> None:
            self.given = kwargs

        def get_iter(self, **kwargs: object) -> object:
            raise NotImplementedError

    register_driver(Plain)
    assert one("plain", a=1)["data"].get_driver(b=2).given == {"a": 1, "b": 2}


@pytest.mark.fault("last-version")
def test_a_name_goes_with_its_last_version() -> None:
    catalog = one()
    del catalog["data"][1]
    assert "data" not in catalog and len(catalog) == 0


@pytest.mark.fault("none-kwargs")
def test_no_arguments() -> None:
    catalog = Catalog()
    catalog["data"] = Source("csv", None, None)
    assert catalog.copy()["data"].driver_kwargs == {}


@pytest.mark.fault("shallow-copy")
def test_a_copy_is_of_its_own() -> None:
    import copy

    catalog = one()
    copy.copy(catalog)["more"] = Source("x")
    assert list(catalog.keys()) == ["data"]


@pytest.mark.fault("plain-values")
def test_values_are_pythons_own() -> None:
    text = "!YamlCatalog\nversion: 0.4.0\nsources:\n- !YamlSource\n  identifier: a\n  driver_name: b\n" \
           "  metadata: {list: [1], map: {a: 1.5}}\n"
    metadata = Catalog.from_str(text)["a"].metadata
    assert [type(value) for value in metadata.values()] == [list, dict]
    assert type(metadata["map"]["a"]) is float
