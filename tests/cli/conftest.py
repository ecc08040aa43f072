"""Fixtures of the command's tests."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from command import SQUIRREL, Command, samples, write_lines


def pytest_report_header() -> str:
    return f"squirrel: {SQUIRREL}"


@pytest.fixture
def squirrel(tmp_path: pathlib.Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def lines(tmp_path: pathlib.Path) -> pathlib.Path:
    """2,000 samples as JSON lines."""
    return write_lines(tmp_path / "lines.jsonl", samples(2000))


@pytest.fixture
def packed(squirrel: Command, lines: pathlib.Path) -> pathlib.Path:
    """The same as native shards of 500 samples, in several blocks each."""
    squirrel("pack", lines, "packed", "--samples-per-shard", 500, "--block-size", "8 KiB")
    return squirrel.folder / "packed"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root may mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("a small disk can't be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)
