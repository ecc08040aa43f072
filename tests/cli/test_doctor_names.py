"""doctor: two Python packages that own the name squirrel."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SQUIRREL = os.environ.get("SQUIRREL", str(Path(__file__).parents[2] / "build" / "cli" / "squirrel"))


def doctor(environment: Path, *words: str) -> str:
    variables = {**os.environ, "VIRTUAL_ENV": str(environment)}
    run = [SQUIRREL, "doctor", *words]
    return subprocess.run(run, capture_output=True, text=True, check=True, env=variables).stdout


@pytest.mark.parametrize("kind", ["site-packages", "dist-packages"])
def test_two_packages_of_one_name(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "lib" / "python3.12" / kind
    for name in ("squirrel_c-0.1.0.dist-info", "squirrel_datasets_core-0.3.1.dist-info", "squirrel"):
        (folder / name).mkdir(parents=True)
    assert "squirrel-core" not in doctor(tmp_path)
    assert "python name clash" not in json.loads(doctor(tmp_path, "--json"))
    (folder / "squirrel_core-0.20.2.dist-info").mkdir()
    told = doctor(tmp_path)
    assert f'both own the Python name "squirrel" in {folder}' in told and "--no-deps" in told
    assert "all is well" not in told
    assert json.loads(doctor(tmp_path, "--json"))["python name clash"] == str(folder)
