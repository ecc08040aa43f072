"""The examples about drivers, training and logging run and give what they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sample_data import skip_unless_packages_can_be_built

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name: str, cwd: Path) -> str:
    return run_python([EXAMPLES / name], cwd)


def run_python(words: list, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=600,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_graph_walks(tmp_path: Path) -> None:
    """Two walks of four nodes from each of six nodes of a ring; neighbours differ by 1, or 5 where it closes."""
    printed = run("walks_package/graph_walks.py", tmp_path).splitlines()
    lines = [line for line in printed if line[0].isdigit()]  # plug-ins may print
    walks = [[int(node) for node in line.split(" - ")] for line in lines]
    assert sorted(walk[0] for walk in walks) == sorted([*range(6)] * 2)
    assert all(len(walk) == 4 and {abs(a - b) for a, b in zip(walk, walk[1:])} <= {1, 5} for walk in walks)


def test_graph_walks_installed(tmp_path: Path) -> None:
    """The same driver, found by the entry point of its package."""
    skip_unless_packages_can_be_built()
    shutil.copytree(EXAMPLES / "walks_package", tmp_path / "package")
    run_python(
        ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--disable-pip-version-check", "--target", tmp_path / "site", tmp_path / "package"], tmp_path,
    )
    (tmp_path / "line.txt").write_text("a b\nb c\n")
    (tmp_path / "catalog.yaml").write_text(
        "!YamlCatalog\nsources:\n- !YamlSource\n  driver_kwargs: {length: 3, url: line.txt}\n"
        "  driver_name: random_walks\n  identifier: walks\n  version: 1\n"
    )
    code = "import squirrel.catalog as c\nfor w in c.Catalog.from_files(['catalog.yaml'])['walks'].get_driver()"
    printed = run_python(["-c", code + ".get_iter(flatten=True): print('-'.join(w))"], tmp_path,
                         PYTHONPATH=str(tmp_path / "site"))
    walks = [line for line in printed.splitlines() if line.count("-") == 2]
    assert len(walks) == 3 and walks[0][:4] == "a-b-" and walks[1][:2] == "b-" and walks[2][:4] == "c-b-"


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
