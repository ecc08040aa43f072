"""Signals, forks, threads, imports: how the package behaves in a process."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import squirrel


def test_import_is_light(script) -> None:
    done = script(
        """
        import sys
        import squirrel
        heavy = {"numpy", "torch", "pandas", "pyarrow", "msgpack", "fsspec", "yaml", "multiprocessing",
                 "concurrent.futures", "asyncio", "logging"} & set(sys.modules)
        print(sorted(heavy))
        """
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_numpy_is_imported_only_for_arrays(tmp_path: Path, script) -> None:
    done = script(
        """
        import sys, squirrel
        squirrel.pack([{"text": "a", "n": 1}], sys.argv[1])
        assert list(squirrel.open(sys.argv[1])) == [{"text": "a", "n": 1}]
        print("numpy" in sys.modules)
        next(iter(squirrel.open(sys.argv[1]).batch(1)))
        print("numpy" in sys.modules)
        """,
        str(tmp_path / "d"),
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_every_callable_tells_its_signature() -> None:
    import inspect

    from squirrel import _native

    missing = []
    for name, value in vars(_native).items():
        if isinstance(value, type) and value.__module__.startswith("squirrel"):
            for method, function in vars(value).items():
                if callable(function) and not method.startswith("__"):
                    if getattr(function, "__text_signature__", None) is None:
                        missing.append(f"{name}.{method}")
        elif callable(value):
            inspect.signature(value)
    assert missing == []


INTERRUPTED = """
    import os, signal, sys, threading, time, squirrel
    stream = {stream}
    def interrupt():
        time.sleep(0.5)
        interrupt.at = time.process_time()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        while True:
            for _ in stream:
                pass
    except KeyboardInterrupt:
        print(time.process_time() - interrupt.at)
"""


@pytest.mark.parametrize(
    "stream",
    [
        "squirrel.open(sys.argv[1])",
        "squirrel.open(sys.argv[1]).batch(7)",
        "squirrel.open(sys.argv[1]).map(dict)",
        "squirrel.open(sys.argv[1]).parallel_map(dict, workers=2)",
    ],
)
def test_ctrl_c_ends_soon(images: Path, script, stream: str) -> None:
    """The stream has no end. Counted is the work done meanwhile, on all threads: 200 ms of two cores."""
    done = script(INTERRUPTED.format(stream=stream), str(images))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.4


def test_ctrl_c_while_waiting_for_data(tmp_path: Path, script) -> None:
    """A named pipe that nobody writes to: the reader waits for ever."""
    done = script(
        """
        import os, signal, sys, threading, time, squirrel
        os.mkfifo(sys.argv[1])
        keep = os.open(sys.argv[1], os.O_RDWR)
        def feed():
            os.write(keep, b'{"a": 1}\\n')
        signal.signal(signal.SIGALRM, lambda *a: os._exit(3))
        signal.alarm(200)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for sample in squirrel.open(sys.argv[1]):
                pass
        except KeyboardInterrupt:
            print("interrupted")
        except squirrel.Error as error:
            print("refused", error)
        os._exit(0)
        """,
        str(tmp_path / "pipe.jsonl"),
    )
    assert done.returncode == 0 and done.stdout.split()[0] in ("interrupted", "refused"), done


def test_fork(images: Path) -> None:
    stream = squirrel.open(images)
    iterator = iter(stream)
    next(iterator)
    batches = iter(stream.batch(10))
    next(batches)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        report = []
        try:
            for running in (iterator, batches):
                try:
                    next(running)
                    report.append("no error")
                except squirrel.StateError as error:
                    report.append("fork" if "fork" in str(error) else str(error))
            report.append(str(sum(1 for _ in stream)))
            report.append(str(sum(len(b["label"]) for b in stream.batch(64))))
        except BaseException as error:
            report.append(repr(error))
        os.write(write, ",".join(report).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "fork,fork,2000,2000"
    os.waitpid(child, 0)
    assert sum(1 for _ in iterator) == 1999
    assert sum(len(b["label"]) for b in batches) == 1990


def test_threads_share_an_iterator(images: Path) -> None:
    iterator = iter(squirrel.open(images))
    seen: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        mine.extend(sample["label"] for sample in iterator)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(label for mine in seen for label in mine) == list(range(2000))


def test_threads_share_a_shuffled_iterator(images: Path) -> None:
    iterator = iter(squirrel.open(images).map(lambda s: s["label"]).shuffle(300, seed=1))
    seen: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for label in iterator:
                seen.append(label)
                time.sleep(0)  # another thread's turn
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == [] and sorted(seen) == list(range(2000)) != seen


def test_closing_from_another_thread_wakes_the_reader(images: Path) -> None:
    for batched in (False, True):
        stream = squirrel.open(images)
        iterator = (stream.batch(8) if batched else stream).iterator()
        ended = threading.Event()

        def work() -> None:
            for _ in iterator:
                time.sleep(0.001)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.05)
        iterator.close()
        assert ended.wait(60)
        thread.join()


def test_many_iterators_at_once(images: Path) -> None:
    iterators = [iter(squirrel.open(images).shuffle_all(i)) for i in range(8)]
    for iterator in iterators:
        next(iterator)
    assert all(sum(1 for _ in it) == 1999 for it in iterators)


def test_exit_with_a_running_iterator(images: Path, script) -> None:
    done = script(
        """
        import sys, squirrel
        it = iter(squirrel.open(sys.argv[1]).batch(3))
        next(it)
        kept = iter(squirrel.open(sys.argv[1]))
        sample = next(kept)
        print("end")
        """,
        str(images),
    )
    assert done.returncode == 0 and done.stdout == "end\n" and done.stderr == ""


def test_exit_with_a_running_async_map(script) -> None:
    done = script(
        """
        from squirrel.iterstream import IterableSource
        kept = iter(IterableSource(iter(int, 1)).async_map(str, buffer=20, max_workers=4))
        next(kept)
        print("end")
        """
    )
    assert done.returncode == 0 and done.stdout == "end\n" and done.stderr == ""


def test_data_loader_workers(images: Path) -> None:
    torch = pytest.importorskip("torch")

    class Data(torch.utils.data.IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            return iter(squirrel.open(images).filter(f"label >= {info.id * 1000}").take(3))

    loader = torch.utils.data.DataLoader(Data(), num_workers=2, batch_size=None)
    assert sorted(s["label"] for s in loader) == [0, 1, 2, 1000, 1001, 1002]


def test_data_loader_with_batches(images: Path) -> None:
    torch = pytest.importorskip("torch")

    class Data(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(squirrel.open(images).select("label", "text").batch(500))

    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(Data(), num_workers=workers, batch_size=None)
        batches = list(loader)
        assert torch.cat([torch.as_tensor(b["label"]) for b in batches]).tolist() == list(range(2000))
        assert batches[0]["text"].tolist()[7] == "sample 7"


def test_info_and_tables() -> None:
    info = squirrel.info()
    assert info["version"] == squirrel.__version__ and info["threads"] >= 1
    formats = {f["name"]: f for f in squirrel.formats()}
    assert {"sqrl", "messagepack", "jsonl", "idx"} <= set(formats)
    assert "codec" in {o["name"] for o in formats["sqrl"]["write_options"]}
    assert {"sqrl", "idx"} <= {d["name"] for d in squirrel.drivers()}
    assert all(isinstance(v, int) for v in squirrel.metrics().values())
    systems = {s["name"]: s for s in squirrel.file_systems()}
    assert set(systems["local"]["schemes"].split("|")) >= {"file", ""} and systems["local"]["options"] == []


@pytest.mark.parametrize("kind", ["sqrl", "messagepack", "jsonl", "jsonl.gz"])
@pytest.mark.parametrize("act", ["cut", "emptied", "another", "removed"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, kind: str, act: str) -> None:
    """One error names it; what came before is right; nothing ends early in silence."""
    rows = [{"i": i, "pad": os.urandom(400).hex()} for i in range(40_000)]
    single = kind.startswith("jsonl")
    path = tmp_path / (f"a.{kind}" if single else "d")
    squirrel.pack(rows, path, format=None if single else kind, samples_per_shard=None if single else 2000)
    stream = squirrel.open(path)
    victim = Path(stream.shards[-2 if not single else 0]["path"])
    seen = []
    with pytest.raises(squirrel.Error) as caught:
        for sample in stream:
            seen.append(sample["i"])
            if len(seen) == 10 and act == "removed":
                victim.unlink()
            elif len(seen) == 10 and act == "another":
                victim.unlink()
                victim.write_bytes(bytes(50))
            elif len(seen) == 10:
                os.truncate(victim, victim.stat().st_size // 2 if act == "cut" else 0)
        if single and act in ("removed", "another"):  # what is open stays
            assert len(seen) == 40_000
            raise squirrel.Error(victim.name)
    text = str(caught.value)
    assert seen == list(range(len(seen))) and (single or len(seen) == 36_000)
    assert text.count(victim.name) == 1 and text.count("block ") <= 1
    if act in ("cut", "emptied"):
        assert "meanwhile" in text


def test_metrics_count_what_was_done(tmp_path: Path) -> None:
    rows = [{"i": i, "text": f"number {i}"} for i in range(20_000)]
    payload = squirrel.pack(rows, tmp_path / "d", block_bytes=30_000).raw_bytes
    blocks = -(-payload // 30_000)
    squirrel.pack(rows, tmp_path / "a.jsonl.gz")
    text = len(gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()))

    def counted(work: Callable[[], object]) -> dict[str, int]:
        before = squirrel.metrics()
        work()
        return {name: value - before[name] for name, value in squirrel.metrics().items()}

    for batched in (False, True):
        stream = squirrel.open(tmp_path / "d")
        got = counted(lambda: list(stream.batch(1000) if batched else stream))
        assert blocks <= got["blocks"] <= blocks + 2 and got["samples"] == 20_000
        assert got["batches"] == 20 * batched
        assert got["bytes_decoded"] == payload
        assert 0 < got["bytes_read"] < payload and got["reads"] > 0
        assert got["load_ns"] > 0 and (got["fill_ns"] > 0) == batched
        got = counted(lambda: list(squirrel.open(tmp_path / "a.jsonl.gz")))
        assert got["blocks"] in (text >> 20, (text >> 20) + 1)
        assert got["samples"] == 20_000 and got["bytes_decoded"] >= text


def test_threads_share_an_iterator_of_large_nested_samples(tmp_path: Path) -> None:
    """Large arrays are copied without the GIL: another thread builds its sample meanwhile."""
    import numpy as np

    rows = [{"n": i, "a": {"b": [np.full(400_000, i, np.int32), {"c": i}]}} for i in range(40)]
    squirrel.pack(rows, tmp_path / "d")
    for copy in (True, False):
        iterator = squirrel.open(tmp_path / "d").iterator(copy=copy)
        seen: list[int] = []

        def work(iterator=iterator, seen=seen) -> None:
            for sample in iterator:
                array, last = sample["a"]["b"]
                assert array[0] == array[-1] == last["c"] == sample["n"]
                seen.append(sample["n"])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(seen) == list(range(40))
