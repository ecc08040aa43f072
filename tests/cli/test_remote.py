"""`squirrel` on a web server that is slow, silent, or gone, and with a cache whose disk is full."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from command import ROOT, Process, samples, write_lines

sys.path.insert(0, str(ROOT / "tests" / "support"))
from fault_server import FaultServer, compiled  # noqa: E402

DEADLINE = 60  # of a busy machine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    found = compiled(tmp_path_factory.mktemp("bin"))
    if found is None:
        pytest.skip("no C compiler for tests/support/fault_server.c")
    return found


@pytest.fixture
def served(squirrel, tmp_path, program):
    """A server, and a data set of 20 shards on it: (server, url)."""
    write_lines(tmp_path / "rows.jsonl", samples(20000))
    squirrel("pack", "rows.jsonl", "root/set", "--samples-per-shard", 1000, "--codec", "none")
    with FaultServer(program, tmp_path / "root") as server:
        yield server, f"{server.url}/set"


def shard_bytes(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in (folder / "root/set").glob("*.sqrl"))


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


# --- bench ---


def test_bench_counts_what_the_server_counts(squirrel, served) -> None:
    server, url = served
    squirrel("info", url)
    server.reset()
    squirrel("info", url)
    opening = server.counters()
    server.reset()
    words = ("bench", url, "-r", 1, "--price", "0.4", "--link", "100MB", "--json")
    report = squirrel.rows(*words)[0]
    counted, link = server.counters(), report["link"]
    assert report["samples"] == 20000
    asked = link["requests"] + link["lists"]
    assert asked <= counted["requests"] <= asked + opening["requests"]
    assert shard_bytes(squirrel.folder) <= link["bytes"] <= counted["bytes"]
    assert link["cost"] == pytest.approx(0.4 * asked / 1000)
    assert link["share"] == pytest.approx(link["bytes"] / report["seconds"] / 100e6)
    assert link["retries"] == 0 and link["cache_hits"] == 0 and link["first_byte_ms"] > 0
    server.set(faults="503=0.3", match=".sqrl")
    assert squirrel.rows(*words)[0]["link"]["retries"] > 0
    text = squirrel("bench", url, "-r", 1, "--price", "0.4", "--link", "100MB").stdout
    assert re.search(r"requests, \d+ listings: .* % of the link; first byte after", text)
    assert re.search(r" retries, \d+ hedges, 0 cache hits", text)
    cached = squirrel.rows("bench", url, "-r", 2, "--cache", "kept?limit=64MiB", "--json")
    assert cached[1]["link"]["requests"] == 0 and cached[1]["link"]["cache_hits"] > 0


# --- servers that say nothing, or go ---


@pytest.mark.parametrize("words", [["cat", "URL"], ["bench", "URL"], ["bench", "URL", "-b", "10", "--select", "id"],
                                   ["cache", "warm", "URL", "--cache", "kept?limit=64MiB"]])
def test_a_silent_server_is_left_at_once(squirrel, served, words: list[str]) -> None:
    server, url = served
    server.reset()
    server.set(faults="stall=1", match=".sqrl")
    words = [url if word == "URL" else word for word in words]
    with squirrel.start(*words, "--timeout", 3600, "--stall-timeout", 3600) as process:
        wait_until(lambda: server.counters()["requests"] >= 3 or process.poll() is not None)  # list, commit, shard
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 130


def test_a_server_that_dies(squirrel, served, program) -> None:
    """One error; and with a cache all is there when the server is, and then without it."""
    server, url = served
    port = url.split(":")[2].split("/")[0]
    server.set(per_connection=400_000)
    words = ("cat", url, "--cache", "kept?limit=64MiB", "--timeout", 2, "--attempts", 2)
    with squirrel.start(*words) as process:
        process.stdout.read(1)
        server._process.kill()
        message = process.communicate(timeout=DEADLINE)[1].decode()
    assert process.returncode == 1 and url.split("/set")[0] in message
    with FaultServer(program, squirrel.folder / "root", port=port):
        assert squirrel.rows("cat", url, "--cache", "kept?limit=64MiB") == samples(20000)
    assert squirrel.rows("cat", url, "--cache", "kept?limit=64MiB") == samples(20000), "and with no server at all"


# --- warming ---


def test_warming_fetches_several_shards_at_a_time(squirrel, served) -> None:
    server, url = served
    server.reset()
    server.set(latency_ms=100)
    report = squirrel.rows("cache", "warm", url, "--cache", "kept?limit=64MiB", "--json")[0]
    assert report["shards"] == 20 and report["bytes"] == shard_bytes(squirrel.folder)
    assert server.counters()["open_most"] >= 4
    server.set(faults="500=1", match=".sqrl", latency_ms=0)
    assert squirrel.rows("cat", url, "--cache", "kept?limit=64MiB") == samples(20000)
    message = squirrel.error("cache", "warm", url, "--cache", "other?limit=64MiB", "--attempts", 2)
    assert "answered 500" in message and ".sqrl" in message


# --- the cache's disk ---


def test_a_cache_on_a_full_disk(squirrel, served, small_disk) -> None:
    """Reading goes on with one warning, and what could be kept is whole."""
    server, url = served
    done = squirrel("cat", url, "--cache", "disk/kept?limit=1GiB")
    assert [json.loads(line) for line in done.stdout.splitlines()] == samples(20000)
    assert done.stderr.count("warning") <= 1 and shard_bytes(squirrel.folder) > 1 << 20
    assert squirrel.rows("cat", url, "--cache", "disk/kept?limit=1GiB") == samples(20000)
    squirrel("cache", "verify", "disk/kept")


def test_a_cache_that_vanishes_and_comes_again(squirrel, served) -> None:
    """Somebody deletes the whole directory, again and again, while processes read through it."""
    server, url = served
    server.set(latency_ms=5)
    words = ("cat", url, "--cache", "kept?limit=64MiB")
    processes: list[Process] = []
    for number in range(6):
        with (squirrel.folder / f"out{number}").open("wb") as out:
            processes.append(squirrel.start(*words, stdout=out, stderr=subprocess.DEVNULL))
    while any(process.poll() is None for process in processes):
        shutil.rmtree(squirrel.folder / "kept", ignore_errors=True)
        time.sleep(0.02)
    assert [process.returncode for process in processes] == [0] * 6
    outputs = {(squirrel.folder / f"out{number}").read_bytes() for number in range(6)}
    assert len(outputs) == 1
    assert [json.loads(line) for line in outputs.pop().splitlines()] == samples(20000)


def test_an_unwritable_cache_is_an_error_when_it_is_opened(squirrel, served) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (squirrel.folder / "closed").mkdir(mode=0o500)
    assert "can't be written" in squirrel.error("head", served[1], "--cache", "closed/kept")
