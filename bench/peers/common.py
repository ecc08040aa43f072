"""What every contender's script shares: the works, timing, checksums, memory.

A script defines functions named after rows (`read_a_dicts(folder)`, `pack_a(folder)` ...) and ends in
`common.main(globals())`. A read function returns an iterable of deliveries: a sample dict ({"image", "label"}, {"text"}
or, in remote_*.py, {"id", "x"}), or a batch of arrays or texts; the harness counts, times and, in the check run, sums
them up.

    python peers/x.py ROW FOLDER [--check] [--epochs N]      prints one JSON line
"""
from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
import zlib

M64 = (1 << 64) - 1
SLOW_SECONDS = 6  # no further epoch once that much was spent
WORKS = os.environ.get("BENCH_WORKS", "bench/work")


def work_a():
    """Work A as arrays: uint8[60000, 32, 32, 3] and int64[60000], mapped from disk."""
    import numpy as np

    return np.load(f"{WORKS}/A_x.npy", mmap_mode="r"), np.load(f"{WORKS}/A_y.npy")


def work_a_samples():
    """Work A as dicts in memory, made before the clock starts."""
    import numpy as np

    x, y = np.load(f"{WORKS}/A_x.npy"), np.load(f"{WORKS}/A_y.npy")
    return [{"image": x[i], "label": int(y[i])} for i in range(len(x))]


def work_b_samples():
    """Work B as dicts {"text": line}."""
    with open(f"{WORKS}/B.txt", encoding="utf-8", newline="\n") as lines:
        return [{"text": line[:-1]} for line in lines]


def rss_bytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def folder_bytes(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)


class Sums:
    """Order-free sums over delivered samples, as the work's sums.json has them."""

    def __init__(self) -> None:
        self.samples = self.crc = self.labels = 0

    def image(self, image, label) -> None:
        self.samples += 1
        self.crc = (self.crc + zlib.crc32(image.tobytes())) & M64
        self.labels += int(label)

    def text(self, text) -> None:
        self.samples += 1
        self.crc = (self.crc + zlib.crc32(text.encode() if isinstance(text, str) else text)) & M64

    def take(self, item) -> None:
        if isinstance(item, dict) and "image" in item and item["image"].ndim == 3:
            self.image(item["image"], item["label"])
        elif isinstance(item, dict) and "image" in item:
            for image, label in zip(item["image"], item["label"]):
                self.image(image, label)
        elif isinstance(item, dict) and "x" in item:
            self.text(item["x"])
            self.labels += int(item["id"])
        elif isinstance(item, dict):
            texts = item["text"]
            if isinstance(texts, (str, bytes)):
                self.text(texts)
            else:
                for text in texts.tolist() if hasattr(texts, "tolist") else texts:
                    self.text(text)
        else:
            raise TypeError(type(item))


def size_of(item) -> int:
    """How many samples one delivery holds."""
    if isinstance(item, dict):
        value = item.get("image", item.get("text", item.get("x")))
        if isinstance(value, (str, bytes, memoryview)) or getattr(value, "ndim", 4) == 3:
            return 1
        return len(value)
    raise TypeError(type(item))


def run_read(make, folder: str, epochs: int, check: bool) -> dict:
    base = rss_bytes()
    if check:
        sums = Sums()
        for item in make(folder):
            sums.take(item)
        return dict(samples=sums.samples, crc32_sum=sums.crc, label_sum=sums.labels)
    count = sum(size_of(item) for item in make(folder))  # warms up
    rates, spent = [], 0.0
    while len(rates) < epochs and spent < SLOW_SECONDS:
        gc.collect()
        start = time.perf_counter()
        for _item in make(folder):
            pass
        seconds = time.perf_counter() - start
        rates.append(count / seconds)
        spent += seconds
    return dict(samples=count, rates=rates, peak_bytes=peak_bytes() - base)


def run_pack(pack, folder: str, samples: list, epochs: int) -> dict:
    """`pack(samples, folder)` must leave the data synced to disk."""
    import shutil

    rates, size, base = [], 0, rss_bytes()
    while len(rates) < epochs and sum(len(samples) / rate for rate in rates) < SLOW_SECONDS:
        shutil.rmtree(folder, ignore_errors=True)
        gc.collect()
        start = time.perf_counter()
        pack(samples, folder)
        rates.append(len(samples) / (time.perf_counter() - start))
        size = folder_bytes(folder)
    return dict(samples=len(samples), rates=rates, stored_bytes=size, peak_bytes=max(0, peak_bytes() - base))


def sync_folder(folder: str) -> None:
    """fsync every file: for writers that leave that to the system."""
    for d, _, files in os.walk(folder):
        for f in files:
            fd = os.open(os.path.join(d, f), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def main(functions: dict) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("row")
    parser.add_argument("folder")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    function = functions[args.row]
    if args.row.startswith("make_"):
        function(args.folder)
        result = dict(stored_bytes=folder_bytes(args.folder))
    elif args.row.startswith("pack_"):
        samples = work_a_samples() if args.row.startswith("pack_a") else work_b_samples()
        result = run_pack(function, args.folder, samples, args.epochs)
    elif args.row.startswith("first_"):
        function(args.folder)
        result = {}
    else:
        result = run_read(function, args.folder, args.epochs, args.check)
    print(json.dumps(result))
    sys.stdout.flush()
