"""The examples about drivers, training and logging run and give what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_graph_walks(tmp_path: Path) -> None:
    """Two walks of four nodes from each of six nodes of a ring; neighbours differ by 1, or 5 where it closes."""
    lines = [line for line in run("graph_walks.py", tmp_path).splitlines() if line[0].isdigit()]  # plug-ins may print
    walks = [[int(node) for node in line.split(" - ")] for line in lines]
    assert sorted(walk[0] for walk in walks) == sorted([*range(6)] * 2)
    assert all(len(walk) == 4 and {abs(a - b) for a, b in zip(walk, walk[1:])} <= {1, 5} for walk in walks)


def test_train_ranks(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    assert run("train_ranks.py", tmp_path) == (
        "2400 samples, each exactly once in each of 2 epochs, over 2 x 2 workers\n"
    )


def test_log_throughput(tmp_path: Path) -> None:
    """What the stream measured is in MLflow's data base."""
    pytest.importorskip("mlflow")
    first, rate, volume = [line for line in run("log_throughput.py", tmp_path).splitlines() if line]
    assert first == "400 of 500 samples kept"
    assert rate.startswith("stream/IOPS number/s: ") and float(rate.split(": ")[1]) > 0
    assert volume.startswith("stream/throughput MB/s: ") and float(volume.split(": ")[1]) >= 0
    assert (tmp_path / "mlflow" / "mlflow.db").stat().st_size > 0
