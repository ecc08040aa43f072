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


def test_split_is_disjoint_stable_and_keeps_groups_together(tmp_path: Path) -> None:
    """600 patients with 5 samples each, some appended later: 4 sigma of a binomial around each size."""
    rows = [
        {"label": i, "patient": f"p{i % 600}", "number": i % 600, "meta": {"site": i % 7}}
        for i in range(3000)
    ]
    squirrel.pack(rows, tmp_path / "d")
    stream = squirrel.open(tmp_path / "d")
    for by in ("patient", "number"):
        parts = [list(part) for part in stream.split([0.6, 0.3, 0.1], seed=4, by=by)]
        assert sorted(s["label"] for part in parts for s in part) == list(range(3000))
        patients = [{s["patient"] for s in part} for part in parts]
        assert sum(map(len, patients)) == 600  # none is in two parts
        for found, share in zip(patients, (0.6, 0.3, 0.1)):
            assert abs(len(found) - 600 * share) < 4 * (600 * share * (1 - share)) ** 0.5
    before = [labels(part) for part in stream.split(5, seed=1, by="patient")]
    assert before != [labels(part) for part in stream.split(5, seed=2, by="patient")]
    more = [{**row, "label": row["label"] + 10_000} for row in rows[:700]]
    squirrel.pack(more, tmp_path / "d", append=True)
    for part, old in zip(squirrel.open(tmp_path / "d").split(5, seed=1, by="patient"), before):
        now = labels(part)
        assert now[: len(old)] == old and {n - 10_000 for n in now[len(old) :]} <= set(old)
    for training, validation in stream.k_fold(3, by="meta.site"):
        sites = [{s["meta"]["site"] for s in part} for part in (training, validation)]
        assert not sites[0] & sites[1] and sites[0] | sites[1] == set(range(7))
    assert len(labels(stream.split(1, by="patient")[0])) == 3000
    for wrong in ([0.5, 0.6], [], [-1, 2], 0):
        with pytest.raises(ValueError):
            stream.split(wrong, by="patient")
    with pytest.raises(squirrel.SampleTypeError, match="hashed"):
        labels(stream.split(2, by="meta")[0])
    for text in ("fold", "fold 3", "fold [1, 0]", "fold ['a', 0, 1]", "fold [1, 0, 2]"):
        with pytest.raises(ValueError, match="fold"):
            stream.filter("label " + text)


def test_split_by_a_number_or_a_field_that_is_missing(tmp_path: Path) -> None:
    """1 and 1.0 are one value; samples without the field are in one part."""
    rows: list[dict[str, float]] = [{"label": i} for i in range(440)]
    for i in range(400):
        rows[i]["key"] = i // 2 if i % 2 else float(i // 2)
    squirrel.pack(rows, tmp_path / "d.jsonl")
    parts = [labels(part) for part in squirrel.open(tmp_path / "d.jsonl").split(4, by="key")]
    assert sorted(sum(parts, [])) == list(range(440))
    of = {n: p for p, part in enumerate(parts) for n in part}
    assert all(of[2 * k] == of[2 * k + 1] for k in range(200))
    assert len({of[n] for n in range(400, 440)}) == 1
