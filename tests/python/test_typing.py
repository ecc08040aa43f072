"""What a type checker knows of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import squirrel
stream = squirrel.open("data")
reveal_type(stream.filter("a == 1").select("a").shuffle_all(1))
for batch in stream.batch(4).take(3):
    reveal_type(batch)
    reveal_type(batch.rows)
for sample in stream.map(lambda s: s).take(2):
    reveal_type(sample)
with stream.batch(4).iterator() as batches:
    reveal_type(next(batches))
reveal_type(stream.batch(4).collect())
reveal_type(squirrel.pack([{"a": 1}], "out").failed)
stream.batch("four")
"""


def test_what_mypy_reveals(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(CODE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", sys.executable, "use.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = [line.split(": ", 1)[1] for line in done.stdout.splitlines()[:-1]]
    assert lines == [
        'note: Revealed type is "squirrel.stream.Stream"',
        'note: Revealed type is "squirrel.batch.Batch"',
        'note: Revealed type is "int"',
        'note: Revealed type is "Any"',
        'note: Revealed type is "squirrel.batch.Batch"',
        'note: Revealed type is "list[squirrel.batch.Batch]"',
        'note: Revealed type is "list[tuple[int, str]]"',
        'error: Argument 1 to "batch" of "Stream" has incompatible type "str"; expected "int | None"  [arg-type]',
    ], done.stdout + done.stderr
