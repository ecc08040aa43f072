"""No machine learning: filters a large web server's log (JSON lines, compressed) and counts, in bounded memory.

    python examples/python/count_web_log.py [LOG]

Without LOG a log of 500,000 requests is made first. The filter runs in native threads; only the lines that pass
become Python objects.
"""

from __future__ import annotations

import collections
import gzip
import json
import os
import random
import sys
import tempfile
import time

import squirrel

PATHS = ("/", "/login", "/api/orders", "/api/items", "/img/logo.png", "/search")


def make_log(path: str, requests: int = 500_000) -> None:
    """A log as servers write it: one JSON object a line; about one request in fifty fails."""
    draw = random.Random(1)
    with gzip.open(path, "wt", compresslevel=1) as log:
        for i in range(requests):
            status = draw.choice((500, 502, 503)) if draw.random() < 0.02 else draw.choice((200, 200, 200, 304, 404))
            log.write(json.dumps({"time": 1_700_000_000 + i, "status": status, "path": draw.choice(PATHS),
                                  "ms": draw.randrange(1, 900)}) + "\n")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(folder, "access.jsonl.gz")
        if len(sys.argv) == 1:
            make_log(path)
        start = time.perf_counter()
        failing = squirrel.open(path).filter('status >= 500 and path startswith "/api/"').select("path", "status")
        counts = collections.Counter((line["path"], line["status"]) for line in failing)
        seconds = time.perf_counter() - start
        for (where, status), count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:8,}  {status}  {where}")
        print(f"{os.path.getsize(path) / 1e6:.1f} MB of log in {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
