"""`squirrel` on object stores: pack straight to a bucket, read from it, credentials from the environment."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import pytest

from command import ROOT, SQUIRREL, Process

sys.path.insert(0, str(ROOT / "tests" / "support"))
from object_servers import Absent, make_bucket, object_server  # noqa: E402


@pytest.fixture(scope="module")
def endpoint():
    try:
        with object_server("moto") as url:
            make_bucket("moto", url, "bucket")
            yield url
    except Absent as error:
        pytest.skip(str(error))


def run(endpoint: str, *words: str, secret: str = "a-secret-of-aws") -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": secret}
    done = subprocess.run([SQUIRREL, *words], env=environment, text=True, capture_output=True, timeout=300)
    assert secret not in done.stdout + done.stderr
    return done


def test_pack_and_read(endpoint: str, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(500)))
    done = run(endpoint, "pack", str(source), "s3://bucket/packed")
    assert done.returncode == 0, done.stderr
    done = run(endpoint, "cat", "s3://bucket/packed")
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == list(range(500)), done.stderr
    done = run(endpoint, "head", "-n", "2", "s3://bucket/packed")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stderr
    again = run(endpoint, "pack", str(source), "s3://bucket/packed")
    assert again.returncode != 0 and "holds data already" in again.stderr
    assert run(endpoint, "verify", "s3://bucket/packed").returncode == 0
    done = run(endpoint, "pack", "s3://bucket/packed", str(tmp_path / "back"))
    assert done.returncode == 0, done.stderr


def test_a_killed_pack_goes_on(endpoint: str, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(10_000)))
    words = ["pack", str(source), "s3://bucket/resumed", "--resume", "--samples-per-shard", "50"]
    environment = os.environ | {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}

    def shards() -> int:
        with urllib.request.urlopen(f"{endpoint}/bucket?list-type=2&prefix=resumed/") as listed:
            return listed.read().count(b".sqrl</Key>")

    with Process([SQUIRREL, *words], env=environment, stderr=subprocess.DEVNULL) as process:
        while shards() < 2 and process.poll() is None:
            time.sleep(0.05)
        process.kill()
        process.wait()
    assert run(endpoint, "cat", "s3://bucket/resumed").returncode != 0
    done = run(endpoint, *words)
    assert done.returncode == 0, done.stderr
    done = run(endpoint, "cat", "s3://bucket/resumed")
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == list(range(10_000))


def test_what_is_not_there(endpoint: str) -> None:
    done = run(endpoint, "head", "s3://bucket/none")
    assert done.returncode != 0 and "s3://bucket/none" in done.stderr and "Traceback" not in done.stderr
