"""Odd and damaged input: one clear error that names file and place; good samples before it are delivered."""
from __future__ import annotations

import gzip
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import time

import pytest

from command import SQUIRREL, samples, write_lines


def shards(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.sqrl"))


def lines_before_error(squirrel, *words: object) -> tuple[list, str]:
    done = squirrel(*words, code=1)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# --- cut short ---
@pytest.mark.parametrize("share", [0.999, 0.5, 0.01])
def test_native_shard_cut_short(squirrel, packed, share):
    shard = shards(packed)[1]
    os.truncate(shard, int(shard.stat().st_size * share))
    message = squirrel.error("cat", "packed")
    assert shard.name in message
    assert shard.name in squirrel("verify", "packed", code=1).stderr


@pytest.mark.parametrize("name", ["x.gz", "x.jsonl.gz", "x.jsonl.zst"])
def test_compressed_stream_cut_short(squirrel, packed, name):
    squirrel("convert", "packed", name)
    path = squirrel.folder / name
    os.truncate(path, path.stat().st_size * 2 // 3)
    good, message = lines_before_error(squirrel, "cat", name)
    assert good == samples(2000)[:len(good)]
    assert name in message and "cut" in message


def test_last_line_cut_short(squirrel, lines):
    size = lines.stat().st_size
    os.truncate(lines, size - 5)
    good, message = lines_before_error(squirrel, "cat", lines)
    assert good == samples(1999)
    assert "line 2000" in message and "byte" in message


# --- flipped bits ---
def test_flipped_bits_are_found_in_every_place(squirrel, packed):
    """A flipped bit anywhere in a shard is named by verify, and never gives other samples."""
    shard, want = shards(packed)[0], samples(2000)
    whole, draw = shard.read_bytes(), random.Random(3)
    for place in [draw.randrange(len(whole)) for _ in range(12)]:
        data = bytearray(whole)
        data[place] ^= 1 << draw.randrange(8)
        shard.write_bytes(data)
        done = squirrel("verify", "packed", code=1)
        assert shard.name in done.stderr, place
        cat = subprocess.run([SQUIRREL, "cat", "packed"], cwd=squirrel.folder, capture_output=True, text=True)
        got = [json.loads(line) for line in cat.stdout.splitlines()]
        assert cat.returncode in (0, 1) and got == want[:len(got)], place
        assert cat.returncode == 1 or len(got) == 2000


def test_flipped_bit_in_gzip(squirrel, packed):
    squirrel("convert", "packed", "x.gz")
    path = squirrel.folder / "x.gz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    good, message = lines_before_error(squirrel, "cat", "x.gz")
    assert "x.gz" in message and len(good) < 2000


# --- empty, foreign, mixed, missing ---
def test_empty_file_and_directory(squirrel, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "nothing").mkdir()
    assert "empty" in squirrel.error("cat", "empty")
    assert "nothing" in squirrel.error("cat", "nothing")
    for name in ("empty.jsonl.gz", "empty.sqrl", "empty.idx", "empty.gz", "empty.json"):
        (tmp_path / name).write_bytes(b"")
        assert "empty" in squirrel.error("cat", name)


def test_no_lines_are_no_samples(squirrel, tmp_path):
    """A file of JSON lines may have none: what convert wrote is read again."""
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    squirrel("convert", "a.jsonl", "none.jsonl", "--where", "a == 2")
    assert (tmp_path / "none.jsonl").read_bytes() == b""
    assert squirrel("cat", "none.jsonl").stdout == ""
    assert json.loads(squirrel("verify", "none.jsonl", "--json").stdout)["samples"] == 0


@pytest.mark.parametrize("name, codec", [("x.gz", "gzip"), ("x.jsonl.gz", "gzip"), ("x.jsonl.zst", "zstd")])
def test_a_name_that_promises_compression(squirrel, tmp_path, name, codec):
    (tmp_path / name).write_bytes(bytes(range(7, 200)))
    message = squirrel.error("cat", name)
    assert name in message and codec in message and "07 08 09" in message
    write_lines(tmp_path / name, samples(3))  # what is plainly something else is read as that
    assert squirrel.rows("cat", name) == samples(3)


def test_a_compressed_header_that_is_cut(squirrel, tmp_path):
    whole = gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 10, 4, 4) + bytes(160))
    (tmp_path / "a.idx.gz").write_bytes(whole[:22])  # 12 of 16 bytes: no four MessagePack integers
    good, message = lines_before_error(squirrel, "cat", "a.idx.gz")
    assert good == [] and "a.idx.gz" in message and "get it again" in message


def test_wrong_format(squirrel, tmp_path):
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    message = squirrel.error("cat", "image.png")
    assert "image.png" in message and "format" in message
    (tmp_path / "x.sqrl").write_bytes(b"this is no shard" * 10)
    assert "x.sqrl" in squirrel.error("cat", "x.sqrl", "--driver", "sqrl")
    assert "x.sqrl" in squirrel.error("cat", "x.sqrl", "--driver", "idx")


def test_directory_of_mixed_formats(squirrel, lines, packed):
    squirrel("convert", "packed", "mixed/a.jsonl", "-n", 5)
    squirrel("convert", "packed", "mixed/b.gz", "-n", 5)
    message = squirrel.error("cat", "mixed")
    assert "a.jsonl" in message and "b.gz" in message


def test_missing_path_names_what_is_near(squirrel, packed):
    assert 'did you mean "packed"' in squirrel.error("cat", "pakced")
    assert "no such" in squirrel.error("cat", "a/b/c")
    assert "there is no" in squirrel.error("pack", "nowhere", "out").lower()
    assert not (squirrel.folder / "out").exists()


def test_pack_of_a_bad_source_commits_nothing(squirrel, lines):
    os.truncate(lines, lines.stat().st_size - 5)
    assert "line 2000" in squirrel.error("pack", lines, "out", "--block-size", "4 KiB", "--samples-per-shard", 100)
    assert [p for p in squirrel.folder.rglob("out/**/*") if p.is_file()] == []
    write_lines(lines, samples(3))
    squirrel("pack", lines, "out")
    assert squirrel.rows("cat", "out") == samples(3)


# --- hostile sizes and depths ---
HOSTILE = {
    "binary of 4 GiB": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "text of 4 GiB": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "list of 4 G items": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "map of 4 G pairs": b"\xdf\xff\xff\xff\xff",
    "lists in lists": b"\x91" * 100_000,
    "text that is not UTF-8": b"\x81\xa1a\xa2\xc3\x28",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_messagepack(squirrel, tmp_path, what):
    good = b"\x81\xa1a\x01"
    (tmp_path / "x.gz").write_bytes(gzip.compress(good + HOSTILE[what]))
    limit = f"ulimit -v {1_500_000}; exec \"$0\" \"$@\""
    shell = ["bash", "-c", limit] if shutil.which("bash") and not sanitized() else []
    done = subprocess.run([*shell, SQUIRREL, "cat", "x.gz"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == '{"a": 1}\n', done.stderr
    assert "x.gz" in done.stderr and "byte" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "standard input" in squirrel.error("cat", "-", data=good + HOSTILE[what])


def sanitized() -> bool:
    """A sanitizer's shadow memory does not fit into a limited address space."""
    return b"__asan_init" in pathlib.Path(SQUIRREL).read_bytes()


HOSTILE_LINES = {
    "nesting": (b"[" * 100_000, "levels of nesting"),
    "no UTF-8": (b'{"a": "\xc3\x28"}', "UTF-8"),
    "overflow": (b'{"a": 1e999999}', ""),
    "half a word": (b'{"a": tru}', ""), "lone surrogate": (b'{"a": "\\ud800"}', ""), "UTF-16": (b"\xff\xfe{\x00", ""),
}


@pytest.mark.parametrize("what", HOSTILE_LINES)
def test_hostile_json(squirrel, tmp_path, what):
    line, part = HOSTILE_LINES[what]
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n' + line + b"\n")
    done = subprocess.run([SQUIRREL, "cat", "x.jsonl"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        assert line == b'{"a": 1e999999}'  # Python reads it as infinity, too
        return
    assert done.returncode == 1 and done.stdout == '{"a": 1}\n'
    assert "x.jsonl" in done.stderr and "line 2" in done.stderr and part in done.stderr


def test_commit_that_names_4_gib(squirrel, packed):
    """A commit file with every field set to ones is refused, not believed."""
    commit = next(iter((packed / "_sqrl").glob("*.idx")))
    data = bytearray(commit.read_bytes())
    for at in range(0, min(len(data) - 8, 256), 8):
        changed = bytearray(data)
        struct.pack_into("<Q", changed, at, 0xFFFFFFFFFFFFFFFF)
        commit.write_bytes(changed)
        assert commit.name in squirrel.error("info", "packed"), at


# --- places that can't be read ---
def as_nobody(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess:
    """Runs without root's rights."""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may read everything, and setpriv is not here")
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def open_to_all(path: pathlib.Path) -> None:
    """pytest's folders are closed to others; and the program may lie in one that is."""
    while path != path.parent and path.stat().st_uid == os.geteuid() and path != pathlib.Path("/tmp"):
        path.chmod(path.stat().st_mode | 0o055)
        path = path.parent


@pytest.fixture
def reachable(tmp_path, tmp_path_factory):
    """A copy of the command that others may start."""
    program = shutil.copy(SQUIRREL, tmp_path / "squirrel")
    os.chmod(program, 0o755)
    open_to_all(tmp_path)
    if as_nobody([program, "--version"], tmp_path).returncode:
        pytest.skip("another user can't start the command here")
    return program


def test_unreadable_file(lines, reachable, tmp_path):
    lines.chmod(0)
    done = as_nobody([reachable, "cat", lines.name], tmp_path)
    assert done.returncode == 1 and lines.name in done.stderr and "ermission" in done.stderr


def test_unwritable_destination(lines, reachable, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    done = as_nobody([reachable, "pack", lines.name, "closed/out"], tmp_path)
    assert done.returncode == 1 and "closed" in done.stderr and "ermission" in done.stderr
    done = as_nobody([reachable, "convert", lines.name, "closed/out.jsonl"], tmp_path)
    assert done.returncode == 1 and "closed" in done.stderr and "ermission" in done.stderr
    assert list((tmp_path / "closed").iterdir()) == []


def test_file_instead_of_directory(squirrel, lines):
    assert "lines.jsonl" in squirrel.error("pack", lines, "lines.jsonl/out")
    assert "lines.jsonl" in squirrel.error("cat", "lines.jsonl/x")


def test_vanished_while_reading(squirrel, packed):
    """A shard that goes away between opening and reading is named; nothing is committed."""
    with squirrel.start("pack", "-", "packed", "out", "--json", stdin=subprocess.PIPE) as process:
        process.stdin.write(b'{"a": 1}\n')
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (squirrel.folder / "out").exists():
            time.sleep(0.01)  # all sources are open before the destination is made
        gone = shards(packed)[2]
        gone.unlink()
        process.stdin.close()
        message = process.stderr.read().decode()
    error = json.loads(message)["error"]
    assert process.returncode == 1 and error["code"] == "not_found" and gone.name in error["where"]
    assert [path for path in (squirrel.folder / "out").rglob("*") if path.is_file()] == []


def test_shrunk_while_reading(squirrel, tmp_path):
    path = write_lines(tmp_path / "x.jsonl", [{"id": i, "text": "x" * 1000} for i in range(30_000)])
    with squirrel.start("cat", path) as process:
        first = process.stdout.read(100)
        os.truncate(path, 2_000_000)
        rest, message = process.communicate(timeout=300)
    got = (first + rest).decode().splitlines()
    ids = [json.loads(line)["id"] for line in got]
    assert ids == list(range(len(ids)))
    assert process.returncode == 1 and b"x.jsonl" in message, message


def test_what_json_cannot_hold_is_named(squirrel, tmp_path):
    (tmp_path / "x.msgpack").write_bytes(b"\x81\xa1a\x01" b"\x82\xa1b\x02\xc4\x01x\x03")  # {"a": 1} {"b": 2, b"x": 3}
    got, message = lines_before_error(squirrel, "cat", "x.msgpack")
    assert got == [{"a": 1}] and "x.msgpack: sample 1: JSON" in message
