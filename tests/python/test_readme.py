"""The examples of README.md work as they are printed."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import squirrel

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMAND = Path(sys.executable).with_name("squirrel")


def example(language: str, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)
    (found,) = [block for block in blocks if containing in block]
    return found


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the Python example ran, with a look into its last batch and sample."""
    folder = tmp_path_factory.mktemp("readme")
    looks = (
        "assert sorted(batch) == sorted(sample) == ['image', 'label'], (batch, sample)\n"
        "assert batch['image'].shape[1:] == (28, 28) and batch['image'].dtype == np.uint8\n"
        "assert batch['label'].dtype == np.int64 and 3 not in batch['label']\n"
        "assert sample['label'] == 1 and (sample['image'] == 1).all() and sample['image'].flags.owndata\n"
        "assert sum(len(b['label']) for b in stream.batch(256)) == 9000\n"
    )
    code = example("python", "squirrel.pack") + looks
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, check=True)
    return folder


def test_python(numbers: Path) -> None:
    found = list(squirrel.open(numbers / "numbers"))
    assert [s["label"] for s in found] == [i % 10 for i in range(10_000)]
    assert np.array_equal(found[300]["image"], np.full((28, 28), 300 % 256, np.uint8))


@pytest.fixture
def outputs(numbers: Path) -> dict[str, str]:
    """What each command of the shell example prints, run in the order of the page."""
    if not COMMAND.exists():
        pytest.skip("the command is not installed beside this Python")
    with gzip.open(numbers / "access.log.gz", "wt") as log:
        for i in range(1000):
            log.write(json.dumps({"path": f"/{i}", "status": 200}) + "\n")
    environment = {**os.environ, "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
    printed = {}
    for line in example("sh", "squirrel info").splitlines():
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], cwd=numbers, env=environment,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed[line.split("#")[0].strip()] = done.stdout
    return printed


def test_shell(outputs: dict[str, str], numbers: Path) -> None:
    info, head, cat, convert, pack = outputs.values()
    assert "10,000" in info or "10000" in info
    assert "image" in info and "label" in info
    assert [json.loads(line) for line in head.splitlines()] == [{"label": i} for i in range(3)]
    assert int(cat) == 1000
    with gzip.open(numbers / "labels.jsonl.gz", "rt") as file:
        assert [json.loads(line) for line in file] == [{"label": i % 10} for i in range(10_000)]
    assert [s["path"] for s in squirrel.open(numbers / "logs")] == [f"/{i}" for i in range(1000)]


def test_c_names_are_declared() -> None:
    """Whole programs are in examples/c, built and run by the step `install`; here the fragment's names."""
    headers = "\n".join(path.read_text() for path in (ROOT / "include" / "sqrl").glob("*.h"))
    fragment = example("c", "sqrl_open")
    names = set(re.findall(r"\bsqrl_\w+|\bSQRL_\w+", fragment))
    assert len(names) >= 6
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", headers)] == []


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []
