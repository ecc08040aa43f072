"""What the scripts of bench/remote.py share: one cold read of a data set behind a slow link.

    python peers/remote_x.py FUNCTION PLACE.json [--check] [--limit SECONDS]      prints one JSON line

A read function takes a Place and returns an iterable of deliveries as those of common.py, or a list of them. PLACE.json
names the server, the bucket (a folder of the server's root) and its files. Imports are not timed; reading is, from the
call to the last sample, or until the limit: slow readers are then measured by the part that they delivered.
"""
from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time

import common

PHOTO_BYTES = 110_000  # on average


class Place:
    """A data set on the server: `url` by http, `s3` as a bucket of its S3, `files` as (name, bytes), `samples` in
    all; `scratch` is an empty folder, gone afterwards."""

    def __init__(self, description: dict, scratch: str) -> None:
        self.endpoint, self.bucket, self.prefix = description["endpoint"], description["bucket"], description["prefix"]
        self.files = [(name, size) for name, size in description["files"]]
        self.samples = description["samples"]
        self.folder = description["folder"]  # the same files on this machine's disk
        self.scratch = scratch
        self.url = f"{self.endpoint}/{self.bucket}/{self.prefix}".rstrip("/")
        self.s3 = f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def photos(count: int):
    """Samples {"id": int, "x": bytes} of the size of photos, which don't compress."""
    draw = random.Random(7)
    for i in range(count):
        yield {"id": i, "x": draw.randbytes(PHOTO_BYTES - 20_000 + draw.randrange(40_000))}


def photos_of(folder: str) -> tuple[list, int]:
    """The photos for a folder named ...-SHARD_MB-COUNT and how many a shard has."""
    shard, count = (int(part) for part in os.path.basename(folder).split("-")[-2:])
    return list(photos(count)), max(1, shard * 1_000_000 // PHOTO_BYTES)


def in_shards(folder: str):
    """(number, samples) of each shard of the photos."""
    samples, each = photos_of(folder)
    os.makedirs(folder, exist_ok=True)
    for at in range(0, len(samples), each):
        yield at // each, samples[at : at + each]


def cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def timed(read, place: Place, limit: float) -> dict:
    """{samples, seconds, cpu_seconds, peak_bytes}. A dict that `read` returns goes in as it is: it timed itself."""
    late: list = []
    timer = threading.Timer(limit, late.append, [True])
    timer.daemon = True
    timer.start()
    cpu, begin = cpu_seconds(), time.perf_counter()
    found = read(place)
    if isinstance(found, dict):
        result = dict(samples=place.samples, seconds=time.perf_counter() - begin) | found
    else:
        count, item = 0, None
        for item in found:
            count += 1
            if late:
                break
        seconds = time.perf_counter() - begin
        each = common.size_of(item)
        whole = each > 1 and not late  # batches, the last one smaller
        result = dict(samples=place.samples if whole else count * each, seconds=seconds)
    del found
    gc.collect()  # ends workers, so that their time is counted
    return dict(cpu_seconds=cpu_seconds() - cpu, peak_bytes=common.peak_bytes()) | result


def checked(read, place: Place) -> dict:
    sums = common.Sums()
    for item in read(place):
        sums.take(item)
    return dict(samples=sums.samples, crc32_sum=sums.crc, label_sum=sums.labels)


def sums_of_photos(count: int) -> dict:
    sums = common.Sums()
    for sample in photos(count):
        sums.take(sample)
    return dict(samples=sums.samples, crc32_sum=sums.crc, label_sum=sums.labels)


def main(functions: dict, *modules: str) -> None:
    """`modules` are imported before the clock starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("function")
    parser.add_argument("place")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9)
    args = parser.parse_args()
    function = functions[args.function]
    for module in modules:
        importlib.import_module(module)
    if args.function.startswith("make_"):
        function(args.place)
        print(json.dumps(dict(stored_bytes=common.folder_bytes(args.place))))
        return
    scratch = tempfile.mkdtemp(prefix="remote-")
    try:
        with open(args.place) as description:
            place = Place(json.load(description), scratch)
        result = checked(function, place) if args.check else timed(function, place, args.limit)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(result), flush=True)
    os._exit(0)  # libraries' threads have no say in when it ends


if __name__ == "__main__":
    print(json.dumps(sums_of_photos(int(sys.argv[1]))))
