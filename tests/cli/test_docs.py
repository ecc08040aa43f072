"""The examples of docs/cli.md, README.md and examples/shell do what they say.

`SQUIRREL_UPDATE_DOCS=1 pytest tests/cli/test_docs.py` writes the outputs in docs/cli.md anew.
"""
from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from command import ROOT, SQUIRREL

BLOCK = re.compile(r"^```console\n(.*?)^```\n", re.M | re.S)
# Names, times, and what compression makes of the samples.
VARIES = [(re.compile(pattern, re.M), instead) for pattern, instead in [
    (r"\b[0-9a-z]{26}-(?=\d{6}\.)", "ID-"), (r"\d+\.\d s$", "0.0 s"), (r"(?<=, )[\d.]+ [KM]?i?B(?= \()", "0 B"),
    (r"(?<=^files    ).*$", "0 B"), (r"^( *\d+) +[\d.]+ [KM]?i?B(?=  )", r"\1 0 B"), (r'(?<="file_bytes": )\d+', "0")]]


@pytest.fixture
def shell(tmp_path):
    """Runs a line of shell with the command on the PATH."""
    if not shutil.which("bash"):
        pytest.skip("bash is not here")
    (tmp_path / ".bin").mkdir()
    (tmp_path / ".bin/squirrel").symlink_to(SQUIRREL)
    environment = {**os.environ, "PATH": f"{tmp_path / '.bin'}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}

    def run(line: str, folder: pathlib.Path = tmp_path) -> subprocess.CompletedProcess:
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)

    return run


def same_each_time(text: str) -> str:
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text


def run_block(block: str, shell) -> str:
    """A block with the outputs as they are now. A command may go on behind a backslash."""
    out, command = [], ""
    for line in block.splitlines():
        if command.endswith("\\") or line.startswith("$ "):
            command = f"{command}\n{line}" if command.endswith("\\") else line
            out.append(line)
            if not line.endswith("\\"):
                done = shell(command[2:])
                out.extend(done.stdout.splitlines())
                if done.returncode:
                    out.append(f"(exit code {done.returncode})")
                command = ""
    return "\n".join(out) + "\n"


def test_the_commands_page(shell):
    path = ROOT / "docs/cli.md"
    text = path.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 5
    for block in blocks:
        now = run_block(block, shell)
        if os.environ.get("SQUIRREL_UPDATE_DOCS"):
            path.write_text(path.read_text(encoding="utf-8").replace(block, now), encoding="utf-8")
        else:
            assert same_each_time(now) == same_each_time(block)


def test_the_readmes_shell_examples(shell, tmp_path):
    """They use the data set that the Python example before them makes, and a log."""
    rows = [{"image": [[i % 256] * 4] * 4, "label": i % 10} for i in range(1000)]
    (tmp_path / "n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert shell("squirrel pack n.jsonl numbers").returncode == 0
    with gzip.open(tmp_path / "access.log.gz", "wt") as log:
        log.write('{"path": "/", "status": 200}\n' * 10)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("\nShell:\n"):]
    block = re.search(r"```sh\n(.*?)```", section, re.S).group(1)
    lines = block.strip().splitlines()
    assert len(lines) >= 3
    for line in lines:
        done = shell(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}"


def test_counting_a_log(shell, tmp_path):
    done = shell(f"{ROOT}/examples/shell/count_web_log.sh")
    assert done.returncode == 0, done.stdout
    counts = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert sum(counts) == 2000 and counts == sorted(counts, reverse=True)
    (tmp_path / "log.jsonl").write_text('{"status": 404, "path": "/a"}\n{"status": 200, "path": "/b"}\n')
    done = shell(f"{ROOT}/examples/shell/count_web_log.sh log.jsonl 'status == 404' path")
    assert done.stdout.split(maxsplit=1) == ["1", '{"path": "/a"}\n']


def test_fashion_mnist(shell):
    done = shell(f"{ROOT}/examples/shell/fashion_mnist.sh")
    if done.returncode == 77:
        pytest.skip("the package dataset-fashion-mnist is not installed")
    assert done.returncode == 0, done.stdout
    counts = [int(line.split()[0]) for line in done.stdout.splitlines() if line.endswith("}")]
    assert len(counts) == 10 and sum(counts) == 10_000
