"""What the tests of parallel packing run in other processes."""

from __future__ import annotations

import os
import signal
import time


def make(n: int) -> list[dict[str, int]] | None:
    if n % 5 == 4:
        return None
    return [{"n": n, "part": part} for part in range(n % 3 + 1)]


def wanted(count: int) -> list[tuple[int, int]]:
    return [(s["n"], s["part"]) for n in range(count) for s in make(n) or []]


def make_slowly(n: int) -> list[dict[str, int]] | None:
    """With PACK_GATE="60:PATH" in the environment, inputs from 60 on wait until the file PATH is there."""
    time.sleep(0.01)
    first, _, gate = os.environ.get("PACK_GATE", "").partition(":")
    deadline = time.monotonic() + 300
    while gate and n >= int(first) and not os.path.exists(gate) and time.monotonic() < deadline:
        time.sleep(0.01)
    return make(n)


def fail_at_seven(n: int) -> dict[str, int]:
    if n == 7:
        raise ValueError("seven")
    return {"n": n}


def count_of(item: object) -> dict[str, int]:
    return {"n": len(item)}  # type: ignore[arg-type]


def count_up(n: int) -> dict[str, int]:
    return {"n": n}


def half_bad(n: int) -> list[object]:
    return [{"n": n}, {"n": {n} if n == 3 else n}]


def die_at_seven(n: int) -> dict[str, int]:
    if n == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": n}


def compute(n: int) -> dict[str, int]:
    total = 0
    for i in range(60_000):
        total = (total * 31 + i) % 1_000_003
    return {"n": n, "total": total}
