"""One test program for two packages: squirrel-core 0.20.2 and this one, each in its own environment.

A test marked ``fault("id")`` shows a fault of squirrel-core that is put right here: it must pass here, and must fail
there. Each id is listed in docs/migration.md.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import squirrel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # helpers, which worker processes import, too

# Ours has a native module; both own the import name.
REFERENCE = not hasattr(squirrel, "_native")


def pytest_report_header() -> str:
    name = "squirrel-core" if REFERENCE else "squirrel-c"
    try:
        return f"package under test: {name} {version(name)} ({squirrel.__file__})"
    except PackageNotFoundError:
        return f"package under test: {name} ({squirrel.__file__})"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(id): a fault of squirrel-core, by its id in docs/migration.md")
    config.addinivalue_line("markers", 'only(package): runs against "ours" or "reference" only')


def listed_faults() -> set[str]:
    """The ids in docs/migration.md: lines that begin with a bold `id`."""
    text = (HERE.parents[1] / "docs" / "migration.md").read_text()
    return set(re.findall(r"^- \*\*`([a-z0-9-]+)`\*\*", text, re.MULTILINE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed, here = listed_faults(), "reference" if REFERENCE else "ours"
    others = [item for item in items for mark in item.iter_markers("only") if mark.args != (here,)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    for item in items:
        for mark in item.iter_markers("fault"):
            (fault,) = mark.args
            if fault not in listed:
                raise pytest.UsageError(f"{item.nodeid}: fault {fault!r} is not listed in docs/migration.md")
            if REFERENCE:
                item.add_marker(pytest.mark.xfail(reason=f"fault of squirrel-core: {fault}", strict=True))


@pytest.fixture
def reference() -> bool:
    """Whether squirrel-core is under test."""
    return REFERENCE
