"""forecast() and `squirrel simulate` against what runs really read, by the library's counters."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import squirrel

pytestmark = pytest.mark.once
COMMAND = Path(os.environ.get("SQUIRREL", Path(sys.executable).with_name("squirrel")))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """20 shards of up to 100 samples in small blocks, of which some shrink and some don't."""
    folder = tmp_path_factory.mktemp("simulate") / "data"
    rng = np.random.default_rng(1)
    samples = (
        {"id": i, "x": rng.integers(0, 255, 400, np.uint8) if i % 700 < 350 else np.zeros(400, np.uint8)}
        for i in range(1950)
    )
    squirrel.pack(samples, folder, samples_per_shard=100, block_bytes=4000)
    return folder


def really(stream):
    """Reads, bytes and samples of a run whose indexes are known."""
    before = squirrel.metrics()
    count = sum(1 for _ in stream)
    after = squirrel.metrics()
    return {k: after[k] - before[k] for k in ("reads", "bytes_read", "blocks")}, count


@pytest.mark.parametrize("window", ["plain", "20 KiB", "200 KiB", 0])
@pytest.mark.parametrize("ranks, workers", [(1, 1), (3, 2), (7, 1)])
@pytest.mark.parametrize("epoch", [0, 3])
def test_requests_and_bytes_are_those_of_a_run(data, window, ranks, workers, epoch):
    whole = squirrel.open(data)
    if window != "plain":
        whole = whole.shuffle_all(7, window)
    for rank in range(ranks):
        for worker in range(workers):
            stream = whole.distribute(rank, ranks, worker, workers).set_epoch(epoch)
            told = stream.forecast()
            read, count = really(stream)
            assert told["items"] == count
            assert told["blocks"] == read["blocks"] == read["reads"]
            assert told["block_bytes"] == read["bytes_read"]
            assert 0 < told["first_blocks"] <= told["blocks"]
            assert 0 < told["first_bytes"] <= told["block_bytes"]


def test_a_cold_run_reads_each_index_once(data):
    """In a process of its own, which has no index yet: one request for each shard more."""
    code = (
        "import sys, squirrel\n"
        "stream = squirrel.open(sys.argv[1]).shuffle_all(7, '20 KiB').distribute(1, 3)\n"
        "before = squirrel.metrics()['reads']\n"
        "count = sum(1 for _ in stream)\n"
        "print(squirrel.metrics()['reads'] - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, data], check=True, capture_output=True)
    told = squirrel.open(data).shuffle_all(7, "20 KiB").distribute(1, 3).forecast()
    assert int(done.stdout) == told["blocks"] + told["shards"]


def test_undealt(data):
    for stream in (squirrel.open(data), squirrel.open(data).shuffle_all(1, "50 KiB"),
                   squirrel.open(data).shuffle_all(1, None), squirrel.open(data).filter("id < 30")):
        told = stream.forecast()
        read, _ = really(stream)
        assert (told["blocks"], told["block_bytes"]) == (read["blocks"], read["bytes_read"])
    assert squirrel.open(data).filter("id < 30").forecast()["items"] is None


def test_the_command(data):
    if not COMMAND.exists():
        pytest.skip("the command is not here")
    command = [COMMAND, "simulate", data, "--ranks", "3", "--workers", "2", "--shuffle", "7", "--window", "20KiB",
               "--epoch", "1", "--bandwidth", "1MiB", "--latency", "1000", "--parallel", "4", "--batch", "1", "--json"]
    ranks = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert [r["rank"] for r in ranks] == [0, 1, 2]
    for rank in ranks:
        told = [
            squirrel.open(data).shuffle_all(7, "20 KiB").distribute(rank["rank"], 3, w, 2).set_epoch(1).forecast()
            for w in range(2)
        ]
        for mine, theirs in (("samples", "items"), ("block_requests", "blocks"), ("block_bytes", "block_bytes"),
                             ("first_blocks", "first_blocks"), ("first_bytes", "first_bytes"), ("shards", "shards")):
            assert rank[mine] == sum(t[theirs] for t in told)
        assert rank["window_bytes"] == 2 * 2 * 20480
        rounds = max(-(-rank["first_requests"] // 4), 2)  # an index, then what it tells of
        assert rank["first_seconds"] == pytest.approx(rounds * 0.001 + rank["first_request_bytes"] / (1 << 20))
    text = subprocess.run(command[:-1], check=True, capture_output=True, text=True).stdout
    assert len(text.splitlines()) == 6 and "all ranks read" in text and "shuffle quality" in text
    wrong = subprocess.run([COMMAND, "simulate", data, "--ranks", "0"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--ranks" in wrong.stderr


def _in_turn(orders, size):
    """A batch of each worker in turn, then what makes no whole batch."""
    whole, rest = [], []
    for at in range(0, max(len(positions) for positions, _ in orders), size):
        for order in orders:
            part = [a[at : at + size] for a in order]
            (whole if len(part[0]) == size else rest).append(part)
    return [np.concatenate([part[i] for part in whole + rest]) for i in range(2)]


@pytest.mark.parametrize("window", ["plain", "20 KiB", "200 KiB", "none"])
@pytest.mark.parametrize("ranks, workers", [(1, 1), (3, 2), (7, 1)])
def test_shuffle_quality_is_that_of_what_is_delivered(data, window, ranks, workers):
    """Figures of the order in which real streams give samples, beside those told without data."""
    from squirrel.benchmark.shuffle_quality import measure, stream_order

    shuffle = [] if window == "plain" else ["--shuffle", "7", "--window", window.replace(" ", "")]
    told = json.loads(
        subprocess.run(
            [COMMAND, "simulate", data, "--ranks", str(ranks), "--workers", str(workers), "--epoch", "3",
             "--batch", "32", *shuffle, "--json"], check=True, capture_output=True,
        ).stdout
    )  # fmt: skip
    whole = squirrel.open(data)
    if shuffle:
        whole = whole.shuffle_all(7, None if window == "none" else window)
    for rank in range(ranks):
        orders = [stream_order(whole.distribute(rank, ranks, w, workers).set_epoch(3)) for w in range(workers)]
        positions, shards = _in_turn(orders, 32)
        found = measure(positions, shards, 32)
        assert told[rank]["measured_samples"] == len(positions) == told[rank]["samples"]
        for mine, theirs in (("tau", "tau"), ("mean_displacement", "mean_displacement"),
                             ("max_displacement", "max_displacement"), ("batch_shards", "batch_groups"),
                             ("random_batch_shards", "random_batch_groups"), ("batch_entropy", "batch_entropy"),
                             ("whole_entropy", "whole_entropy")):  # fmt: skip
            assert told[rank][mine] == pytest.approx(getattr(found, theirs), abs=1e-12)


def test_refusals(data, tmp_path):
    with pytest.raises(ValueError, match="take, skip and steps"):
        squirrel.open(data).take(3).forecast()
    with pytest.raises(ValueError, match="take, skip and steps"):
        squirrel.open(data).distribute(0, 2, steps=5).forecast()
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write('{"a": 1}\n')
    with pytest.raises(squirrel.UnsupportedError, match="pack it"):
        squirrel.open(tmp_path / "a.jsonl.gz").forecast()


LATENCY = 0.2


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """12 shards of about 300 KB, which nothing compresses, with a commit."""
    folder = tmp_path_factory.mktemp("far") / "data"
    rng = np.random.default_rng(2)
    samples = ({"id": i, "x": rng.integers(0, 255, 3000, np.uint8)} for i in range(1200))
    squirrel.pack(samples, folder, samples_per_shard=100, block_bytes=50_000, codec="none")
    return folder


@pytest.mark.parametrize("window", ["plain", "64 MiB"])
def test_far_requests_are_those_of_the_played_link(far, window):
    told = [_part(far, window, rank).forecast() for rank in range(3)]
    done = subprocess.run(
        [COMMAND, "simulate", "--json", "--ranks", "3", *(["--shuffle", "7"] if window != "plain" else []), str(far)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ranks = json.loads(done.stdout)
    for rank, row in enumerate(ranks):
        assert row["requests"] == told[rank]["requests"] and row["request_bytes"] == told[rank]["request_bytes"]
        stream = _part(far, window, rank, throttle="latency=1ms")
        assert sum(1 for _ in stream) == told[rank]["items"]
        link = stream.metrics()
        # Opening lists _sqrl and reads one commit.
        assert link["lists"] == 1 and link["requests"] - 1 == row["requests"]
        (commit,) = (far / "_sqrl").glob("*.idx")
        assert link["bytes"] - commit.stat().st_size == row["request_bytes"]


def _part(folder, window, rank, **options):
    stream = squirrel.open(folder, **options)
    if window != "plain":
        stream = stream.shuffle_all(7, window)
    return stream.distribute(rank, 3, 0, 1)


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("window", ["plain", "64 MiB"])
def test_the_first_batch_comes_when_it_was_told(far, window, batch):
    """Latency counts, so that the machine's load does not; it gets several tries all the same."""
    done = subprocess.run(
        [COMMAND, "simulate", "--json", "--latency", str(int(LATENCY * 1e6)), "--ranks", "3", "--batch", str(batch),
         *(["--shuffle", "7"] if window != "plain" else []), str(far)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)[0]["first_seconds"]
    assert told in (LATENCY, 2 * LATENCY)
    found = []
    for _ in range(5):
        stream = _part(far, window, 0, throttle=f"latency={int(LATENCY * 1000)}ms")
        assert stream.driver == "sqrl"  # opened, before the clock starts
        start = time.perf_counter()
        assert next(iter(stream.batch(batch))).rows == batch
        found.append(time.perf_counter() - start)
        if abs(found[-1] - told) <= 0.2 * told:
            return
    if min(found) > told and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip(f"the machine is overloaded: {min(found):.3f} s where {told:.3f} s were told")
    raise AssertionError(f"told {told:.3f} s, found {found}")
