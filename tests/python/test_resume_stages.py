"""Going on behind Python stages, under PyTorch's loader, and after a kill with other ranks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream import Composable, IterableSource


def label(sample: dict) -> int:
    return sample["label"]


def copies(n: int) -> list[int]:
    return [n] * (n % 4)


def odd(n: int) -> bool:
    return n % 2 == 1


def few(n: int) -> bool:
    return n % 7 > 2


def negative(n: int) -> int:
    return -n


def chains(base: squirrel.Stream) -> dict[str, Composable]:
    return {
        "map": base.map(label),
        "filter": base.map(label).filter(odd).map(negative),
        "flat_map": base.map(label).flat_map(copies),
        "flat_map twice": base.map(label).flat_map(copies).filter(odd).flat_map(copies).map(negative),
        "batched": base.map(label).filter(odd).batched(7, drop_last_if_not_full=False),
        "batches": base.batch(9).map(lambda batch: batch["label"].tolist()),
        "shuffle": base.map(label).shuffle(50, initial=20, seed=3).map(negative),
        "shuffle, filter": base.map(label).filter(odd).shuffle(9, initial=1, seed="a").filter(few).batched(3),
        "batches, flat": base.batch(9).flat_map(lambda batch: batch["label"].tolist()),
    }


NAMES = ["map", "filter", "flat_map", "flat_map twice", "batched", "batches", "batches, flat"]
NAMES += ["shuffle", "shuffle, filter"]


@pytest.mark.parametrize("name", NAMES)
def test_machine(images: Path, name: str) -> None:
    draw = random.Random(name)
    for _ in range(12):
        base = squirrel.open(images).shuffle_all(draw.randrange(9), "60 KiB").distribute(1, 2)
        whole = list(chains(base)[name])
        got, state = [], None
        for stop in range(5):
            stream = chains(base)[name]
            if state is not None and draw.random() < 0.5:
                iterator = stream.iterator()
                next(iterator)
                iterator.load_state_dict(state)
            else:
                iterator = stream.iterator(state=state)
            for item in iterator:
                got.append(item)
                if stop < 4 and draw.random() < 0.005:
                    break
            state = json.loads(json.dumps(iterator.state_dict()))
            assert len(json.dumps(state)) < 1500
            iterator.close()
            assert got == whole[: len(got)]
        assert got == whole


def test_streams_without_a_state_say_why(images: Path) -> None:
    base = squirrel.open(images)
    for stream, why in [
        (base.map(label).shuffle(10, rng=random.Random(1)), r"shuffle\(10\) has no state.*without an rng"),
        (base.map(label).shuffle(10).flat_map(copies), "shuffle with flat_map"),
        (base.map(label).take(10), r"take\(10\).*in front of the first callable"),
        (base.flat_map(list).batched(3), "batches behind flat_map"),
        (IterableSource([1, 2]).map(negative), "has no state"),
    ]:
        iterator = stream.iterator()
        next(iterator)
        with pytest.raises(squirrel.StateError, match=why):
            iterator.state_dict()
        assert not hasattr(iterator, "load_state_dict")  # torchdata's protocol wants both
    iterator = base.map(label).iterator()
    next(iterator)
    state = iterator.state_dict()
    with pytest.raises(squirrel.StateError, match=r"Python stage 1 was map\(label\), now it is filter"):
        base.filter(lambda sample: True).iterator(state=state)
    with pytest.raises(squirrel.StateError, match="Python stage 2 was none, now it is map"):
        base.map(label).map(negative).iterator(state=state)
    with pytest.raises(squirrel.StateError, match="stage 1 was none, now it is take"):
        base.take(3).map(label).iterator(state=state)


def test_a_shuffle_without_a_seed_goes_on_too(images: Path) -> None:
    """And over many times its buffer: no item is lost or repeated, and the epoch counts."""
    stream = squirrel.open(images).map(label).shuffle(5)
    iterator = stream.set_epoch(1).iterator()
    got = [next(iterator) for _ in range(1234)]
    state = json.loads(json.dumps(iterator.state_dict()))
    rest = list(iterator)
    assert sorted(got + rest) == list(range(2000))
    assert list(stream.set_epoch(0).iterator(state=state)) == rest
    fresh = stream.iterator()
    before = fresh.state_dict()
    assert list(fresh) == list(stream.iterator(state=before))
    state["shuffle"]["given"] = 10**6
    with pytest.raises(squirrel.StateError, match="damaged"):
        stream.iterator(state=state)


def fails_at_30(n: int) -> int:
    if n == 30:
        raise KeyError(n)
    return n


def test_a_failing_item_is_not_lost(images: Path) -> None:
    stream = squirrel.open(images).map(label).map(fails_at_30)
    iterator = stream.iterator()
    with pytest.raises(KeyError):
        for _ in iterator:
            pass
    state = iterator.state_dict()
    with pytest.raises(KeyError):
        next(stream.iterator(state=state))


def test_load_state_dict_of_a_stream_ends_with_the_epoch(images: Path) -> None:
    for stream in (squirrel.open(images).shuffle_all(1), squirrel.open(images).shuffle_all(1).map(dict)):
        whole = [s["label"] for s in stream.set_epoch(2)]
        iterator = stream.set_epoch(2).iterator()
        for _ in range(55):
            next(iterator)
        stream.load_state_dict({"loader": [iterator.state_dict()]})
        assert [s["label"] for s in stream] == whole[55:]
        assert [s["label"] for s in stream] == whole[55:]  # until another epoch is set
        assert len(list(stream.set_epoch(3))) == 2000
        assert len(list(stream.set_epoch(2))) == 2000


# --- PyTorch ---


def plain(batch: object) -> list[int]:
    """A list of numbers, or the labels of a native batch."""
    return batch["label"].tolist() if isinstance(batch, squirrel.Batch) else list(batch)  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore")
def test_stateful_data_loader(images: Path) -> None:
    """torchdata's loader: the state after k batches gives the others, with 0 and 2 workers."""
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    for workers in (0, 2):
        for python in (False, True):

            def loader() -> object:
                base = squirrel.open(images).select("label").shuffle_all(3).distribute(0, 1)
                stream = base.map(label) if python else base.batch(10)
                dataset = stream.to_torch_iterable()
                size = 10 if python else None
                return loaders.StatefulDataLoader(
                    dataset, batch_size=size, num_workers=workers, collate_fn=plain
                )

            whole = list(loader())  # type: ignore[call-overload]
            first = loader()
            got = []
            for batch in first:  # type: ignore[attr-defined]
                got.append(batch)
                if len(got) == 37:
                    break
            state = first.state_dict()  # type: ignore[attr-defined]
            second = loader()
            second.load_state_dict(state)  # type: ignore[attr-defined]
            got += list(second)  # type: ignore[call-overload]
            assert got == whole


@pytest.mark.filterwarnings("ignore")
def test_another_number_of_workers(images: Path) -> None:
    """2 workers' states, as a loader's checkpoint holds them, go on in 1 and in 3."""
    data = pytest.importorskip("torch.utils.data")
    base = squirrel.open(images).select("label").shuffle_all(3)
    states, before = [], []
    for worker in range(2):
        iterator = base.distribute(0, 1, worker, 2, tail="uneven").map(label).iterator()
        before += [next(iterator) for _ in range(100 + 30 * worker)]
        states.append({"worker": worker, "dataset": {"iter": iterator.state_dict()}})
    for workers in (1, 3):
        dataset = base.distribute(tail="uneven").map(label).to_torch_iterable()
        dataset.load_state_dict({"snapshot": {"workers": states}})
        loader = data.DataLoader(dataset, batch_size=None, num_workers=workers)
        assert sorted([*before, *loader]) == list(range(2000))


JOB = """
import json, os, sys, time
import torch, torch.distributed as dist
import squirrel

folder, out, resume, slow = sys.argv[1:5]
dist.init_process_group("gloo", init_method="file://" + out + "/store", rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))
rank, ranks = dist.get_rank(), dist.get_world_size()
stream = squirrel.open(folder).select("label").shuffle_all(5, "60 KiB").distribute(tail="uneven")
saved = json.load(open(resume)) if resume else None
iterator = stream.batch(16).iterator(state=saved)
log = open(f"{out}/log-{rank}", "w")
step = 0
steps = torch.tensor([0])
while True:
    batch = next(iterator, None)
    labels = [] if batch is None else batch["label"].tolist()
    log.write(json.dumps(labels) + "\\n")
    log.flush()
    states = [None] * ranks
    dist.all_gather_object(states, (iterator.state_dict(), step, batch is None))
    if rank == 0:  # all ranks' states of one step, and how many steps they cover
        with open(f"{out}/new", "w") as f:
            json.dump({"steps": step + 1, "states": [s for s, _, _ in states]}, f)
        os.replace(f"{out}/new", f"{out}/checkpoint")
    step += 1
    if all(end for _, _, end in states):
        break
    time.sleep(float(slow))
dist.barrier()
dist.destroy_process_group()
"""


Started = Callable[..., "subprocess.Popen[bytes]"]  # the fixture `started`


def start(
    started: Started, tmp_path: Path, name: str, ranks: int, folder: Path, resume: str, slow: float
) -> list[subprocess.Popen[bytes]]:
    out = tmp_path / name
    out.mkdir()
    (tmp_path / "job.py").write_text(JOB)
    return [
        started(
            [sys.executable, str(tmp_path / "job.py"), str(folder), str(out), resume, str(slow)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(ranks)
    ]


def test_killed_on_two_ranks_goes_on_with_three(images: Path, tmp_path: Path, started: Started) -> None:
    """kill -9 in the middle of an epoch: what was given up to the checkpoint, and what three ranks
    give from it, are disjoint and together the epoch."""
    pytest.importorskip("torch")
    jobs = start(started, tmp_path, "two", 2, images, "", 0.02)
    checkpoint = tmp_path / "two" / "checkpoint"
    deadline = time.monotonic() + 300
    while not (checkpoint.exists() and json.loads(checkpoint.read_text())["steps"] >= 12):
        assert time.monotonic() < deadline and all(job.poll() is None for job in jobs)
        time.sleep(0.01)
    for job in jobs:
        job.send_signal(signal.SIGKILL)
    assert [job.wait() for job in jobs] == [-signal.SIGKILL] * 2
    saved = json.loads(checkpoint.read_text())
    before: list[int] = []
    for rank in range(2):
        lines = (tmp_path / "two" / f"log-{rank}").read_text().splitlines()
        before += [n for line in lines[: saved["steps"]] for n in json.loads(line)]
    jobs = start(started, tmp_path, "three", 3, images, str(checkpoint), 0)
    assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    after: list[int] = []
    counts = []
    for rank in range(3):
        lines = (tmp_path / "three" / f"log-{rank}").read_text().splitlines()
        labels = [n for line in lines for n in json.loads(line)]
        counts.append(len(labels))
        after += labels
    assert len(before) == saved["steps"] * 32 and not set(before) & set(after)
    assert sorted(before + after) == list(range(2000))
    assert max(counts) - min(counts) <= 1
