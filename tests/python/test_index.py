"""squirrel.index: files of other formats get counts, blocks and positions."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import squirrel

pytestmark = pytest.mark.once
COUNT = 30_000


def line_samples() -> list[dict]:
    rng = np.random.default_rng(11)
    words = [bytes(rng.integers(97, 123, 8, dtype=np.uint8)).decode() for _ in range(5000)]
    picks = rng.integers(0, 5000, (COUNT, 12))
    return [{"i": i, "text": " ".join(words[k] for k in picks[i]), "nul": None} for i in range(COUNT)]


SAMPLES = line_samples()
LINES = "".join(json.dumps(sample) + "\n" for sample in SAMPLES).encode()


def msgpack_bytes() -> bytes:
    msgpack = pytest.importorskip("msgpack")
    return b"".join(msgpack.packb(sample) for sample in SAMPLES)


def parts(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def members(data: bytes, size: int) -> bytes:
    return b"".join(gzip.compress(part, 6) for part in parts(data, size))


def zstd(data: bytes, sized: bool = False) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    size = [f"--stream-size={len(data)}"] if sized else []
    return subprocess.run(["zstd", "-qc", *size], input=data, capture_output=True, check=True).stdout


CASES: dict[str, Callable[[Path], bytes]] = {
    "plain.jsonl": lambda tmp: LINES,
    "bom.jsonl": lambda tmp: b"\xef\xbb\xbf" + LINES[:-1],
    "one.jsonl.gz": lambda tmp: gzip.compress(LINES, 6),
    "one9.jsonl.gz": lambda tmp: gzip.compress(LINES, 9),
    "stored.jsonl.gz": lambda tmp: gzip.compress(LINES, 0),
    "members.jsonl.gz": lambda tmp: members(LINES, 300_001) + b"\0" * 700,
    "many.jsonl.gz": lambda tmp: members(LINES, 5_003),
    "frames.jsonl.zst": lambda tmp: b"".join(zstd(part, sized=True) for part in parts(LINES, 700_000)),
    "stream.jsonl.zst": lambda tmp: zstd(LINES),
    "one.gz": lambda tmp: gzip.compress(msgpack_bytes(), 6),
    "members.gz": lambda tmp: members(msgpack_bytes(), 777_777),
    "plain.msgpack": lambda tmp: msgpack_bytes(),
}


@pytest.mark.parametrize("name", CASES)
def test_indexed_files_are_as_before_and_have_positions(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(CASES[name](tmp_path))
    assert squirrel.index(path)["samples"] == COUNT
    assert (tmp_path / "_index" / f"{name}.sqri").is_file()
    stream = squirrel.open(path)
    assert len(stream) == COUNT
    assert list(stream) == SAMPLES
    wanted = np.random.default_rng(1).integers(0, COUNT, 400)
    assert stream.get_many(wanted) == [SAMPLES[i] for i in wanted]
    assert stream[-1] == SAMPLES[-1] and stream[7:9] == SAMPLES[7:9]
    assert sorted(s["i"] for s in stream.shuffle_all(3, window="4 MiB")) == list(range(COUNT))
    assert {f["name"] for f in stream.schema or ()} == {"i", "text", "nul"}
    assert sum(len(b["i"]) for b in stream.batch(1000)) == COUNT


def test_a_directory_of_squirrel_shards(tmp_path: Path) -> None:
    squirrel.pack(SAMPLES, tmp_path / "d", format="messagepack", samples_per_shard=7000)
    with pytest.raises(squirrel.UnsupportedError, match="squirrel index"):
        squirrel.open(tmp_path / "d")[0]
    report = squirrel.index(tmp_path / "d")
    assert (report["samples"], report["shards"]) == (COUNT, 5)
    stream = squirrel.open(tmp_path / "d")
    assert len(stream) == COUNT and stream[20_000] == SAMPLES[20_000]
    assert squirrel.index(tmp_path / "d") == report  # again: the same
    (tmp_path / "d" / "_index").rename(tmp_path / "moved")
    with pytest.raises(TypeError):
        len(squirrel.open(tmp_path / "d"))


def idx(array: np.ndarray, code: int) -> bytes:
    header = struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("dtype, code", [(np.uint8, 8), (np.float32, 13)])
def test_idx(tmp_path: Path, dtype: type, code: int) -> None:
    images = np.random.default_rng(2).integers(0, 256, (6000, 28, 28)).astype(dtype)
    labels = np.arange(6000).astype(np.uint8)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images, code), 1))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels, 8), 1))
    with pytest.raises(squirrel.UnsupportedError, match="squirrel index"):
        squirrel.open(tmp_path)[3]
    assert squirrel.index(tmp_path)["samples"] == 6000
    stream = squirrel.open(tmp_path)
    for i in (0, 5999, 1500, 2):
        np.testing.assert_array_equal(stream[i]["image"], images[i])
        assert stream[i]["label"] == labels[i]
    got = np.concatenate([b["image"] for b in stream.batch(512)])
    np.testing.assert_array_equal(got, images)


def test_a_changed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    squirrel.index(path)
    changed = bytearray(LINES)
    changed[len(LINES) // 2] ^= 1
    path.write_bytes(changed)
    with pytest.raises(squirrel.CorruptError, match="a.jsonl: block .*squirrel index"):
        list(squirrel.open(path))
    assert squirrel.open(path)[0] == SAMPLES[0]
    path.write_bytes(LINES[:-200])
    with pytest.raises(squirrel.CorruptError, match="squirrel index"):
        squirrel.open(path)[0]
    path.write_bytes(LINES + b'{"i": 30000}\n')
    assert squirrel.index(path)["samples"] == COUNT + 1
    assert squirrel.open(path)[-1] == {"i": COUNT}


def test_a_damaged_index_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINES[:200_000].rpartition(b"\n")[0]))
    squirrel.index(path)
    sidecar = tmp_path / "_index" / "a.jsonl.gz.sqri"
    good = sidecar.read_bytes()
    step = max(1, len(good) // 150)
    for at in range(0, len(good), step):
        bad = bytearray(good)
        bad[at] ^= 16
        for content in (bytes(bad), good[:at]):
            sidecar.write_bytes(content)
            with pytest.raises(squirrel.CorruptError, match="squirrel index"):
                squirrel.open(path)[0]
    sidecar.unlink()
    assert next(iter(squirrel.open(path))) == SAMPLES[0]


def test_what_cannot_be_indexed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(squirrel.CorruptError, match="a.jsonl.*line 2"):
        squirrel.index(tmp_path / "a.jsonl")
    assert not (tmp_path / "_index").exists()
    with pytest.raises(squirrel.NotFoundError):
        squirrel.index(tmp_path / "nothing")


def test_len_says_what_is_wrong_with_the_index(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n')
    squirrel.index(path)
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(TypeError, match="squirrel index"):
        len(squirrel.open(path))
