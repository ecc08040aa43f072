"""squirrel.pack in this process."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

import squirrel
from squirrel._progress import Progress

from sample_data import image_samples


def test_report(tmp_path: Path) -> None:
    report = squirrel.pack(image_samples(100), tmp_path / "d", samples_per_shard=30)
    assert report.samples == 100 and report.shards == 4 and report.failed == []
    files = list((tmp_path / "d").glob("*.sqrl"))
    assert len(files) == 4 and report.file_bytes == sum(f.stat().st_size for f in files)
    assert report.raw_bytes > 100 * 8 * 8 * 3


def test_any_iterable(tmp_path: Path) -> None:
    squirrel.pack(({"i": i} for i in range(10)), tmp_path / "generator")
    squirrel.pack(map(lambda i: {"i": i}, range(10)), str(tmp_path / "map"))
    squirrel.pack(squirrel.open(tmp_path / "map"), tmp_path / "stream")
    squirrel.pack(squirrel.open(tmp_path / "map").map(dict), tmp_path / "chain")
    squirrel.pack(str(tmp_path / "map"), tmp_path / "url")
    for name in ("generator", "map", "stream", "chain", "url"):
        assert list(squirrel.open(tmp_path / name)) == [{"i": i} for i in range(10)]
    assert squirrel.pack([], tmp_path / "empty").samples == 0


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "sqrl"])
def test_one_file(tmp_path: Path, suffix: str) -> None:
    rows = [{"a": i, "t": "é\n", "n": None, "l": [1.5, True]} for i in range(20)]
    squirrel.pack(rows, tmp_path / f"out.{suffix}")
    assert list(squirrel.open(tmp_path / f"out.{suffix}")) == rows
    if suffix == "jsonl":
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == rows


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    squirrel.pack(image_samples(50), tmp_path / "d", codec=codec)
    assert [s["label"] for s in squirrel.open(tmp_path / "d")] == list(range(50))


def test_stream_to_shards_stays_native_and_projects(images: Path, tmp_path: Path) -> None:
    stream = squirrel.open(images).filter("label >= 1990").select("label", "text").rename(label="y")
    squirrel.pack(stream, tmp_path / "d")
    assert list(squirrel.open(tmp_path / "d")) == [
        {"y": i, "text": f"sample {i}"} for i in range(1990, 2000)
    ]


def test_existing_data_are_not_touched_unless_told(tmp_path: Path) -> None:
    squirrel.pack([{"a": 1}], tmp_path / "d")
    with pytest.raises(FileExistsError, match="overwrite"):
        squirrel.pack([{"a": 2}], tmp_path / "d")
    assert list(squirrel.open(tmp_path / "d")) == [{"a": 1}]
    squirrel.pack([{"a": 2}], tmp_path / "d", append=True)
    assert list(squirrel.open(tmp_path / "d")) == [{"a": 1}, {"a": 2}]
    squirrel.pack([{"a": 3}], tmp_path / "d", overwrite=True)
    assert list(squirrel.open(tmp_path / "d")) == [{"a": 3}]


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    def samples():
        yield {"a": 1}
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        squirrel.pack(samples(), tmp_path / "d", samples_per_shard=1)
    assert not list((tmp_path / "d").glob("**/*.sqrl"))
    assert not list((tmp_path / "d").glob("**/*.idx"))


def test_a_sample_that_cannot_be_stored(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": {2}}, {"a": 3}]
    with pytest.raises(TypeError) as caught:
        squirrel.pack(rows, tmp_path / "d")
    assert caught.value.__notes__ == ['in field "a" of the sample', "while sample 1 was packed"]
    report = squirrel.pack(rows, tmp_path / "d", on_error="skip")
    assert report.samples == 2
    ((index, text),) = report.failed
    assert index == 1 and "set" in text and '"a"' in text
    assert list(squirrel.open(tmp_path / "d")) == [{"a": 1}, {"a": 3}]


def test_map_in_this_process(tmp_path: Path) -> None:
    def make(n: int):
        if n == 3:
            raise ValueError("three")
        return {0: None, 1: {"n": 1}}.get(n, [{"n": n}] * 2)

    with pytest.raises(ValueError) as caught:
        squirrel.pack(range(6), tmp_path / "d", map=make)
    assert caught.value.__notes__ == ["while map was called with input 3"]
    report = squirrel.pack(range(6), tmp_path / "d", map=make, on_error="skip")
    assert [s["n"] for s in squirrel.open(tmp_path / "d")] == [1, 2, 2, 4, 4, 5, 5]
    assert report.failed == [(3, "ValueError: three")]
    with pytest.raises(TypeError, match="sample"):
        squirrel.pack(["x"], tmp_path / "e", map=str)


def test_an_input_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def make(n: int):
        yield {"n": n}
        yield {"n": {n} if n == 1 else n}

    report = squirrel.pack(range(3), tmp_path / "d", map=make, on_error="skip")
    assert [s["n"] for s in squirrel.open(tmp_path / "d")] == [0, 0, 2, 2]
    assert [index for index, _ in report.failed] == [1]


def test_log_lines_reach_logging(tmp_path: Path, caplog) -> None:
    """A temporary that a dead writer left is swept when the next pack begins, and told."""
    import subprocess
    import sys

    kill = (
        "import os, signal, sys, squirrel\n"
        "from squirrel import _native\n"
        "packer = _native.Packer(sys.argv[1])\n"
        "packer.extend({'x': os.urandom(100_000)} for _ in range(100))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", kill, str(tmp_path / "d")])
    with caplog.at_level("DEBUG", logger="squirrel"):
        squirrel.pack([{"a": 1}], tmp_path / "d")
        sum(1 for _ in range(1000))  # the interpreter delivers pending lines between bytecodes
    assert [r.name for r in caplog.records] == ["squirrel"] and "temporar" in caplog.text
    assert list(squirrel.open(tmp_path / "d")) == [{"a": 1}]


def test_wrong_arguments(tmp_path: Path) -> None:
    for options in (
        {"on_error": "ignore"},
        {"workers": 2},
        {"resume": True},
        {"overwrite": True, "append": True},
        {"codec": "rar"},
        {"levle": 3},
        {"shard_bytes": "many"},
    ):
        with pytest.raises(ValueError):
            squirrel.pack([{"a": 1}], tmp_path / "d", **options)
    with pytest.raises(ValueError):
        squirrel.pack([1], tmp_path / "d", map=dict, workers=0)
    squirrel.pack([{"a": 1}], tmp_path / "few")
    with pytest.raises(ValueError, match="batches"):
        squirrel.pack(squirrel.open(tmp_path / "few").batch(1), tmp_path / "d")
    with pytest.raises(TypeError):
        squirrel.pack(5, tmp_path / "d")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        squirrel.pack(tmp_path / "missing", tmp_path / "d")


def test_packer_is_reusable_code(tmp_path: Path) -> None:
    from squirrel import _native

    packer = _native.Packer(tmp_path / "d", samples_per_shard=10)
    packer.append({"a": 0})
    assert packer.extend({"a": i} for i in range(1, 25)) == 24
    packer.cut()
    packer.append({"a": 25})
    report = packer.finish()
    assert report["samples"] == 26 and report["shards"] == 4
    with pytest.raises(RuntimeError, match="finished"):
        packer.append({"a": 1})
    assert [s["a"] for s in squirrel.open(tmp_path / "d")] == list(range(26))


def test_no_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (tmp_path / "ro").mkdir(mode=0o500)
    with pytest.raises(PermissionError):
        squirrel.pack([{"a": 1}], tmp_path / "ro" / "d")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar() -> None:
    stream = Terminal()
    bar = Progress(None, 10, stream=stream)
    bar.update(4, 1500, force=True)
    bar.end(10, 3_000_000)
    text = stream.getvalue()
    assert "\r" in text and "40%" in text and "1.5 kB" in text and "100%" in text
    assert text.endswith("\n")


def test_progress_lines_without_a_terminal() -> None:
    quiet, plain = io.StringIO(), io.StringIO()
    Progress(None, 10, stream=quiet).end(10, 0)
    bar = Progress(True, None, "inputs", stream=plain)
    bar(3, 0)
    bar.end(10, 2000)
    assert quiet.getvalue() == ""
    assert plain.getvalue().count("\n") == 1 and "10 inputs" in plain.getvalue()
    Progress(False, None, stream=Terminal()).end(1, 1)


def test_arrays_of_a_pack_are_not_shared_with_it(tmp_path: Path) -> None:
    """The packer takes the bytes at once: a reused buffer is fine."""
    buffer = np.zeros(4, np.int32)

    def samples():
        for i in range(1000):
            buffer[:] = i
            yield {"x": buffer}

    squirrel.pack(samples(), tmp_path / "d")
    assert [int(s["x"][3]) for s in squirrel.open(tmp_path / "d")] == list(range(1000))
