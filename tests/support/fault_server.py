"""Starts fault_server.c, which see: a web server with a slow link and faults on demand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

SOURCES = [Path(__file__).with_name(f"fault_{part}.c") for part in ("server", "link", "files", "keys")]

FAULTS = [
    "503", "429", "500", "flip", "reset_headers", "reset_body", "stall", "trickle", "truncate", "truncate_length",
    "longer", "whole", "range", "etag", "gzip", "login", "loop", "file", "late",
]  # fmt: skip


def compiled(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The program, compiled into a folder; None where there is no C compiler."""
    given = os.environ.get("FAULT_SERVER")
    if given:
        return Path(given)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = Path(folder or tempfile.mkdtemp()) / "fault_server"
    if not program.exists():
        subprocess.run([compiler, "-O2", "-pthread", *map(str, SOURCES), "-o", str(program)], check=True)
    return program


class FaultServer:
    """A running server. `url` is that of its root, without a slash at the end."""

    def __init__(self, program: Path, root: str | os.PathLike[str], **options: Any) -> None:
        command = [str(program), "--root", str(root)]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("port "):
            self.close()
            raise RuntimeError("the fault server did not start")
        self.port = int(line.split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def _control(self, what: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(f"{self.url}/_control/{what}", headers={"Connection": "close"})
        with opener.open(request, timeout=60) as answer:
            return answer.read().decode()

    def set(self, **settings: Any) -> None:
        """Changes settings: set(faults="503=0.2,stall@7", match=".sqrl", latency_ms=30)."""
        pairs = ((name.replace("_", "-"), str(value)) for name, value in settings.items())
        # "=" of faults stands between the first one and the next "&": as it is.
        self._control("set?" + "&".join(f"{name}={urllib.parse.quote(value, safe='=@,./')}" for name, value in pairs))

    def reset(self) -> None:
        """Forgets counters, the log and which faults there were; no fault is given any more."""
        self._control("reset")
        self.set(faults="", match="")

    def counters(self) -> dict[str, Any]:
        """Requests, bytes, connections, statuses, faults ... since the last reset."""
        return json.loads(self._control("counters"))

    def requests(self) -> list[dict[str, Any]]:
        """Each request: method, path, range ("" for none), status, bytes, fault."""
        rows = []
        for line in self._control("requests").splitlines():
            method, path, span, status, size, fault = line.split(" ")
            span = "" if span == "-" else span
            rows.append({"method": method, "path": path, "range": span, "status": int(status),
                         "bytes": int(size), "fault": fault})  # fmt: skip
        return rows

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
