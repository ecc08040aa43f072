"""Signals, full disks, killed writers, many writers, terminals."""
from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from command import SQUIRREL, Process, samples, write_lines

DEADLINE = 120  # of a machine that is busy; what is interrupted here would take longer, or for ever


@pytest.fixture
def many(squirrel, tmp_path) -> pathlib.Path:
    """About 100 MB of samples: what takes a while to read."""
    row = json.dumps({"text": "0123456789 " * 100, "values": list(range(100))})
    (tmp_path / "one.jsonl").write_text((row + "\n") * 4000)
    (tmp_path / "many.jsonl").write_bytes((tmp_path / "one.jsonl").read_bytes() * 15)
    return tmp_path / "many.jsonl"


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def catches_signals(process: subprocess.Popen) -> bool:
    """Whether it has come to where it handles Ctrl-C, or has ended."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        if caught := re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.M):
            return bool(int(caught[1], 16) >> (signal.SIGINT - 1) & 1) or process.poll() is not None
    return process.poll() is not None


def end(process: subprocess.Popen, signal_number: int = signal.SIGINT) -> None:
    """Sends the signal and waits for the end."""
    process.send_signal(signal_number)
    process.wait(timeout=DEADLINE)


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# --- pipes that close ---
@pytest.mark.parametrize("words", [["cat", "many.jsonl"], ["cat", "many.jsonl", "many.jsonl"]])
def test_a_reader_that_goes_away(squirrel, many, words):
    shell = '"$@" | head -n 1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", shell, "x", SQUIRREL, *words], cwd=squirrel.folder, capture_output=True,
                          timeout=DEADLINE)
    assert done.stderr == b"" and done.stdout.count(b"\n") == 1
    assert done.returncode == 128 + signal.SIGPIPE


def test_standard_output_that_is_full(squirrel, packed):
    with open("/dev/full", "wb") as full:
        for words in [["cat", "packed"], ["info", "packed"], ["--help"]]:
            with squirrel.start(*words, stdout=full) as process:
                message = process.communicate(timeout=DEADLINE)[1].decode()
            if words != ["--help"]:
                assert process.returncode == 1 and "No space left" in message, words


# --- Ctrl-C ---
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_cat(squirrel, many, signal_number):
    with squirrel.start("cat", many) as process:
        process.stdout.read(1000)
        end(process, signal_number)
        assert process.stderr.read().decode() == "squirrel cat: interrupted\n"
    assert process.returncode == 128 + signal_number


@pytest.mark.parametrize("words", [["cat", "-"], ["pack", "-", "out"], ["head", "-"]])
def test_interrupted_while_it_waits_for_input(squirrel, words):
    with squirrel.start(*words, stdin=subprocess.PIPE) as process:
        process.stdin.write(b'{"a": 1}\n')
        process.stdin.flush()
        wait_until(lambda: catches_signals(process))
        time.sleep(0.1)  # mostly it waits for more by now
        end(process)
    assert process.returncode == 130
    assert files(squirrel.folder) == []


@pytest.mark.parametrize("words", [["verify", "many.jsonl"], ["bench", "many.jsonl", "-r", "1000"],
                                   ["convert", "many.jsonl", "x.jsonl.gz"]])
def test_other_interrupted_commands(squirrel, many, words):
    before = sorted(files(squirrel.folder))
    with squirrel.start(*words) as process:
        wait_until(lambda: catches_signals(process))
        time.sleep(0.1)
        if process.poll() is None:
            end(process)
            if process.returncode == 0:  # the signal came behind the end of its work
                if words[0] == "convert":
                    assert len(gzip.open(squirrel.folder / words[2]).readlines()) == 60000
            else:
                assert process.returncode == 130
                assert sorted(files(squirrel.folder)) == before


def test_interrupted_pack_leaves_nothing(squirrel, many):
    before = sorted(files(squirrel.folder))
    with squirrel.start("pack", *[many] * 20, "out", "--samples-per-shard", 2000, "--level", 6) as process:
        wait_until(lambda: list(squirrel.folder.glob("out/*.sqrl")))
        end(process)
        assert process.stderr.read().decode() == "squirrel pack: interrupted\n"
    assert process.returncode == 130
    assert sorted(files(squirrel.folder)) == before


def test_a_second_signal_ends_at_once_and_leaves_what_can_be_swept(squirrel, packed, many):
    """Nothing is committed; the temporaries that stay go with the next pack, like those of kill -9."""
    process = squirrel.start("pack", *[many] * 20, "packed", "--append", "--samples-per-shard", 2000, "--level", 6)
    with process:
        wait_until(lambda: list(packed.glob(".*.sqrl*")))
        process.send_signal(signal.SIGSTOP)  # so that both arrive before it can end by the first
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(signal_number)
        process.wait(timeout=DEADLINE)
    assert process.returncode in (130, 143)
    assert squirrel.rows("cat", "packed") == samples(2000)
    squirrel("pack", "lines.jsonl", "packed", "--append", "-n", 1)
    assert squirrel.rows("cat", "packed") == samples(2000) + samples(1)
    assert [p.name for p in packed.iterdir() if p.name.startswith(".")] == []


# --- killed ---
def test_killed_pack_leaves_old_data_as_it_was(squirrel, packed, many):
    """kill -9 at any moment: whole old files, whole new ones, temporaries that the next pack sweeps."""
    for delay in (0.02, 0.1, 0.25):
        with squirrel.start("pack", *[many] * 10, "packed", "--append", "--samples-per-shard", 500) as process:
            time.sleep(delay)
            process.kill()
        assert squirrel.rows("cat", "packed") == samples(2000)
        for shard in packed.glob("*.sqrl"):
            squirrel("verify", shard)
    squirrel("pack", "lines.jsonl", "packed", "--append", "-n", 1)
    assert squirrel.rows("cat", "packed") == samples(2000) + samples(1)
    assert [p.name for p in packed.iterdir() if p.name.startswith(".")] == []


@pytest.fixture
def counted(squirrel) -> pathlib.Path:
    path = squirrel.folder / "counted.jsonl"
    text = "0123456789 " * 100
    with path.open("w") as file:
        file.writelines(f'{{"n": {n}, "text": "{text}"}}\n' for n in range(60_000))
    return path


def shards(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.sqrl"))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_pack_goes_on_behind_what_it_had(squirrel, counted, end):
    """Whole shards are not written again, and all is as it is after one run."""
    words = ("pack", counted, "out", "--resume", "--samples-per-shard", 500)
    out, before = squirrel.folder / "out", []
    for more in (2, 6):
        wanted = len(before) + more
        with squirrel.start(*words) as process:
            while len(shards(out)) < wanted and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(end)
            process.wait(timeout=DEADLINE)
        assert "belong to no commit" in squirrel.error("cat", "out")
        found = {path.name: path.stat().st_ino for path in shards(out)}
        assert len(found) >= wanted and set(before) <= set(found.items())
        before = list(found.items())
    squirrel(*words)
    assert set(before) <= {(path.name, path.stat().st_ino) for path in shards(out)}
    squirrel("pack", counted, "once", "--samples-per-shard", 500)
    for one, other in zip(shards(out), shards(squirrel.folder / "once"), strict=True):
        assert one.stat().st_size == other.stat().st_size
    assert squirrel.rows("cat", "out") == squirrel.rows("cat", counted)
    assert "holds data already" in squirrel.error(*words)


def test_what_a_pack_left_may_be_damaged(squirrel, counted):
    """A shard behind a gap is written again; a broken one is named, and goes when it is removed."""
    words, out = ("pack", counted, "out", "--resume", "--samples-per-shard", 500), squirrel.folder / "out"
    with squirrel.start(*words) as process:
        while len(shards(out)) < 5 and process.poll() is None:
            time.sleep(0.002)
        process.kill()
    broken = shards(out)[2]
    os.truncate(broken, 100)
    message = squirrel.error(*words)
    assert broken.name in message and "footer" in message
    broken.unlink()
    squirrel(*words)
    assert squirrel.rows("cat", "out") == squirrel.rows("cat", counted)


def test_a_pack_of_something_else_does_not_go_on(squirrel, counted):
    """Other samples, other shards: what the first left is not mixed with it."""
    words = ("pack", counted, "out", "--resume", "--samples-per-shard", 500)
    with squirrel.start(*words) as process:
        while not shards(squirrel.folder / "out"):
            time.sleep(0.002)
        process.kill()
    others = ((*words[:-1], 400), (*words, "--where", "n > 1"), (*words, "--codec", "none"), (*words, "--index", "n"))
    for other in others:
        assert "holds data already" in squirrel.error(*other)
    os.utime(counted, ns=(0, 0))
    assert "holds data already" in squirrel.error(*words)
    squirrel("pack", counted, "out", "--overwrite")
    assert squirrel.rows("cat", "out") == squirrel.rows("cat", counted)
    assert "standard input" in squirrel.error("pack", "--resume", "-", "x", data="{}\n", code=2)
    for flag in ("--append", "--overwrite", "--groups=g=n"):
        assert "resume" in squirrel.error("pack", counted, "x", "--resume", flag, code=2)


def test_killed_overwrite_of_a_file(squirrel, many):
    write_lines(squirrel.folder / "x.jsonl", samples(10))
    with squirrel.start("convert", many, "x.jsonl", "--overwrite") as process:
        time.sleep(0.1)
        process.kill()
    assert len(squirrel.rows("cat", "x.jsonl")) in (10, 60_000)


# --- full disk ---
def limit_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


@pytest.mark.parametrize("words", [["pack", "many.jsonl", "out", "--codec", "none"],
                                   ["convert", "many.jsonl", "x.jsonl"]])
def test_file_size_limit(squirrel, many, words):
    before = sorted(files(squirrel.folder))
    with squirrel.start(*words, preexec_fn=limit_files) as process:
        message = process.communicate(timeout=DEADLINE)[1].decode()
    assert process.returncode == 1 and words[2].split(".")[0] in message
    assert "too large" in message.lower()
    assert sorted(files(squirrel.folder)) == before


@pytest.mark.parametrize("words", [["pack", "many.jsonl", "disk/out", "--codec", "none"],
                                   ["convert", "many.jsonl", "disk/x.jsonl"]])
def test_full_disk(squirrel, many, small_disk, words):
    message = squirrel.error(*words)
    assert "No space left" in message and "disk/" in message
    assert files(small_disk) == []


def test_full_disk_keeps_what_was_there(squirrel, many, small_disk, lines):
    squirrel("pack", lines, "disk/out")
    squirrel.error("pack", many, "disk/out", "--append", "--codec", "none", "--samples-per-shard", 100)
    assert squirrel.rows("cat", "disk/out") == samples(2000)


# --- many writers ---
def test_many_processes_append_to_one_directory(squirrel, tmp_path):
    writers, rows, rounds = 6, 200, 3
    for i in range(writers):
        write_lines(tmp_path / f"in{i}.jsonl", [{"writer": i, "n": n} for n in range(rows)])
    squirrel("pack", "in0.jsonl", "out", "-n", 1)
    for _ in range(rounds):
        started = [squirrel.start("pack", f"in{i}.jsonl", "out", "--append", "--samples-per-shard", 50)
                   for i in range(writers)]
        for process in started:
            with process:
                message = process.communicate(timeout=DEADLINE)[1]
            assert process.returncode == 0, message
    got = squirrel.rows("cat", "out")
    want = [{"writer": 0, "n": 0}] + [{"writer": i, "n": n} for i in range(writers) for n in range(rows)] * rounds
    key = lambda row: (row["writer"], row["n"])
    assert sorted(got, key=key) == sorted(want, key=key)
    squirrel("verify", "out")


# --- terminals ---
def on_terminal(words: list, folder: pathlib.Path) -> tuple[str, int]:
    """What the command shows on a terminal, where standard error is one."""
    master, slave = pty.openpty()
    with Process([SQUIRREL, *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL,
                 stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while True:
            if not select.select([master], [], [], DEADLINE)[0]:
                break
            try:
                data = os.read(master, 65536)
            except OSError:  # the other end was closed
                break
            if not data:
                break
            shown += data
    os.close(master)
    return shown.decode(), process.returncode


def test_progress_bar_on_a_terminal(squirrel, many):
    squirrel("pack", many, "packed")
    shown, code = on_terminal(["pack", "packed", "out", "--level", 5], squirrel.folder)
    assert code == 0
    assert re.search(r"\r\x1b\[K\[#*\.*\] +\d+% pack: \d+ samples", shown)
    assert shown.endswith("s\r\n") and "out: 60000 samples in 1 shard" in shown.rsplit("\x1b[K", 1)[1]


def test_progress_without_a_total_on_a_terminal(squirrel, many):
    shown, code = on_terminal(["convert", many, "out"], squirrel.folder)
    assert code == 0 and "convert: " in shown and "[" not in shown.replace("\x1b[K", "")


def test_plain_lines_elsewhere(squirrel, many):
    done = squirrel("pack", many, "out")
    assert "\r" not in done.stderr and "\x1b" not in done.stderr
    assert re.fullmatch(r"out: 60000 samples in 1 shard, .* s\n", done.stderr)
    assert squirrel("pack", many, "out2", "--json").stderr == ""
