"""The order of shuffle_all: epochs, windows, single samples."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream import Composable


def labels(stream: Composable) -> list[int]:
    return [sample["label"] for sample in stream]


@pytest.mark.parametrize("window", [0, "40 KiB", None])
def test_every_epoch_has_all_samples_in_another_order(images: Path, window: int | str | None) -> None:
    stream = squirrel.open(images).shuffle_all(seed=3, window=window)
    orders = [labels(stream.set_epoch(epoch)) for epoch in range(4)]
    assert all(sorted(order) == list(range(2000)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert labels(stream.set_epoch(1)) == orders[1]
    batches = stream.batch(64).set_epoch(2)
    assert [int(label) for batch in batches for label in batch["label"]] == orders[2]


def test_the_last_stage_with_an_epoch_counts(images: Path) -> None:
    base = squirrel.open(images).select("label").shuffle_all(seed=3)
    orders = [labels(base.set_epoch(epoch)) for epoch in range(3)]
    base.set_epoch(1)
    mapped = base.map(dict)
    assert labels(mapped) == orders[1]
    assert labels(mapped.set_epoch(2)) == orders[2] and labels(base) == orders[1]
    assert labels(base.take(9)) == orders[1][:9]
    assert labels(pickle.loads(pickle.dumps(base))) == orders[1] == labels(copy.deepcopy(base))
    with pytest.raises(ValueError, match="epoch"):
        base.set_epoch(-1)


def test_loop_goes_through_epochs(images: Path) -> None:
    base = squirrel.open(images).select("label").shuffle_all(seed=3)
    orders = [labels(copy.copy(base).set_epoch(epoch)) for epoch in range(4)]
    assert labels(base.loop(2)) == orders[0] + orders[1]
    assert labels(base.loop(2).set_epoch(1)) == orders[2] + orders[3]
    assert labels(base.loop().take(4100)) == orders[0] + orders[1] + orders[2][:100]


def test_single_samples_come_from_everywhere(images: Path) -> None:
    """Of 1,999 neighbours, about one keeps its successor; with a window, blocks stay near."""
    order = labels(squirrel.open(images).shuffle_all(seed=5, window=None))
    assert sum(b == a + 1 for a, b in zip(order, order[1:])) < 12
    # Where sample i lands: the mean of |position - i| of a random order of n is n / 3.
    mean = sum(abs(at - label) for at, label in enumerate(order)) / len(order)
    assert 600 < mean < 733


def test_single_samples_need_counts(tmp_path: Path) -> None:
    squirrel.pack([{"label": i} for i in range(50)], tmp_path / "a.jsonl.gz")
    stream = squirrel.open(tmp_path / "a.jsonl.gz")
    assert sorted(labels(stream.shuffle_all(1))) == list(range(50))
    with pytest.raises(squirrel.UnsupportedError, match="window"):
        labels(stream.shuffle_all(1, window=None))
