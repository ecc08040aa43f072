"""The adapter to fsspec, with file systems that fail, lie, are slow, and raise what nobody expects."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squirrel
from squirrel import _remote
from squirrel.serialization import MessagepackSerializer
from squirrel.store import SquirrelStore

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

REAL = MemoryFileSystem.cat_ranges


class Odd(MemoryFileSystem):
    """Memory whose reads and lookups go through functions of the test's."""

    protocol = "odd"
    store: dict = {}
    pseudo_dirs = [""]
    reading: Callable[..., Any] | None = None
    looking: Callable[..., Any] | None = None

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("odd://"))

    def cat_ranges(self, paths, starts, ends, **kwargs):
        reading = type(self).reading
        return REAL(self, paths, starts, ends, **kwargs) if reading is None else reading(self, paths, starts, ends)

    def info(self, path, **kwargs):
        found = super().info(path, **kwargs)
        return found if type(self).looking is None else type(self).looking(found)


fsspec.register_implementation("odd", Odd, clobber=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    Odd.store.clear()
    Odd.pseudo_dirs[:] = [""]
    Odd.reading = Odd.looking = None
    yield
    Odd.reading = Odd.looking = None


@pytest.fixture
def native(images: Path) -> str:
    fs = fsspec.filesystem("odd")
    for path in images.rglob("*"):
        if path.is_file():
            fs.pipe_file(f"/data/{path.relative_to(images)}", path.read_bytes())
    return "odd://data"


def store(shards: int = 4, size: int = 2000) -> str:
    kept = SquirrelStore("odd://store", serializer=MessagepackSerializer())
    for i in range(shards):
        kept.set([{"n": i * size + k} for k in range(size)], key=f"s{i}")
    return "odd://store"


def count(url: str) -> int:
    return sum(1 for _ in squirrel.open(url))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


Nameless = type("", (Exception,), {})


def raiser(error: BaseException) -> Callable[..., Any]:
    def read(*args: Any) -> Any:
        raise error

    return read


@pytest.mark.parametrize("error", [
    Unspeakable(), Nameless("x"), Exception("\udcff lone surrogate"), Exception("nul \0 within"), Exception(b"bytes"),
    Exception(), KeyError("missing"), StopIteration("early"), GeneratorExit("late"), RecursionError("deep"),
    MemoryError("full"), AssertionError("never"), SystemExit(3), KeyboardInterrupt("^C"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), OSError(5, "Input/output error"),
], ids=lambda error: type(error).__name__)
def test_whatever_is_raised_is_one_error(error: BaseException, native: str) -> None:
    Odd.reading = raiser(error)
    with pytest.raises((squirrel.Error, KeyboardInterrupt, MemoryError)):
        count(native)
    Odd.reading = None
    assert count(native) == 2000, "the next one reads again"


@pytest.mark.parametrize("answer", [
    lambda pieces: None, lambda pieces: 7, lambda pieces: [], lambda pieces: pieces[:-1], lambda pieces: [*pieces, b""],
    lambda pieces: [None] * len(pieces), lambda pieces: ["text"] * len(pieces), lambda pieces: [7] * len(pieces),
    lambda pieces: [piece + b"more" for piece in pieces], lambda pieces: [ValueError("in the list")] * len(pieces),
    lambda pieces: [piece[:-1] for piece in pieces], lambda pieces: [b""] * len(pieces),
    lambda pieces: [memoryview(piece)[::2] for piece in pieces],
], ids=["none", "number", "empty", "fewer", "another", "nones", "texts", "numbers", "longer", "exceptions", "shorter",
        "nothing", "strided"])
def test_wrong_answers_are_errors(answer: Callable[..., Any], native: str) -> None:
    Odd.reading = lambda *args: answer(REAL(*args))
    with pytest.raises(squirrel.Error):
        count(native)
    Odd.reading = None
    assert count(native) == 2000


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda piece: np.frombuffer(piece, np.uint8)],
                         ids=["bytearray", "memoryview", "array"])
def test_any_bytes_will_do(kind: Callable[..., Any], native: str) -> None:
    Odd.reading = lambda *args: [kind(piece) for piece in REAL(*args)]
    assert count(native) == 2000


@pytest.mark.parametrize("change", [
    {"size": None}, {"size": "many"}, {"size": -5}, {"size": 1 << 62}, {"size": 10}, {"ETag": "e" * 500},
    {"ETag": 7}, {"mtime": "yesterday"}, {"mtime": float("1e300")}, {"type": None},
], ids=lambda change: f"{next(iter(change))}-{str(next(iter(change.values())))[:8]}")
def test_lookups_that_lie(change: dict[str, Any]) -> None:
    url = store(shards=1)
    Odd.looking = lambda found: {**found, **change} if found["type"] == "file" else found
    try:
        assert count(f"{url}/s0.gz") == 2000
    except (squirrel.Error, ValueError, TypeError, OverflowError) as error:
        assert str(error)
    Odd.looking = None
    assert count(f"{url}/s0.gz") == 2000


def test_one_call_for_many_ranges(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library comes to Python once a read, whatever the number of ranges."""
    calls: list[tuple[int, int]] = []
    real = _remote.File.read

    def read(self: _remote.File, starts: list[int], ends: list[int]) -> list[Any]:
        calls.append((len(starts), sum(ends) - sum(starts)))
        return real(self, starts, ends)

    monkeypatch.setattr(_remote.File, "read", read)
    asked: list[int] = []
    Odd.reading = lambda fs, paths, starts, ends: asked.append(len(paths)) or REAL(fs, paths, starts, ends)
    assert count(native) == 2000
    assert len(asked) <= len(calls), "cat_ranges is called at most once a read"


def test_reading_lets_other_threads_run(native: str) -> None:
    """A slow file system holds neither the GIL nor the library's locks."""
    inside, go = threading.Event(), threading.Event()

    def read(*args: Any) -> Any:
        inside.set()
        assert go.wait(60)
        return REAL(*args)

    stream = squirrel.open(native)
    Odd.reading = read
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(sum(1 for _ in stream)))
    reader.start()
    assert inside.wait(60)
    assert sum(1 for _ in squirrel.open(store_elsewhere())) == 50
    assert squirrel.metrics()["samples"] >= 50
    go.set()
    reader.join(60)
    assert found == [2000]


def store_elsewhere() -> str:
    kept = SquirrelStore("memory://elsewhere", serializer=MessagepackSerializer())
    kept.set([{"n": k} for k in range(50)], key="s")
    return "memory://elsewhere"


def test_closing_while_a_read_is_under_way(native: str) -> None:
    inside, go, ended = threading.Event(), threading.Event(), threading.Event()

    def read(*args: Any) -> Any:
        inside.set()
        assert go.wait(60)
        ended.set()
        return REAL(*args)

    stream = squirrel.open(native)
    Odd.reading = read
    iterator = iter(stream)
    reader = threading.Thread(target=lambda: pytest.raises((squirrel.Error, StopIteration), next, iterator))
    reader.start()
    assert inside.wait(60)
    closer = threading.Thread(target=iterator.close)
    closer.start()
    closer.join(60)
    assert not closer.is_alive() and not ended.is_set(), "closing waits for no request"
    reader.join(60)
    assert not reader.is_alive()
    go.set()
    assert ended.wait(60)
    Odd.reading = None
    assert count(native) == 2000


def test_faults_now_and_then(native: str) -> None:
    """Each request in turn fails: an error or all samples, never a part."""
    for n in range(1, 12):
        seen = [0]

        def read(*args: Any, n: int = n, seen: list[int] = seen) -> Any:
            seen[0] += 1
            if seen[0] == n:
                raise ConnectionResetError("gone")
            return REAL(*args)

        Odd.reading = read
        try:
            assert count(native) == 2000
        except squirrel.Error as error:
            assert "gone" in str(error) and error.retryable


def test_abandoned_slow_reads(native: str) -> None:
    Odd.reading = lambda *args: time.sleep(0.005) or REAL(*args)
    for _ in range(10):
        next(iter(squirrel.open(native)))
    Odd.reading = None
    assert count(native) == 2000


# --- Ctrl-C in calls that don't end ---
@pytest.fixture
def keyed(tmp_path: Path) -> str:
    for first in range(0, 200, 50):
        rows = ({"k": f"key {i}", "v": i} for i in range(first, first + 50))
        squirrel.pack(rows, tmp_path / "k", key="k", append=first > 0, progress=False)
    fs = fsspec.filesystem("odd")
    for path in (tmp_path / "k").rglob("*"):
        if path.is_file():
            fs.pipe_file(f"/keyed/{path.relative_to(tmp_path / 'k')}", path.read_bytes())
    return "odd://keyed"


@pytest.mark.parametrize("call", [lambda s: s[150], lambda s: s[20:190], lambda s: s.get_many([199, 3]),
                                  lambda s: s.find("key 120"), lambda s: s["key 120"]])
def test_ctrl_c_ends_a_call_whose_read_stalls(keyed: str, call: Callable[[Any], Any]) -> None:
    stream = squirrel.open(keyed)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def stall(fs, paths, starts, ends):
        begun.set()
        assert go_on.wait(300)
        return REAL(fs, paths, starts, ends)

    def interrupt() -> None:
        assert begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        ended.wait(60)
        go_on.set()

    Odd.reading = stall
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call(stream)
        assert not go_on.is_set()  # the read had not ended
    finally:
        ended.set()
        thread.join()
    Odd.reading = None
    assert call(stream) == call(squirrel.open(keyed))  # and the stream is as good as before


def test_counting_far_samples_leaves_python_free(tmp_path: Path) -> None:
    """Threads of the library read by Python code, while the caller waits for the count."""
    fs = fsspec.filesystem("odd")
    for i in range(12):
        squirrel.pack(({"v": k} for k in range(10)), tmp_path / f"s{i}", progress=False)
        (shard,) = (tmp_path / f"s{i}").glob("*.sqrl")
        fs.pipe_file(f"/loose/{i:02}.sqrl", shard.read_bytes())
    assert len(squirrel.open("odd://loose")) == 120
