"""Long runs: memory stays bounded whatever the data set's size. Only with --soak."""

from __future__ import annotations

from pathlib import Path

import pytest

STREAM = """
import resource, sys
import numpy as np
import squirrel

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

folder, gigabytes = sys.argv[1], int(sys.argv[2])
image = np.zeros((256, 256, 3), np.uint8)
count = gigabytes * 10**9 // image.nbytes
base = peak()
def samples():
    for i in range(count):
        image[0, 0, 0] = i % 256
        yield {"image": image, "label": i}
squirrel.pack(samples(), folder)
packed = peak() - base
total = sum(int(b["label"].sum()) for b in squirrel.open(folder).batch(64))
assert total == count * (count - 1) // 2
batched = peak() - base
assert sum(1 for _ in squirrel.open(folder)) == count
seen = sum(b.rows for b in squirrel.open(folder).shuffle_all(1).batch(64))
assert seen == count
print(packed, batched, peak() - base)
"""


def grown(script, folder: Path, gigabytes: int) -> float:
    done = script(STREAM, str(folder), str(gigabytes), timeout=1200)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


def test_one_gigabyte_stays_below_300_mb(tmp_path: Path, script) -> None:
    assert grown(script, tmp_path / "d", 1) < 300


@pytest.mark.soak
def test_ten_gigabytes_stay_below_300_mb(tmp_path: Path, script) -> None:
    assert grown(script, tmp_path / "d", 10) < 300
