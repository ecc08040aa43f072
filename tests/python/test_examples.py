"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(name: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, args)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_steps(tmp_path: Path) -> None:
    out = run("first_steps.py", tmp_path)
    assert "2000 samples into 4 shards" in out and "'image': (256, 32, 32)" in out
    assert "parallel_map(brightness)" in out


def test_pack_in_parallel(tmp_path: Path) -> None:
    source = tmp_path / "texts"
    source.mkdir()
    for i in range(20):
        (source / f"{i:02}.txt").write_text("\n\n".join(f"paragraph {k} of {i}" for k in range(i)))
    (source / "bad.txt").write_bytes(b"\xff\xfe\xff")
    out = run("pack_in_parallel.py", source, tmp_path / "shards")
    assert f"{sum(range(20))} paragraphs of 20 files" in out and "skipped" in out and "bad.txt" in out


def test_count_web_log(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    log.write_text(
        '{"status": 500, "path": "/api/items"}\n{"status": 200, "path": "/api/items"}\n'
        '{"status": 503, "path": "/login"}\n{"status": 500, "path": "/api/items"}\n'
    )
    out = run("count_web_log.py", log)
    assert out.splitlines()[0].split() == ["2", "500", "/api/items"]
