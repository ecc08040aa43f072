"""The examples on catalogs run and give what they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from squirrel.catalog import Catalog, Source

from sample_data import skip_unless_packages_can_be_built

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run(folder: Path, name: str, *arguments: object, **environment: object) -> list[str]:
    """Lines that an example prints, run for a user without catalogs."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "SQUIRREL_"))}
    mine |= {"HOME": str(folder / "home"), "XDG_DATA_DIRS": str(folder / "none"), **map_text(environment)}
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], cwd=folder, env=mine,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def map_text(environment: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in environment.items()}


def test_two_pipeline_steps(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("a b a\n\nb a\n")
    assert run(tmp_path, "pipeline_steps.py", "prepare", "texts", "data", "catalog.yaml") == ["words@1: 3 lines"]
    assert run(tmp_path, "pipeline_steps.py", "count", "catalog.yaml") == ["3 a", "2 b"]
    (tmp_path / "texts").write_text("c")
    assert run(tmp_path, "pipeline_steps.py", "prepare", "texts", "data", "catalog.yaml") == ["words@2: 1 lines"]
    assert run(tmp_path, "pipeline_steps.py", "count", "catalog.yaml") == ["1 c"]
    assert run(tmp_path, "pipeline_steps.py", "count", "catalog.yaml#words@1") == ["3 a", "2 b"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lines.jsonl").write_text('{"n": 1}\n')
    team, project = Catalog(), Catalog()
    team["shared"] = Source("csv", {"path": "old.csv"})
    team["of the team"] = Source("csv", {"path": "x.csv"})
    project["shared"] = Source("jsonl", {"url": "lines.jsonl"})
    project["own"] = Source("jsonl", {"url": "lines.jsonl"})
    team.to_file(tmp_path / "team.yaml")
    project.to_file(tmp_path / "project.yaml")
    return tmp_path


def test_the_default_catalog_and_a_projects(project: Path) -> None:
    printed = run(project, "join_catalogs.py", "project.yaml", "shared@1", SQUIRREL_CATALOGS=project / "team.yaml")
    mine = [line for line in printed if not line.startswith("pets@")]
    assert mine == ["shared@1  jsonl  project", "of the team@1  csv  default", "own@1  jsonl  project", "new: own",
                    "{'n': 1}"]


def test_a_package_that_offers_sources(project: Path) -> None:
    skip_unless_packages_can_be_built()
    site = project / "site"
    package = project / "package"
    subprocess.run(["cp", "-r", EXAMPLES / "pets_package", package], check=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                           "--no-index", "--disable-pip-version-check", "--target", site, package],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    printed = run(project, "join_catalogs.py", "project.yaml", "pets", PYTHONPATH=site)
    assert "pets@1  jsonl  default" in printed and "pets@2  jsonl  default" in printed
    assert printed[-1] == "{'name': 'Tom', 'kind': 'cat'}"


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/catalog.md: its program runs, its YAML is a catalog, and its JSON is that catalog's."""
    page = (EXAMPLES.parents[1] / "docs" / "catalog.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, re.M | re.S)
    program = next(text for language, text in blocks if language == "python" and "Catalog()" in text)
    (yaml,) = [text for language, text in blocks if language == "yaml"]
    (canonical,) = [text for language, text in blocks if language == "json"]
    assert Catalog.from_str(yaml).to_json() == canonical and Catalog.from_json(canonical).to_str() == yaml
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(program.replace("catalog[\"train\"].get_driver().get_iter()", "catalog[\"train\"].get_driver()"), found)
    catalog = found["catalog"]
    assert isinstance(catalog, Catalog) and catalog["train"].version == 2 and catalog["test"].version == 7
    offer = next(text for language, text in blocks if language == "python" and "squirrel_sources" in text)
    exec(offer, found)
    ((key, source),) = found["squirrel_sources"]()  # type: ignore[operator]
    catalog[key] = source
    assert catalog[key].get_driver().url == source.driver_kwargs["url"]
