"""Shared fixtures of the Python tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import squirrel

from sample_data import image_samples


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also the long runs")


def pytest_configure(config: pytest.Config) -> None:
    # A background job of a shell ignores SIGINT and hands that on to the programs started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "soak: a long run, only with --soak")
    config.addinivalue_line("markers", "once: tests compiled code, the same on every Python: one is enough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--soak"):
        for item in items:
            if "soak" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="a long run: give --soak"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real test data, where it is here."""
    named = os.environ.get("SQRL_TEST_DATA")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real test data are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 samples in shards of 300."""
    folder = tmp_path_factory.mktemp("images") / "data"
    squirrel.pack(image_samples(2000), folder, samples_per_shard=300, block_bytes=20_000)
    return folder


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()  # nothing where it has ended
    with process:  # waits for it and closes its pipes
        pass


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """started(words, **options of Popen) -> a process. However the test ends, it is killed and its pipes are closed:
    what is left of one test would otherwise be the next one's ResourceWarning."""
    with contextlib.ExitStack() as processes:

        def start(words: list[str], **options: Any) -> subprocess.Popen[Any]:
            process = subprocess.Popen(words, **options)
            processes.callback(_end, process)
            return process

        yield start


@pytest.fixture
def script(tmp_path: Path):
    """Runs Python code in a process of its own: script(code, timeout=...) -> CompletedProcess."""

    def run(code: str, *args: str, timeout: float = 300, **kw: object):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(code))
        return subprocess.run(
            [sys.executable, str(path), *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            **kw,
        )

    return run
