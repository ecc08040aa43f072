"""Runs the command. SQUIRREL names the program (default build/cli/squirrel)."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQUIRREL = str(pathlib.Path(os.environ.get("SQUIRREL", ROOT / "build/cli/squirrel")).resolve())
TIMEOUT = 300  # of a machine that is busy
# The pool's threads are detached; what they keep for their next call is not freed when the
# process ends before them. A sanitizer would call that a leak now and then.
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))


class Process(subprocess.Popen):
    """One that is killed when what is done with it fails; Popen's own `with` would wait for its end, maybe for ever."""

    def __exit__(self, kind: object, *more: object) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *more)


class Command:
    """Runs the command in a directory of the test's own."""

    program = SQUIRREL

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def start(self, *words: object, **more: object) -> Process:
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        more.setdefault("bufsize", 0)
        return Process([SQUIRREL, *map(str, words)], cwd=self.folder, **more)

    def __call__(self, *words: object, code: int = 0, data: bytes | str | None = None,
                 **more: object) -> subprocess.CompletedProcess:
        """Runs it to its end; stdout and stderr are text. Any other exit code fails."""
        data = data.encode() if isinstance(data, str) else data
        if data is None:
            more.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run([SQUIRREL, *map(str, words)], cwd=self.folder, input=data, capture_output=True,
                              timeout=TIMEOUT, **more)
        done.stdout = done.stdout.decode(errors="replace")
        done.stderr = done.stderr.decode(errors="replace")
        assert "ERROR: AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[:2000]}\n{done.stderr[:4000]}"
        return done

    def rows(self, *words: object, **more: object) -> list:
        """The JSON lines it prints."""
        return [json.loads(line) for line in self(*words, **more).stdout.splitlines()]

    def error(self, *words: object, code: int = 1, **more: object) -> str:
        """The one message of a run that fails."""
        done = self(*words, code=code, **more)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 or (code == 2 and len(lines) == 2), done.stderr
        assert lines[0].startswith("squirrel"), done.stderr
        return lines[0]


def samples(count: int) -> list[dict]:
    return [{"id": i, "label": i % 10, "text": f"line {i} é", "score": i / 4, "tags": ["a", i]} for i in range(count)]


def write_lines(path: pathlib.Path, rows: list) -> pathlib.Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
