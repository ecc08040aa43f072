"""Figures of orders against their definitions, and the command's against Python's."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
from xml.etree import ElementTree
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import squirrel
from squirrel.benchmark.shuffle_quality import buffer_order, kendall_tau, measure, plot, stream_order

COMMAND = Path(os.environ.get("SQUIRREL", Path(sys.executable).with_name("squirrel")))


def plain_tau(a, b):
    """Tau-b by counting all pairs."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    sign = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in pairs]
    up, left, right = (sum(x) for x in zip(*[(s * t, s != 0, t != 0) for s, t in sign])) if pairs else (0, 0, 0)
    return up / math.sqrt(left * right) if left and right else math.nan


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_tau(pairs):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    assert kendall_tau(a, b) == pytest.approx(plain_tau(a, b), nan_ok=True)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 5), st.randoms(use_true_random=False))
def test_figures(count, batch, groups, rng):
    order = list(range(count))
    rng.shuffle(order)
    group = [rng.randrange(groups) for _ in order]
    got = measure(order, group, batch)
    away = [abs(i - x) for i, x in enumerate(order)]
    assert got.mean_displacement == pytest.approx(sum(away) / count**2)
    assert got.max_displacement == pytest.approx(max(away) / count)
    assert got.tau == pytest.approx(plain_tau(range(count), order), nan_ok=True)
    batch = min(batch, count)
    batches = [group[k : k + batch] for k in range(0, count - batch + 1, batch)]

    def entropy(values):
        shares = [values.count(v) / len(values) for v in set(values)]
        return -sum(p * math.log2(p) for p in shares)

    assert got.batches == len(batches)
    assert got.batch_groups == pytest.approx(sum(len(set(b)) for b in batches) / len(batches))
    assert got.batch_entropy == pytest.approx(sum(map(entropy, batches)) / len(batches))
    assert got.whole_entropy == pytest.approx(entropy(group))
    expected = sum(
        1 - math.comb(count - group.count(g), batch) / math.comb(count, batch) for g in set(group)
    )
    assert got.random_batch_groups == pytest.approx(expected)


def test_the_trap():
    """A small initial buffer lets the first samples come nearly in order, whatever the size is."""
    trap, _ = buffer_order(10, 1000, size=5000, initial=100, shuffle_shards=False)
    good, _ = buffer_order(10, 1000, size=5000, initial=5000, shuffle_shards=False)
    assert sorted(trap) == sorted(good) == list(range(10_000))
    assert trap[:100].max() < 500 < good[:100].max()
    assert measure(good).tau < measure(trap).tau


def test_subsets_and_refusals():
    assert measure([5, 900, 2]).max_displacement == pytest.approx(2 / 3)
    assert measure([7]).batches == 1
    with pytest.raises(ValueError, match="no samples"):
        measure([])
    with pytest.raises(ValueError, match="at least 1"):
        measure([1], batch_size=0)
    with pytest.raises(ValueError, match="same length"):
        measure([1, 2], [0])
    with pytest.raises(ValueError, match="group"):
        measure([1], [1 << 26])


def test_the_command(images):
    if not COMMAND.exists():
        pytest.skip("the command is not here")
    stream = squirrel.open(images).shuffle_all(seed=4, window="60 KiB")
    order, groups = stream_order(stream)
    assert sorted(order) == list(range(2000))
    labels = [sample["label"] for sample in stream]  # labels count the samples
    assert order.tolist() == labels
    wanted = measure(order, groups, 100)
    after, _ = stream_order(stream.set_epoch(1))
    command = [COMMAND, "shuffle-quality", images, "--shuffle", "4", "--window", "60KiB", "--batch", "100", "--json"]
    got = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert got["samples"] == 2000 and got["batch"] == 100
    assert got["tau"] == pytest.approx(wanted.tau)
    assert got["tau_between_epochs"] == pytest.approx(kendall_tau(order, after))
    assert got["mean_displacement"] == pytest.approx(wanted.mean_displacement)
    assert got["batch_shards"] == pytest.approx(wanted.batch_groups)
    assert got["random_batch_shards"] == pytest.approx(wanted.random_batch_groups)
    assert got["batch_entropy"] == pytest.approx(wanted.batch_entropy)
    wrong = subprocess.run([COMMAND, "shuffle-quality", images, "--window", "1MiB"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--shuffle" in wrong.stderr


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_command_draws(images, tmp_path, shuffle):
    if not COMMAND.exists():
        pytest.skip("the command is not here")
    stream = squirrel.open(images).shuffle_all(seed=4, window="60 KiB") if shuffle else squirrel.open(images)
    options = ["--shuffle", "4", "--window", "60KiB"] if shuffle else []
    picture = tmp_path / "order.svg"
    subprocess.run([COMMAND, "shuffle-quality", images, *options, "--plot", picture], check=True, capture_output=True)
    root = ElementTree.parse(picture).getroot()
    (path,) = root.iter("{http://www.w3.org/2000/svg}path")
    dots = [tuple(map(float, dot.split("h")[0].split())) for dot in path.get("d").split("M")[1:]]
    order, _ = stream_order(stream)
    assert len(dots) == 2000
    for place, (x, y) in enumerate(dots):
        assert x == pytest.approx(70 + 600 * (place + 0.5) / 2000, abs=0.06)
        assert y == pytest.approx(670 - 600 * (order[place] + 0.5) / 2000, abs=0.06)
    nowhere = [COMMAND, "shuffle-quality", images, "--plot", tmp_path / "none" / "order.svg"]
    refused = subprocess.run(nowhere, capture_output=True, text=True)
    assert refused.returncode == 1 and "--plot" in refused.stderr and "can't be written" in refused.stderr
    other = [COMMAND, "shuffle-quality", images, "--plot", tmp_path / "order.png"]
    refused = subprocess.run(other, capture_output=True, text=True)
    assert refused.returncode == 2 and "must end in .svg" in refused.stderr
    assert not (tmp_path / "order.png").exists()


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    plot(np.random.default_rng(1).permutation(1000), tmp_path / "order.png")
    assert (tmp_path / "order.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot([1], tmp_path / "order.png")
