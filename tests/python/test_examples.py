"""The programs in examples/python run and give what they should."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name: str, *arguments: object, cwd: Path) -> str:
    done = subprocess.run([sys.executable, "-W", "error", EXAMPLES / name, *map(str, arguments)], cwd=cwd,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_count_web_log(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl.gz"
    with gzip.open(path, "wt") as log:
        for i in range(3000):
            where = ("/api/orders", "/api/items", "/login")[i % 3]
            log.write(json.dumps({"path": where, "status": 500 + i % 2 if i % 10 == 0 else 200}) + "\n")
    # i = 0, 30, 60 ... are failing orders, i = 10, 40 ... failing items; all of them are even: status 500.
    lines = [line.split() for line in run("count_web_log.py", path, cwd=tmp_path).splitlines()]
    assert sorted(lines[:-1]) == [["100", "500", "/api/items"], ["100", "500", "/api/orders"]]


def test_train_fashion_mnist(tmp_path: Path) -> None:
    listed = subprocess.run([sys.executable, "-c", "import runpy, sys; sys.argv = ['x'];"
                             f"runpy.run_path({str(EXAMPLES / 'train_fashion_mnist.py')!r})['find_idx']()"],
                            capture_output=True, text=True)
    if "Fashion-MNIST is not here" in listed.stderr:
        pytest.skip("the data set is not installed: apt-get install dataset-fashion-mnist")
    if not Path(sys.executable).with_name("squirrel").exists():
        pytest.skip("the command is not installed beside this Python")
    printed = run("train_fashion_mnist.py", tmp_path / "demo", cwd=tmp_path)
    assert "70,000" in printed or "60,000 samples" in printed
    accuracies = [float(line.split("accuracy ")[1].split("%")[0])
                  for line in printed.splitlines() if "accuracy" in line]
    assert len(accuracies) == 3 and accuracies[-1] > 80
    assert (tmp_path / "demo" / "catalog.yaml").exists()


def test_first_steps(tmp_path: Path) -> None:
    printed = run("first_steps.py", tmp_path, cwd=tmp_path)
    assert "packed 2000 samples into 4 shards" in printed
    assert "square-6 (32, 32) {'size': 8}" in printed and "square-26 (32, 32)" in printed
    # A quarter of noise of 0 to 59 is covered by 64 pixels of 255, of 1024.
    mean = float(printed.split("mean brightness ")[1])
    assert mean == pytest.approx((960 * 29.5 + 64 * 255) / 1024, abs=1)


def test_pack_in_parallel(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for i in range(6):
        (tmp_path / "texts" / f"{i}.txt").write_text("\n\n".join(f"paragraph {k} " * (i + 1) for k in range(10)))
    (tmp_path / "texts" / "bad.txt").write_bytes(b"\xff\xfe no text")
    printed = run("pack_in_parallel.py", tmp_path / "texts", tmp_path / "packed", 2, cwd=tmp_path)
    assert "60 paragraphs of 6 files" in printed
    assert "skipped" in printed and "bad.txt" in printed and "UnicodeDecodeError" in printed
    assert "5.txt" in printed.splitlines()[-1]


def test_groups_of_fields(tmp_path: Path) -> None:
    lines = run("groups_of_fields.py", tmp_path / "d", cwd=tmp_path).splitlines()
    # 400 labels 0, 1, 2, 0 ...: 134, 133, 133
    assert lines[0] == "labels [134, 133, 133]"
    assert 0 < int(lines[1].split()[1]) < 400
    assert lines[2:] == [
        "images ['image'] 400",
        "labels ['label', 'patient'] 400",
        "statistics ['mean'] 400",
        "fields ['image', 'label', 'mean', 'patient']",
    ]
