"""Plug-ins by entry point: when they are loaded, and what one that fails does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pluggy")


def package(folder: Path, name: str, code: str) -> None:
    """An installed package, by hand: a module and the metadata that pip leaves."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[squirrel]\n{name} = {name}\n")


GOOD = """
print("loaded {name}", flush=True)
from squirrel.catalog import CatalogKey, Source
from squirrel.driver import IterDriver
from squirrel.framework.plugins.hookimpl import hookimpl
from squirrel.iterstream import IterableSource

class Driver(IterDriver):
    name = "{name}"
    def get_iter(self, **kwargs):
        return IterableSource(["{name}"])

@hookimpl
def squirrel_drivers():
    return [Driver]

@hookimpl
def squirrel_sources():
    return [(CatalogKey("{name}-data", 1), Source("{name}"))]
"""


@pytest.fixture
def installed(tmp_path: Path, script: Callable) -> Callable:
    folder = tmp_path / "site"
    folder.mkdir()

    def run(code: str, **packages: str):
        for name, text in packages.items():
            package(folder, name, text)
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        done = script(code, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_a_plugin_is_loaded_once_and_never_at_import(installed: Callable) -> None:
    done = installed(
        """
        import squirrel, squirrel.driver, squirrel.catalog, squirrel.framework.plugins.plugin_manager as plugins
        print("imported", flush=True)
        from squirrel.catalog import Catalog
        for _ in range(3):
            catalog = Catalog.from_plugins()
            print(catalog["one-data"].get_driver().get_iter().collect(), plugins.list_driver_names().count("one"))
        """,
        one=GOOD.format(name="one"),
    )
    assert done.stdout.split("\n") == ["imported", "loaded one", *["['one'] 1"] * 3, ""]


@pytest.mark.parametrize("bad", [
    "raise RuntimeError('no license')",
    "import a_module_that_is_not_there",
    GOOD.format(name="bad").replace("return [Driver]", "raise RuntimeError('no license')"),
])
def test_one_that_fails_is_named_and_the_others_work(installed: Callable, bad: str) -> None:
    done = installed(
        """
        import logging
        logging.basicConfig()
        from squirrel.framework.plugins import plugin_manager
        from squirrel.driver import driver_class
        print(driver_class("good").name)
        assert any(name.startswith("bad") for name in plugin_manager.failed_plugins()), plugin_manager.failed_plugins()
        try:
            driver_class("bad")
        except ValueError as error:
            print(error)
        """,
        good=GOOD.format(name="good"), bad=bad,
    )
    assert "WARNING:squirrel:the plug-in bad" in done.stderr
    assert "driver 'bad' is not known" in done.stdout and "the plug-in bad" in done.stdout


SOURCES = """
import numpy as np
from squirrel.catalog import CatalogKey, Source
from squirrel.framework.plugins.hookimpl import hookimpl

@hookimpl
def squirrel_sources():
    return [(CatalogKey("a", 1), Source("csv")), (("b", np.int64(7)), Source("csv", {"n": (1,)})), %s]
"""


@pytest.mark.parametrize("wrong", [
    '(CatalogKey("", 1), Source("csv"))', '(CatalogKey(""), Source("csv"))', '(CatalogKey("c", 0), Source("csv"))',
    '(CatalogKey("a", 1), Source("csv"))', '(CatalogKey("c", 1), "csv")', '(CatalogKey("c", 2**70), Source("csv"))',
    '(CatalogKey(3, 1), Source("csv"))', "None",
])  # fmt: skip
def test_sources_of_a_plugin_come_all_or_none(installed: Callable, wrong: str) -> None:
    done = installed(
        """
        import logging
        logging.basicConfig()
        from squirrel.catalog import Catalog
        catalog = Catalog.from_plugins()
        print(sorted((name, source.version, source.driver_kwargs) for name, source in catalog))
        print(Catalog.from_json(catalog.to_json()) == catalog, len(catalog.union(catalog)))
        """,
        good=SOURCES % '(CatalogKey("a"), Source("jsonl"))', other=GOOD.format(name="other"), bad=SOURCES % wrong,
    )
    assert "WARNING:squirrel:the sources of the plug-in bad are left out" in done.stderr
    wanted = [("a", 2, {}), ("b", 7, {"n": (1,)}), ("other-data", 1, {})]
    assert done.stdout.splitlines()[1:] == [str(wanted), "True 3"]


def test_a_plugin_of_the_same_name_wins_over_the_library(installed: Callable) -> None:
    done = installed(
        "from squirrel.driver import driver_class\nprint(driver_class('sqrl').__module__)",
        own=GOOD.format(name="own").replace('name = "own"', 'name = "sqrl"'),
    )
    assert "loaded own" in done.stdout and done.stdout.split()[-1] == "own"


USES_DATASETS = """
import gzip, lzma, pathlib, sys

from squirrel.catalog import Catalog, Source
from squirrel.framework.plugins.plugin_manager import failed_plugins, list_driver_names

folder = pathlib.Path(sys.argv[1])
assert not failed_plugins(), failed_plugins()
assert {"c4", "cc100", "california_housing"} <= set(list_driver_names())
with lzma.open(folder / "en.txt.xz", "wt") as file:
    file.write("one\\n\\ntwo\\n")
for part in range(2):
    with gzip.open(folder / f"c4-{part}.json.gz", "wt") as file:
        file.write("".join(f'{{"text": "t{part}{i}", "url": "u", "timestamp": "s"}}\\n' for i in range(3)))
catalog = Catalog()
catalog["cc"] = Source("cc100", driver_kwargs={"subsets": {"en": str(folder / "en.txt.xz")}})
urls = [str(folder / f"c4-{part}.json.gz") for part in range(2)]
catalog["c4"] = Source("c4", driver_kwargs={"subsets": {"en": {"train": urls, "valid": []}}})
assert len(catalog["cc"].get_driver().select("en").get_iter().collect()) == 2
found = catalog["c4"].get_driver().select("en", "train").get_iter().collect()
print(" ".join(sample["text"] for sample in found))
"""


def test_squirrel_datasets_core(tmp_path: Path) -> None:
    """squirrel-datasets-core 0.3.1, installed with --no-deps, is found and its drivers work.

    It lies in a folder of its own, since every other test that loads plug-ins would load it, too.
    """
    pytest.importorskip("pandas")  # what it imports
    folder = Path(sys.prefix) / "squirrel-datasets-core"
    if not folder.exists():
        pytest.skip(f"not there: pip install --no-deps --target {folder} squirrel-datasets-core==0.3.1")
    done = subprocess.run(
        [sys.executable, "-c", USES_DATASETS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=300,
    )
    # The package prints what else it could not import.
    last = (done.stdout.splitlines() or [""])[-1]
    assert last.split() == ["t00", "t01", "t02", "t10", "t11", "t12"], done.stderr
