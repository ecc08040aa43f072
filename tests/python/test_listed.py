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


def test_listings_of_s3_page_by_page(tmp_path):
    """The server of benchmarks as an S3 store: 1,201 files in two pages, and no page for a worker."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from fault_server import FaultServer, compiled

    program = compiled(tmp_path)
    if program is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "root" / "bucket" / "a & b"
    folder.mkdir(parents=True)
    for i in range(1201):
        (folder / f"{i:05d}.jsonl").write_bytes(b'{"a": %d}\n' % i)
    (folder.parent / "a").write_bytes(b"not below it")
    with FaultServer(program, tmp_path / "root") as server:
        server.set(store=1)
        options = {"endpoint": server.url, "access_key_id": "any", "secret_access_key": "any"}
        stream = squirrel.open("s3://bucket/a & b", **options)
        assert [shard["path"].rpartition("/")[2] for shard in stream.shards] == [f"{i:05d}.jsonl" for i in range(1201)]
        pages = [row["path"] for row in server.requests() if "list-type=2" in row["path"]]
        assert sum("continuation-token" in path for path in pages) >= 1
        assert sum(sample["a"] for sample in stream) == 1201 * 1200 // 2
        assert stream.metrics()["requests"] >= 1201 and stream.metrics()["bytes"] > 0
        server.reset()
        server.set(store=1)
        again = pickle.loads(pickle.dumps(stream))
        assert len(again.shards) == 1201
        # Whether it is a directory is asked, by a listing of one key; native data sets are not asked for.
        assert again.metrics()["lists"] <= 1 < stream.metrics()["lists"]
        assert not any("continuation-token" in row["path"] for row in server.requests())
