"""What each command does, on data that Python's json and gzip made."""
from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from command import samples, write_lines

COMMANDS = ["pack", "convert", "info", "ls", "head", "cat", "verify", "index", "bench", "doctor", "completion"]


def test_pack_and_cat_give_the_same_samples(squirrel, packed):
    assert squirrel.rows("cat", "packed") == samples(2000)


def test_pack_cuts_shards_by_number_and_by_size(squirrel, lines, packed):
    shards = json.loads(squirrel("ls", "packed", "--json").stdout)
    assert [shard["samples"] for shard in shards] == [500] * 4
    assert all(os.path.getsize(squirrel.folder / shard["path"]) == shard["bytes"] for shard in shards)
    squirrel("pack", lines, "small", "--shard-size", "16 KiB", "--block-size", "4 KiB")
    assert len(json.loads(squirrel("ls", "small", "--json").stdout)) > 4
    assert squirrel.rows("cat", "small") == samples(2000)


def test_pack_reads_several_sources_in_their_order(squirrel, tmp_path):
    for name, rows in [("a.jsonl", [{"x": 1}]), ("b.jsonl", [{"x": 2}, {"x": 3}])]:
        write_lines(tmp_path / name, rows)
    squirrel("pack", "b.jsonl", "a.jsonl", "-", "out", data='{"x": 4}\n')
    assert [row["x"] for row in squirrel.rows("cat", "out")] == [2, 3, 1, 4]


def test_pack_does_not_touch_what_is_there(squirrel, lines, packed):
    message = squirrel.error("pack", lines, "packed")
    assert "packed" in message and "overwrite" in message and "append" in message
    assert len(squirrel.rows("cat", "packed")) == 2000


def test_append_and_overwrite(squirrel, lines, packed):
    squirrel("pack", lines, "packed", "--append", "-n", 5)
    assert squirrel.rows("cat", "packed") == samples(2000) + samples(5)
    squirrel("pack", lines, "packed", "--overwrite", "-n", 3)
    assert squirrel.rows("cat", "packed") == samples(3)


def test_pack_reports_for_programs(squirrel, lines):
    report = json.loads(squirrel("pack", lines, "out", "--json").stdout)
    assert (report["samples"], report["shards"], report["destination"]) == (2000, 1, "out")
    assert report["file_bytes"] == sum(p.stat().st_size for p in squirrel.folder.glob("out/*.sqrl"))


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst", "x.sqrl", "x.gz", "store/"])
def test_convert_to_each_format_and_back(squirrel, packed, name):
    extra = ["--format", "messagepack"] if name == "store/" else []
    squirrel("convert", "packed", name, *extra)
    assert squirrel.rows("cat", name) == samples(2000)


def test_written_lines_are_read_by_others(squirrel, packed):
    squirrel("convert", "packed", "x.jsonl.gz")
    with gzip.open(squirrel.folder / "x.jsonl.gz", "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == samples(2000)


def test_convert_to_standard_output(squirrel, packed):
    assert squirrel.rows("convert", "packed", "-", "-n", 4) == samples(4)


def test_standard_input(squirrel, lines, packed):
    text = lines.read_bytes()
    assert squirrel.rows("cat", "-", data=text) == samples(2000)
    assert squirrel.rows("head", "-", data=text) == samples(10)
    squirrel("convert", "packed", "plain.gz", "-n", 7)
    payload = gzip.decompress((squirrel.folder / "plain.gz").read_bytes())
    assert squirrel.rows("cat", "-", data=payload) == samples(7)
    assert squirrel.rows("cat", "-", data=b'{"a": 1}\n\n{"a": 2}') == [{"a": 1}, {"a": 2}]
    assert squirrel.rows("cat", "-", data=b"") == []


def test_standard_input_is_printed_as_it_comes(squirrel):
    """A line that came is shown although the input is still open."""
    with squirrel.start("cat", "-", stdin=subprocess.PIPE) as process:
        process.stdin.write(b'{"a": 1}\n{"a"')
        process.stdin.flush()
        assert process.stdout.readline() == b'{"a": 1}\n'
        process.stdin.write(b": 2}\n")
        process.stdin.close()
        assert process.stdout.read() == b'{"a": 2}\n'
    assert process.returncode == 0


def test_a_large_sample_of_standard_input(squirrel):
    text = json.dumps({"text": "x" * 5_000_000}).encode()
    assert squirrel("cat", "-", data=text).stdout.encode() == text + b"\n"


def test_reading_options(squirrel, packed):
    all_samples = samples(2000)
    assert squirrel.rows("cat", "packed", "--where", "label == 3 and score < 100") == [
        s for s in all_samples if s["label"] == 3 and s["score"] < 100]
    assert squirrel.rows("cat", "packed", "--skip", 1990, "--take=5") == all_samples[1990:1995]
    assert squirrel.rows("head", "packed", "-n", 2, "-s", "text,id") == [
        {"text": s["text"], "id": s["id"]} for s in all_samples[:2]]
    assert squirrel.rows("head", "packed", "-n", 1, "--drop", "text,tags,score") == [{"id": 0, "label": 0}]
    shuffled = squirrel.rows("cat", "packed", "--shuffle", 7)
    assert shuffled != all_samples and sorted(shuffled, key=lambda s: s["id"]) == all_samples
    assert squirrel.rows("cat", "packed", "--shuffle", 7) == shuffled


def test_pack_with_reading_options(squirrel, packed):
    squirrel("pack", "packed", "out", "--where", "label == 1", "--select", "id")
    assert squirrel.rows("cat", "out") == [{"id": i} for i in range(1, 2000, 10)]


def test_info(squirrel, lines, packed):
    report = json.loads(squirrel("info", "packed", "--json").stdout)
    assert (report["driver"], report["shards"], report["samples"]) == ("sqrl", 4, 2000)
    assert report["fields"]["id"] == "int64" and report["fields"]["text"] == "string"
    text = squirrel("info", lines).stdout
    assert "jsonl" in text and re.search(r"score\s+float64", text)


def test_verify_of_good_data(squirrel, packed):
    report = json.loads(squirrel("verify", "packed", "--json").stdout)
    assert report["samples"] == 2000 and report["damaged_shards"] == 0 and report["faults"] == []
    assert squirrel("verify", "packed").stdout.startswith("good: 4 shards")


def test_verify_counts_the_payload(squirrel, packed, lines):
    """Plain lines in several stretches, and the same compressed: the bytes of the text."""
    text = lines.read_bytes() * 20
    (squirrel.folder / "big.jsonl").write_bytes(text)
    (squirrel.folder / "big.jsonl.gz").write_bytes(gzip.compress(text))
    for name in ("big.jsonl", "big.jsonl.gz"):
        verdict = json.loads(squirrel("verify", name, "--json").stdout)
        assert (verdict["samples"], verdict["bytes"]) == (40_000, len(text)) and verdict["blocks"] > 1
    info = json.loads(squirrel("info", "packed", "--json").stdout)
    assert json.loads(squirrel("verify", "packed", "--json").stdout)["bytes"] == info["raw_bytes"]


def test_index_after_a_shard_was_removed(squirrel, packed):
    next(iter(sorted(packed.glob("*.sqrl")))).unlink()
    assert "squirrel index" in squirrel.error("cat", "packed", "-s", "id")
    squirrel("index", "packed", "--all")
    assert len(squirrel.rows("cat", "packed")) == 1500


def test_bench(squirrel, packed):
    rounds = squirrel.rows("bench", "packed", "--batch", 64, "--rounds", 2, "--select", "id,label", "--json")
    assert [r["samples"] for r in rounds] == [2000, 2000]
    assert all(r["samples_per_second"] > 0 and r["peak_bytes"] > 0 for r in rounds)
    assert abs(sum(s["wait_share"] for s in rounds[-1]["stages"]) - 1) < 0.01
    assert "samples/s" in squirrel("bench", "packed", "-r", 1).stdout


def test_doctor(squirrel):
    report = json.loads(squirrel("doctor", "--json").stdout)
    assert report["version"] == squirrel("--version").stdout.split()[1]
    assert "sqrl" in report["drivers"] and report["codec zstd"].startswith("zstd 1.")
    forced = json.loads(squirrel("doctor", "--json", env={**os.environ, "SQRL_CPU": "scalar"}).stdout)
    assert forced["instructions"] == "scalar"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(squirrel, name):
    assert re.search(rf"^  {name}\s", squirrel("--help").stdout, re.M)
    text = squirrel(name, "--help").stdout
    assert text.startswith(f"usage: squirrel {name} ") and ("--json" in text) == (name != "completion")
    assert max(map(len, text.splitlines())) < 140


def test_pack_help_shows_the_options_of_the_tables(squirrel):
    text = squirrel("pack", "--help").stdout
    for part in ["driver idx", "--stem", "format sqrl", "--codec zstd|lz4|none", "format jsonl", "--max-line SIZE"]:
        assert part in text
    assert "writing" not in squirrel("cat", "--help").stdout


def test_options_of_the_tables_are_used(squirrel, packed):
    squirrel("pack", "packed", "plain", "--codec", "none")
    squirrel("pack", "packed", "small", "--codec=zstd", "--level", 9)
    size = {name: sum(p.stat().st_size for p in squirrel.folder.glob(f"{name}/*.sqrl")) for name in ["plain", "small"]}
    assert size["small"] * 2 < size["plain"]
    nan = b'{"a": NaN}\n'
    (squirrel.folder / "nan.jsonl").write_bytes(nan)
    assert squirrel("cat", "nan.jsonl").stdout.encode() == nan
    assert "NaN" in squirrel.error("cat", "nan.jsonl", "--nan=false")


@pytest.mark.parametrize("words, part", [
    (["pakc"], "did you mean 'pack'"), (["xyz"], "--help"), (["cat"], "wants URL"),
    (["pack", "x"], "wants SOURCE"), (["doctor", "x"], "takes no words"),
    (["cat", "x", "--wher", "a"], "did you mean --where"), (["pack", "x", "y", "--cdec=lz4"], "did you mean --codec"),
    (["cat", "x", "--samples-per-shard", "1"], "no option --samples-per-shard"), (["cat", "x", "-q"], "no option -q"),
    (["cat", "x", "--take"], "wants a value"), (["cat", "-", "--take", "-1"], "whole number"),
    (["cat", "-", "--take", "1e3"], "whole number"), (["pack", "x", "y", "--append=1"], "takes no value"),
    (["completion", "csh"], "bash, zsh or fish"), (["completion", "bash", "--json"], "no option --json"),
    (["info", "a", "b"], "'b' is too many"), (["doctor", "x"], "'x' is too many"), (["cat", "-", "-nx"], "not 'x'"),
    (["cat", "-", "--json=yes"], "takes no value"), (["pack", "-ax", "x", "y"], "no option -x"),
    (["pack", "-", "y", "--where", "a == 1"], "needs a file"),
    (["pack", "-", "y", "--shard-size", "many"], "not a size")])
def test_wrong_command_lines(squirrel, words, part):
    assert part in squirrel.error(*words, code=2, data="")
    assert list(squirrel.folder.iterdir()) == []


def test_no_command_shows_the_help_and_fails(squirrel):
    assert "usage: squirrel COMMAND" in squirrel(code=2).stdout


@pytest.mark.parametrize("words, part", [
    (["--where", "label = 3"], ""), (["--where", "label == 3 and"], ""), (["--driver", "jsnol"], "jsonl")])
def test_wrong_values_say_what_is_expected(squirrel, packed, words, part):
    done = subprocess.run([squirrel.program, "cat", "packed", *words], cwd=squirrel.folder, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode in (1, 2) and part in done.stderr and len(done.stderr.splitlines()) == 1


def test_errors_for_programs(squirrel):
    error = json.loads(squirrel("info", "nowhere", "--json", code=1).stderr)["error"]
    assert error["code"] == "not_found" and "nowhere" in error["where"]


def test_letters_of_options(squirrel, packed):
    """As other commands take them: the value attached or not, flags together."""
    for words in (["-n1"], ["-n", "1"], ["--take=1"], ["-n1", "-sid"], ["-n1", "-wid == 0"]):
        assert [row["id"] for row in squirrel.rows("head", "packed", *words)] == [0]
    squirrel("pack", "packed", "packed", "-an3")
    assert len(squirrel.rows("cat", "packed")) == 2003


def test_json_lines_stay_what_they_are(squirrel, packed):
    assert squirrel.rows("head", "packed", "--json", "-n2") == squirrel.rows("head", "packed", "-n2") == samples(2)
    assert json.loads(squirrel("head", "nowhere", "--json", code=1).stderr)["error"]["code"] == "not_found"


def test_words_that_begin_with_a_dash(squirrel, tmp_path):
    write_lines(tmp_path / "-x.jsonl", [{"a": 1}])
    assert squirrel.rows("cat", "--", "-x.jsonl") == [{"a": 1}]


def test_completion_of_bash(squirrel):
    if not shutil.which("bash"):
        pytest.skip("bash is not here")
    script = squirrel("completion", "bash").stdout + """
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _squirrel; echo "${COMPREPLY[*]}"; }
complete_words squirrel p
complete_words squirrel pack --over
complete_words squirrel pack --cod
complete_words squirrel cat --cod
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["pack", "--overwrite", "--codec", ""] and not done.stderr


@pytest.mark.parametrize("shell, check", [("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_completion_of_other_shells(squirrel, tmp_path, shell, check):
    text = squirrel("completion", shell).stdout
    assert all(name in text for name in COMMANDS) and "samples-per-shard" in text
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here; only the text was looked at")
    (tmp_path / "script").write_text(text)
    assert subprocess.run([shell, *check, "script"], cwd=tmp_path).returncode == 0


def fashion() -> pathlib.Path:
    if not shutil.which("dpkg"):
        pytest.skip("dpkg is not here")
    listed = subprocess.run(["dpkg", "-L", "dataset-fashion-mnist"], capture_output=True, text=True).stdout
    images = [line for line in listed.splitlines() if line.endswith("t10k-images-idx3-ubyte.gz")]
    if not images:
        pytest.skip("the package dataset-fashion-mnist is not installed")
    return pathlib.Path(images[0]).parent


def test_fashion_mnist(squirrel):
    """The labels as Python reads them from the file."""
    folder = fashion()
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        labels = list(file.read()[8:])
    squirrel("pack", folder, "test", "--stem", "t10k")
    assert [row["label"] for row in squirrel.rows("cat", "test", "-s", "label")] == labels
    verdict = json.loads(squirrel("verify", folder, "--stem", "t10k", "--json").stdout)
    assert verdict["samples"] == len(labels) and verdict["bytes"] == len(labels) * 28 * 28
    assert "train" in squirrel.error("info", folder) and "stem" in squirrel.error("info", folder)


def test_cat_goes_on_with_a_state(squirrel, packed):
    seventh = ("cat", "packed", "--shuffle", 7, "--epoch", 2)
    whole = squirrel.rows(*seventh)
    assert whole != squirrel.rows("cat", "packed", "--shuffle", 7)
    parts = [row for n in (1, 5, 2, 10**6, 10)
             for row in squirrel.rows(*seventh, "--state", "s.json", "-n", n)]
    assert parts == whole
    state = json.loads((squirrel.folder / "s.json").read_text())
    assert state["finished"] == 1 and state["given"] == 2000
    message = squirrel.error("cat", "packed", "--shuffle", 8, "--state", "s.json")
    assert "stage 1 was shuffle_all(seed=7), now it is shuffle_all(seed=8)" in message
    (squirrel.folder / "s.json").write_text("nonsense")
    assert "state" in squirrel.error("cat", "packed", "--state", "s.json")
    assert "one URL" in squirrel.error("cat", "packed", "packed", "--state", "x.json", code=2)


def test_a_state_without_end_is_refused(squirrel, packed):
    """Devices give bytes for ever."""
    for path in ("/dev/zero", "/dev/full"):
        assert "is a device" in squirrel.error("cat", "packed", "--state", path, "-n", 1)


def test_cat_of_one_rank(squirrel, packed):
    parts = [squirrel.rows("cat", "packed", "--rank", r, "--world-size", 3) for r in range(3)]
    assert [len(part) for part in parts] == [667, 667, 666]
    assert sorted(sum(parts, []), key=lambda s: s["id"]) == samples(2000)
    assert "together" in squirrel.error("cat", "packed", "--rank", 1, code=2)
