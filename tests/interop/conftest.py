"""The reference: squirrel-core 0.20.2 in an environment of its own (tools/setup.sh test makes it)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("SQUIRREL_CORE_PYTHON", HERE.parents[1] / ".venv-squirrel-core" / "bin" / "python"))


@pytest.fixture(scope="session")
def peer() -> Callable[..., str]:
    """Runs peer.py in squirrel-core's Python and gives what it printed; what differs fails the test."""
    if not PYTHON.exists():
        pytest.skip(f"squirrel-core's environment is not at {PYTHON.parents[1]}")
    # A path to this package would lay it over the other one, which has the same name.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run([PYTHON, "-c", "from importlib.metadata import version as v; print(v('squirrel-core'))"],
                           capture_output=True, text=True, env=bare)
    if found.stdout.strip() != "0.20.2":
        pytest.skip(f"{PYTHON} has not squirrel-core 0.20.2: {(found.stdout + found.stderr).strip()[-200:]}")

    def run(*arguments: object) -> str:
        words = [PYTHON, HERE / "peer.py", *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, env=bare)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
