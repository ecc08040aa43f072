"""pack --groups, add-fields, and what the other commands tell of groups."""
from __future__ import annotations

import json
import pathlib

import pytest

from command import Command, samples, write_lines


@pytest.fixture
def grouped(squirrel: Command, lines: pathlib.Path) -> pathlib.Path:
    squirrel("pack", lines, "grouped", "--samples-per-shard", 500, "--block-size", "8 KiB", "--groups",
             f"text={sorted(samples(1)[0])[-1]}", "--key", sorted(samples(1)[0])[0])
    return squirrel.folder / "grouped"


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_whole_samples_and_single_fields(squirrel: Command, grouped: pathlib.Path) -> None:
    wanted = samples(2000)
    assert rows(squirrel("cat", "grouped").stdout) == wanted
    for field in wanted[0]:
        assert rows(squirrel("cat", "grouped", "--select", field).stdout) == [{field: s[field]} for s in wanted]
    info = json.loads(squirrel("info", "grouped", "--json").stdout)
    assert sorted(g["name"] for g in info["groups"]) == ["rest", "text"]
    assert {g["samples"] for g in info["groups"]} == {2000}
    listed = json.loads(squirrel("ls", "grouped", "--json").stdout)
    assert len(listed) == 8 and {s["group"] for s in listed} == {"rest", "text"}


def test_fields_are_added_and_verified(squirrel: Command, grouped: pathlib.Path, tmp_path: pathlib.Path) -> None:
    write_lines(tmp_path / "new.jsonl", [{"rank": i / 8} for i in range(2000)])
    report = json.loads(squirrel("add-fields", "grouped", "new.jsonl", "--group", "scores", "--json").stdout)
    assert (report["samples"], report["shards"], report["group"]) == (2000, 4, "scores")
    assert rows(squirrel("cat", "grouped").stdout) == [{**s, "rank": i / 8} for i, s in enumerate(samples(2000))]
    assert squirrel("verify", "grouped").stdout.startswith("good: 4 shards")
    again = squirrel("add-fields", "grouped", "new.jsonl", "--group", "scores", code=1)
    assert 'a group "scores" already' in again.stderr
    part = next(grouped.glob("*.scores.sqrl"))
    data = bytearray(part.read_bytes())
    data[20] ^= 1
    part.write_bytes(data)
    damaged = squirrel("verify", "grouped", code=1)
    assert part.name in damaged.stderr and "checksum differs" in damaged.stderr
    squirrel("cat", "grouped", "--drop", "rank")  # nobody needs the damaged file


def test_words_that_are_no_groups(squirrel: Command, lines: pathlib.Path) -> None:
    for groups in ("images", "a=x;a=y", "=x", "a="):
        assert squirrel("pack", lines, "no", "--groups", groups, code=2).stderr
    assert not (squirrel.folder / "no").exists()
