"""Catalogs as YAML: each side reads what the other wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from catalogs import SOURCES
from samples import all_differences

from squirrel.catalog import Catalog, CatalogKey, Source

Peer = Callable[..., str]


def ours() -> Catalog:
    catalog = Catalog()
    for name, version, driver, kwargs, metadata in SOURCES:
        catalog[name, version] = Source(driver, driver_kwargs=kwargs, metadata=metadata)
    return catalog


def rows(catalog: Catalog) -> list[tuple]:
    return [(name, source.version, source.driver_name, source.driver_kwargs, source.metadata)
            for name in catalog.keys() for source in catalog[name]]


def test_we_read_what_they_wrote(peer: Peer, tmp_path: Path) -> None:
    peer("catalog-write", tmp_path / "theirs.yaml")
    catalog = Catalog.from_files([tmp_path / "theirs.yaml"])
    assert all_differences(rows(catalog), list(SOURCES)) is None
    assert catalog == ours()


def test_they_read_what_we_wrote(peer: Peer, tmp_path: Path) -> None:
    ours().to_file(tmp_path / "ours.yaml")
    peer("catalog-check", tmp_path / "ours.yaml")


def test_to_and_fro(peer: Peer, tmp_path: Path) -> None:
    """Read from their file, written, read by them: nothing is lost on the way."""
    peer("catalog-write", tmp_path / "theirs.yaml")
    Catalog.from_files([tmp_path / "theirs.yaml"]).to_file(tmp_path / "again.yaml")
    peer("catalog-check", tmp_path / "again.yaml")


@pytest.mark.parametrize("text", ["", "a", "1", "-", "- ", ":", "a:", "#", " a", "a ", "\n", "\ta", "0x", "0o7", ".5",
                                  "1_000", "+1", "y", "N", "True", "NULL", "2001-01-01 10:00:00", "1:30", "---", "...",
                                  "\ufeff", "\ue000", "'", '"', "\\", "|", ">", "a\n\nb", "\r\n", "\x1b", "\x7f"])
def test_texts(peer_texts: dict[str, str], text: str) -> None:
    assert peer_texts[text] == text


@pytest.fixture(scope="module")
def peer_texts(peer: Peer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """All texts of the test above through our writer and their reader, in one run."""
    texts = test_texts.pytestmark[0].args[1]
    catalog = Catalog()
    catalog["texts"] = Source("d", metadata={f"t{i}": text for i, text in enumerate(texts)})
    path = tmp_path_factory.mktemp("texts") / "texts.yaml"
    catalog.to_file(path)
    ((_, _, _, _, metadata),) = json.loads(peer("catalog-dump", path))
    return {text: metadata[f"t{i}"] for i, text in enumerate(texts)}


def test_the_reference_writes_aliases_and_tags(peer: Peer, tmp_path: Path) -> None:
    """What the tests above read has all the features that they are for."""
    peer("catalog-write", tmp_path / "theirs.yaml")
    text = (tmp_path / "theirs.yaml").read_text(encoding="utf-8")
    for feature in ("!YamlCatalog", "!YamlSource", "!CatalogKey", "&id001", "*id001", "&id002"):
        assert feature in text
    key = Catalog.from_files([tmp_path / "theirs.yaml"])["both"].driver_kwargs["subsets"]["a"]
    assert isinstance(key, CatalogKey) and key == CatalogKey("train", 2)
