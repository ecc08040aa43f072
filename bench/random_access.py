#!/usr/bin/env python3
"""Random access beside NumPy on an mmap, LMDB and Lance: calls of 1,024 random positions, warm.

    bench/random_access.py [--rounds 5] [--folder bench/work/random] [--python PATH]

Works: `records`, 300,000 dicts of 1,000 random bytes; `a`, 60,000 dicts {"image": uint8[32,32,3], "label": int}.
Every contender gives dicts whose bytes are their own (Lance: one array of the images alone). Each runs in its own
process, in turn, round after round; the figures are medians. Ours runs in .venv, the peers in bench/envs/random,
which pip fills on first use.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
COUNT = {"records": 300_000, "a": 60_000}
CALL, CALLS = 1024, 100


def samples(work: str):
    import numpy as np

    rng = np.random.default_rng(0)
    for i in range(COUNT[work]):
        if work == "records":
            yield {"data": rng.bytes(1000)}
        else:
            yield {"image": rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), "label": i % 10}


def ours(work: str, folder: str, **options):
    import squirrel

    if not os.path.exists(folder):
        squirrel.pack(samples(work), folder, codec="none", progress=False, **options)
    return squirrel.open(folder).get_many


def ours_small(work: str, folder: str):
    return ours(work, folder, block_bytes="4 KiB")


def ours_single(work: str, folder: str):
    return ours(work, folder, block_bytes=1)


def numpy_mmap(work: str, folder: str):
    import numpy as np

    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/x.npy"):
        shape = (COUNT[work], 1000) if work == "records" else (COUNT[work], 32, 32, 3)
        x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", np.uint8, shape)
        y = np.zeros(COUNT[work], np.int64)
        for i, sample in enumerate(samples(work)):
            x[i] = np.frombuffer(sample["data"], np.uint8) if work == "records" else sample["image"]
            y[i] = sample.get("label", 0)
        x.flush()
        np.save(f"{folder}/y.npy", y)
    x, y = np.load(f"{folder}/x.npy", mmap_mode="r"), np.load(f"{folder}/y.npy").tolist()
    if work == "records":
        return lambda indices: [{"data": x[i].tobytes()} for i in indices]
    return lambda indices: [{"image": np.array(x[i]), "label": y[i]} for i in indices]


def lmdb_(work: str, folder: str):
    import lmdb
    import numpy as np

    db = lmdb.open(folder, map_size=1 << 32, readahead=False)
    if not db.stat()["entries"]:
        with db.begin(write=True) as transaction:
            for i, sample in enumerate(samples(work)):
                value = sample["data"] if work == "records" else sample["image"].tobytes() + bytes([sample["label"]])
                transaction.put(i.to_bytes(8, "big"), value, append=True)

    def get(indices):
        with db.begin(buffers=True) as transaction:
            values = [transaction.get(int(i).to_bytes(8, "big")) for i in indices]
            if work == "records":
                return [{"data": bytes(value)} for value in values]
            return [{"image": np.frombuffer(value, np.uint8, 3072).reshape(32, 32, 3).copy(), "label": value[3072]}
                    for value in values]

    return get


def lance_(work: str, folder: str):
    import lance
    import pyarrow as pa

    name, size = ("data", 1000) if work == "records" else ("image", 3072)
    if not os.path.exists(folder):
        kind = pa.list_(pa.uint8(), size) if work == "a" else pa.binary(size)
        values = (bytes(s[name]) if work == "records" else s[name].ravel() for s in samples(work))
        lance.write_dataset(pa.table({name: pa.array(list(values), kind)}), folder)
    dataset = lance.dataset(folder)
    return lambda indices: dataset.take(indices).to_pylist() if work == "records" else \
        dataset.take(indices)[name].combine_chunks().flatten().to_numpy().reshape(-1, 32, 32, 3)


CONTENDERS = {"ours, 4 KiB blocks": ours_small, "ours, a block a sample": ours_single,
              "NumPy on an mmap": numpy_mmap, "LMDB": lmdb_, "Lance take": lance_}


def measure(name: str, work: str, folder: str) -> None:
    import numpy as np

    get = CONTENDERS[name](work, folder)
    rng = np.random.default_rng(1)
    calls = [rng.integers(0, COUNT[work], CALL) for _ in range(CALLS)]
    calls = [call.tolist() if name == "NumPy on an mmap" else call for call in calls]
    get(calls[0])
    for call in calls[: 10 if name == "Lance take" else CALLS]:
        get(call)
    calls = calls[: 10 if name == "Lance take" else CALLS]
    wall, cpu = time.perf_counter(), time.process_time()
    for call in calls:
        get(call)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"rate": len(calls) * CALL / wall, "cpu_ns": 1e9 * cpu / (len(calls) * CALL)}))


def environment() -> str:
    folder = pathlib.Path(os.environ.get("BENCH_ENVS", HERE / "envs")) / "random"
    if not (folder / ".ok").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "numpy", "lmdb", "pylance", "pyarrow"], check=True)
        (folder / ".ok").touch()
    return str(folder / "bin/python")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=str(HERE / "work" / "random"))
    parser.add_argument("--python", default=str(HERE.parent / ".venv/bin/python"), help="of ours")
    parser.add_argument("--measure", nargs=2, metavar=("CONTENDER", "WORK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, work = args.measure
        return measure(name, work, f"{args.folder}/{work}-{CONTENDERS[name].__name__}")
    os.makedirs(args.folder, exist_ok=True)
    peers, rows = environment(), {}
    for _ in range(args.rounds):
        for work in COUNT:
            for name in CONTENDERS:
                python = args.python if name.startswith("ours") else peers
                done = subprocess.run([python, __file__, "--folder", args.folder, "--measure", name, work],
                                      capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{name}, {work}: {done.stderr}")
                rows.setdefault((work, name), []).append(json.loads(done.stdout))
    print(f"{'work':8} {'contender':24} {'samples/s':>12} {'CPU ns each':>12}")
    for (work, name), runs in rows.items():
        print(f"{work:8} {name:24} {statistics.median(r['rate'] for r in runs):12,.0f} "
              f"{statistics.median(r['cpu_ns'] for r in runs):12,.0f}")


if __name__ == "__main__":
    main()
