"""Fixtures of the command's tests."""
from __future__ import annotations

import pathlib

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
