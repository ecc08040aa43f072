"""`squirrel cache`, and reading through a cache: by several processes, killed ones, over HTTP that goes away."""
from __future__ import annotations

import functools
import http.server
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from command import SQUIRREL, samples, write_lines

ROWS = samples(20000)


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without ranges or ETags, with Last-Modified; counts requests."""

    requests: list[str] = []

    def do_GET(self) -> None:
        self.requests.append(self.path)
        try:
            super().do_GET()
        except ConnectionError:  # whoever asked was killed, or has what it wanted
            pass

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: pathlib.Path):
    folder = tmp_path / "served"
    folder.mkdir()
    write_lines(folder / "rows.jsonl", ROWS)
    Files.requests = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_address[1]}/rows.jsonl"
    server.shutdown()
    server.server_close()
    thread.join()


def disk_bytes(folder: pathlib.Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.parent.name != "working":
                total += path.stat().st_size
        except FileNotFoundError:  # evicted meanwhile
            pass
    return total


def test_the_second_time_nothing_is_fetched_and_offline_it_works(squirrel, served) -> None:
    server, url = served
    words = ("cat", url, "--cache", "kept?limit=64MiB")
    assert squirrel.rows(*words) == ROWS
    first = len(Files.requests)
    assert squirrel.rows(*words) == ROWS
    assert len(Files.requests) <= first + 2, "it asks whether the file is the same, no more"
    server.shutdown()
    server.server_close()
    done = squirrel(*words)
    assert len(done.stdout.splitlines()) == len(ROWS)
    warning = done.stderr.splitlines()
    assert len(warning) == 1
    assert "reading what the cache" in warning[0]
    assert re.search(r"found current \d+ (second|minute)s? ago", warning[0])


def test_ls_verify_prune(squirrel, served) -> None:
    url = served[1]
    size = (squirrel.folder / "served/rows.jsonl").stat().st_size
    done = squirrel("cache", "warm", url, "--cache", "kept?limit=64MiB")
    assert done.stdout.startswith(f"{url}: 1 shard, ")
    report = squirrel.rows("cache", "ls", "kept", "--json")[0]
    [found] = report["objects"]
    assert found["url"] == url
    assert found["object_bytes"] == found["cached_bytes"] == size
    assert size < found["disk_bytes"] <= report["disk_bytes"] < size + 100_000
    now = time.time()
    assert all(now - 3600 < found[name] <= now + 1 for name in ("fetched", "used", "checked"))
    text = squirrel("cache", "ls", "kept").stdout
    assert url in text and "1 object" in text
    assert squirrel.rows("cache", "verify", "kept", "--json")[0]["removed_files"] == 0
    piece = max((squirrel.folder / "kept/v1/objects").rglob("*-*"), key=lambda path: path.stat().st_size)
    data = bytearray(piece.read_bytes())
    data[-1] ^= 1
    piece.write_bytes(data)
    assert squirrel.rows("cache", "verify", "kept", "--json", code=1)[0]["removed_files"] == 1
    assert not piece.exists()
    squirrel("cache", "warm", url, "--cache", "kept?limit=64MiB")
    report = squirrel.rows("cache", "prune", "kept", "--unused", "1h", "--json")[0]
    assert report["removed_files"] == 0
    squirrel("cache", "prune", "kept", "--keep", "100KB")
    assert disk_bytes(squirrel.folder / "kept") <= 100_000
    assert "wants --keep SIZE, --unused TIME" in squirrel.error("cache", "prune", "kept", code=2)
    assert "a time such as 7d" in squirrel.error("cache", "prune", "kept", "--unused", "7w", code=2)
    assert "there is no cache here" in squirrel.error("cache", "ls", "nowhere")
    assert "did you mean verify" in squirrel.error("cache", "verfy", "kept", code=2)
    assert "--cache" in squirrel.error("cache", "warm", url, code=2)


def test_a_place_that_is_no_directory(squirrel, served) -> None:
    (squirrel.folder / "file").write_text("x")
    assert "can't be written" in squirrel.error("head", served[1], "--cache", "file")
    message = squirrel.error("head", served[1], "--cache", "kept?limit=lots", code=2)
    assert "limit" in message


def test_killed_while_downloading(squirrel, served) -> None:
    url = served[1]
    kept = squirrel.folder / "kept"
    for pause in (0.0, 0.02, 0.05, 0.1, 0.2):
        process = squirrel.start("cat", url, "--cache", "kept?limit=64MiB", stdout=subprocess.DEVNULL)
        time.sleep(pause)
        process.kill()
        process.communicate()
    assert squirrel.rows("cat", url, "--cache", "kept?limit=64MiB") == ROWS
    squirrel("cache", "verify", "kept")
    assert list((kept / "v1/working").iterdir()) == [], "what the killed ones left is swept"


def test_processes_with_a_small_limit(squirrel, served) -> None:
    url = served[1]
    kept = squirrel.folder / "kept"
    words = ("cat", url, "--cache", "kept?limit=1MiB")
    processes = [squirrel.start(*words) for _ in range(3)]
    outputs: list[bytes] = []
    threads = [threading.Thread(target=lambda p=p: outputs.append(p.communicate()[0])) for p in processes]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert disk_bytes(kept) <= 1 << 20
        time.sleep(0.01)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(set(outputs)) == 1 and outputs[0].count(b"\n") == len(ROWS)


# Made with O_CREAT; all else that changes the directory; and what needs a lock server or shared pages on NFS.
OPEN = re.compile(r'\bopenat?\((?:AT_FDCWD, )?"([^"]*)", ([A-Z_|]+)')
FORBIDDEN = re.compile(r"\b(flock|fcntl\([^)]*F_(OFD_)?SETLK|lockf|renameat2|linkat|copy_file_range|fallocate)\b")


def test_only_what_is_atomic_on_nfs(squirrel, served) -> None:
    """A trace of system calls: files appear by O_EXCL and rename, and nothing is locked or mapped."""
    if not shutil.which("strace"):
        pytest.skip("strace is not here")
    log = squirrel.folder / "trace"
    words = [SQUIRREL, "cat", served[1], "--cache", "kept?limit=1MiB"]
    done = subprocess.run(["strace", "-f", "-o", str(log), *words], cwd=squirrel.folder, capture_output=True,
                          timeout=300)
    if b"ptrace" in done.stderr and not done.stdout:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0 and done.stdout.count(b"\n") == len(ROWS)
    lines = [line for line in log.read_text(errors="replace").splitlines() if "/kept/v1" in line]
    made = [m for m in map(OPEN.search, lines) if m and "O_CREAT" in m.group(2)]
    assert made and all("O_EXCL" in m.group(2) and "/v1/working/" in m.group(1) for m in made)
    others = [m for m in map(OPEN.search, lines) if m and "O_CREAT" not in m.group(2)]
    assert others and all(m.group(2).startswith("O_RDONLY") for m in others), "nothing that has its name is written to"
    renamed = [line for line in lines if " rename(" in line]
    assert renamed and all(line.count("/v1/") == 2 for line in renamed)
    assert not [line for line in lines if FORBIDDEN.search(line)]
    assert not [line for line in lines if "MAP_SHARED" in line]


def test_interrupted_warming_goes_on(squirrel, served) -> None:
    process = squirrel.start("cache", "warm", served[1], "--cache", "kept?limit=64MiB")
    process.send_signal(signal.SIGINT)
    process.communicate()
    squirrel("cache", "warm", served[1], "--cache", "kept?limit=64MiB")
    report = squirrel.rows("cache", "warm", served[1], "--cache", "kept?limit=64MiB", "--json")[0]
    assert report["bytes"] == os.path.getsize(squirrel.folder / "served/rows.jsonl")
