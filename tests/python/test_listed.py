"""Workers that are started anew go on from what their parent listed: list calls, counted by the file system."""

from __future__ import annotations

import gzip
import multiprocessing
import pickle

import pytest

import squirrel
from squirrel import _native

FAR = "latency=1us"


def _look(stream):
    return stream.metrics()["lists"], sum(sample["a"] for sample in stream)


def _spawn(stream, workers):
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        return pool.map(_look, [stream] * (2 * workers), chunksize=1)


@pytest.fixture
def native(tmp_path):
    squirrel.pack(({"a": i} for i in range(1000)), tmp_path / "data", samples_per_shard=100)
    return tmp_path / "data"


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "lines").mkdir()
    for i in range(3):
        with gzip.open(tmp_path / "lines" / f"part %{i} ä.jsonl.gz", "wt") as file:
            file.write('{"a": 5}\n' * (i + 1))
    return tmp_path / "lines"


def test_spawned_workers_list_nothing(native, lines):
    for folder, total in ((native, 499500), (lines, 30)):
        stream = squirrel.open(folder, throttle=FAR)
        assert stream.metrics()["lists"] >= 1
        assert _spawn(stream.shuffle_all(1) if folder == native else stream, 2) == [(0, total)] * 4


def test_a_worker_of_a_worker_lists_nothing(native):
    stream = squirrel.open(native, throttle=FAR)
    for _ in range(3):
        stream = pickle.loads(pickle.dumps(stream))
        assert _look(stream) == (0, 499500)


def test_a_dataloader_lists_once(native):
    torch = pytest.importorskip("torch")
    stream = squirrel.open(native, throttle=FAR).distribute(tail="uneven")
    loader = torch.utils.data.DataLoader(
        stream.to_torch_iterable(), batch_size=None, num_workers=2, multiprocessing_context="spawn"
    )
    assert sum(int(sample["a"]) for sample in loader) == 499500
    assert stream.metrics()["lists"] == 1


def test_what_was_appended_since_is_not_in_it_and_what_was_replaced_is_found(native):
    packed = pickle.dumps(squirrel.open(native, throttle=FAR))
    squirrel.pack(({"a": i} for i in range(7)), native, append=True)
    assert len(pickle.loads(packed)) == 1000  # as many as the parent counts
    assert len(squirrel.open(native, throttle=FAR)) == 1007
    squirrel.pack(({"a": i} for i in range(7)), native, overwrite=True)
    again = pickle.loads(packed)
    assert (again.metrics()["lists"], len(again)) == (1, 7)


def test_local_streams_carry_nothing(native):
    stream = squirrel.open(native)
    assert stream._opened.listed is None
    assert len(pickle.dumps(stream)) < 400


def test_long_listings_are_not_carried(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(7000):  # of 200 bytes each, beyond 1 MiB
        (folder / f"{i:0200d}.jsonl").write_bytes(b'{"a": 1}\n' if i == 0 else b"")
    stream = squirrel.open(folder, throttle=FAR)
    assert stream._opened.listed is None
    assert len(pickle.dumps(stream)) < 400


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-2],
        lambda text: text.replace("sqrl-listed 1", "sqrl-listed 2"),
        lambda text: text.replace(".idx", ".idy"),
        lambda text: text + "x\n",
        lambda text: "nonsense",
    ],
)
def test_damaged_lists_are_refused(native, damage):
    text = squirrel.open(native, throttle=FAR)._opened.listed
    with pytest.raises(squirrel.CorruptError, match="open it anew"):
        _native.open(str(native), {"throttle": FAR, "listed": damage(text)})
    packed = squirrel.open(native, throttle=FAR).__reduce__()
    for bad in (b"nonsense", packed[1][-1][:-3]):
        with pytest.raises(squirrel.CorruptError, match="anew"):
            packed[0](*packed[1][:-1], bad)
