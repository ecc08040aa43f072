#!/usr/bin/env python3
"""A billion samples of 1 KB: from nothing to the position at which one of 8,192 consumers goes on.

    bench/billion.py [--rounds 5] [--folder bench/work/billion] [--python PATH]

Writes the commit files of such a data set as `docs/formats/native-shard.md` specifies them (eight packs, shards of
256 MiB, blocks of 1 MiB, chunks of 4 MiB: 16 bytes each), and empty files of its shards' sizes. In a process of its
own, with squirrel imported, the time runs while the data set is opened, shuffled, dealt to rank 777, worker 5 of
1,024 x 8, a state behind 40,000 of its 122,071 samples loaded, and up to the first read, which fails since the
shards are empty: the error names the one that holds the next sample. The state is one that the library made there,
with its position moved. Medians, and the largest peak of memory of the whole process, Python and NumPy among it.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES, COMMITS = 1_000_000_000, 8
IN_BLOCK, BLOCKS_IN_CHUNK, CHUNKS_IN_SHARD = 1024, 4, 64
SAMPLE_BYTES = 1024
RANKS, WORKERS, RANK, WORKER = 1024, 8, 777, 5
AT = 40_000  # of its 122,071 samples; those of its first window are 40,690
MAGIC = b"\x89SQRI\r\n\x1a"


def template() -> dict:
    """The map of a real commit, of samples like these."""
    import msgpack

    import squirrel

    with tempfile.TemporaryDirectory() as folder:
        squirrel.pack(({"data": bytes(1000), "n": i} for i in range(10)), f"{folder}/d", codec="none", progress=False)
        (path,) = pathlib.Path(f"{folder}/d/_sqrl").glob("*.idx")
        return msgpack.unpackb(path.read_bytes()[8:-8])


def commit(number: int, first: int, samples: int, like: dict, folder: pathlib.Path) -> bytes:
    import msgpack
    import xxhash

    names, shards, chunks = [], bytearray(), bytearray()
    in_chunk, in_shard = IN_BLOCK * BLOCKS_IN_CHUNK, IN_BLOCK * BLOCKS_IN_CHUNK * CHUNKS_IN_SHARD
    for start in range(0, samples, in_shard):
        count = min(in_shard, samples - start)
        for at in range(0, count, in_chunk):
            some = min(in_chunk, count - at)
            chunks += struct.pack("<4I", len(names), at // IN_BLOCK, -(-some // IN_BLOCK), some)
        raw = count * SAMPLE_BYTES
        shards += struct.pack("<5Q", raw + 4096, count, -(-count // IN_BLOCK), raw, first + start + 1)
        names.append(f"pack{number}-{len(names):06}.sqrl")
        with open(folder / names[-1], "wb") as file:
            file.truncate(raw + 4096)
    body = {**like, "samples": samples, "raw_bytes": samples * SAMPLE_BYTES, "names": names, "shards": bytes(shards),
            "chunks": bytes(chunks)}
    data = MAGIC + msgpack.packb(body)
    return data + struct.pack("<Q", xxhash.xxh3_64_intdigest(data))


def make(folder: pathlib.Path) -> None:
    (folder / "_sqrl").mkdir(parents=True)
    like, share = template(), SAMPLES // COMMITS
    for i in range(COMMITS):
        data = commit(i, i * share, share, like, folder)
        name = f"{0x18a1b2c3d4e5f600 + i:016x}-{i:016x}.idx"
        (folder / "_sqrl" / name).write_bytes(data)


def consumer(folder: str):
    import squirrel

    stream = squirrel.open(folder).shuffle_all(seed=1)
    return stream.distribute(RANK, RANKS, worker=WORKER, workers=WORKERS)


def moved(state: dict, at: int) -> dict:
    """The state of a run that gave `at` samples, all of its first window; from one that gave none."""
    share = state["share"]
    assert state["given"] == share["window"] == share["at"] == 0, state
    return {**state, "given": at, "share": {**share, "at": at, "quota": share["quota"] - at}}


def measure(folder: str) -> None:
    import squirrel

    state_file = pathlib.Path(folder) / "state.json"
    if not state_file.exists():
        stream = consumer(folder)
        assert len(squirrel.open(folder)) == SAMPLES
        state_file.write_text(json.dumps(stream.iterator().state_dict()))
        return print(json.dumps(None))
    state = json.loads(state_file.read_text())
    state = moved(state, AT)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    iterator = consumer(folder).iterator(state=state)
    try:
        next(iterator)
        raise SystemExit("there are samples in empty shards")
    except squirrel.FormatError as error:
        named = str(error).split(": ")[0]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "mb": after / 1024, "more_mb": (after - before) / 1024,
                      "named": named}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=str(HERE / "work" / "billion"))
    parser.add_argument("--python", default=str(HERE.parent / ".venv/bin/python"), help="with msgpack and xxhash")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure(args.folder)
    command = [args.python, "-W", "ignore", __file__, "--folder", args.folder]
    if not os.path.exists(args.folder):
        make(pathlib.Path(args.folder))
    rows = []
    for _ in range(args.rounds + 1):
        done = subprocess.run([*command, "--measure"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        row = json.loads(done.stdout)
        rows += [row] if row else []
    assert len({row["named"] for row in rows}) == 1, rows
    files = [path.stat().st_size for path in pathlib.Path(args.folder, "_sqrl").iterdir()]
    print(f"{SAMPLES:,} samples, {len(files)} commits of {sum(files):,} bytes; next sample in {rows[0]['named']}")
    for key, what in (("seconds", "s"), ("cpu_seconds", "s of CPU"), ("more_mb", "MB more than after import")):
        print(f"{statistics.median(row[key] for row in rows):8.3f} {what}")
    print(f"{max(row['mb'] for row in rows):8.1f} MB peak of the process")


if __name__ == "__main__":
    main()
