#!/usr/bin/env python3
"""Measures this library beside its peers and writes bench/results.md and bench/results.json.

    bench/run.py [--rounds 3] [--rows a_dicts,b_dicts] [--only ours,hf] [--no-check]

Every contender runs in its own environment (bench/envs, made on first use) and process, in turn, round after round, so
that drift of the machine meets all alike; each stock and with malloc tuned. A check run before compares counts and
checksums with those of the works. The figures are medians over all rounds and epochs.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
WORKS = pathlib.Path(os.environ.get("BENCH_WORKS", HERE / "work"))
ENVS = pathlib.Path(os.environ.get("BENCH_ENVS", HERE / "envs"))
DATA = pathlib.Path(os.environ.get("SQRL_TEST_DATA", ROOT.parent / "shared" / "data"))
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "67108864"}

# environment: what pip installs there
ENVIRONMENTS = {
    "sqcore": ["squirrel-core==0.20.2", "numpy<2"],
    "sqcore-isal": ["squirrel-core==0.20.2", "numpy<2", "isal"],
    "datasets": ["datasets", "numpy"],
    "webdataset": ["webdataset", "numpy"],
    "arrays": ["numpy", "torch==2.13.0", "pyarrow", "orjson", "lmdb", "pylance", "msgpack", "pillow"],
    "grain": ["grain", "array_record", "numpy"],
    "litdata": ["litdata", "torch==2.13.0", "numpy"],
    "streaming": ["mosaicml-streaming", "torch==2.14.1", "torchvision==0.29.1", "transformers"],
    "ffcv": ["ffcv", "numpy", "pillow", "opencv-python-headless", "numba", "torch==2.13.0"],
}
# FFCV compiles against OpenCV; MDS imports torchvision, which needs the torch it was built with.
NOTES = {"ffcv": "needs Debian's libopencv-dev and libturbojpeg0-dev"}

# data set: (environment, script, function) that makes it below WORKS
DATASETS = {
    "ours-a": ("ours", "ours", "make_a"), "ours-b": ("ours", "ours", "make_b"),
    "ours-b-lz4": ("ours", "ours", "make_b_lz4"), "ours-10gb": ("ours", "ours", "make_10gb"),
    "sqcore-a": ("sqcore", "squirrel_core", "make_a_gz"), "sqcore-b": ("sqcore", "squirrel_core", "make_b_gz"),
    "sqcore-jsonl": ("sqcore", "squirrel_core", "make_b_jsonl"),
    "hf-a": ("datasets", "hf_datasets", "make_a_flat"), "hf-b": ("datasets", "hf_datasets", "make_b"),
    "npy-a": ("arrays", "arrays", "make_a"), "litdata-a": ("litdata", "litdata_", "make_a"),
    "mds-a": ("streaming", "mds", "make_a"), "wds-a": ("webdataset", "webdataset_", "make_a"),
    "grain-a": ("grain", "grain_", "make_a"), "ffcv-a": ("ffcv", "ffcv_", "make_a"),
}

SQ, SQI = ("squirrel-core", "sqcore", "squirrel_core"), ("squirrel-core + isal", "sqcore-isal", "squirrel_core")
OURS = ("ours", "ours", "ours")
# row: [(contender, environment, script, function, data set)]
ROWS = {
    "a_gz_dicts": [(*OURS, "read_dicts", "sqcore-a"), (*SQ, "read_msgpack", "sqcore-a"),
                   (*SQI, "read_msgpack", "sqcore-a"),
                   ("ISA-L inflate alone, 2 processes", "sqcore-isal", "squirrel_core", "limit_inflate", "sqcore-a")],
    "a_dicts": [(*OURS, "read_dicts", "ours-a"), (*SQ, "read_msgpack", "sqcore-a"),
                ("HF, numpy format", "datasets", "hf_datasets", "read_a_numpy_dicts", "hf-a"),
                ("HF, raw Arrow by hand", "datasets", "hf_datasets", "read_a_arrow_dicts", "hf-a"),
                ("LitData", "litdata", "litdata_", "read_a_dicts", "litdata-a"),
                ("MDS", "streaming", "mds", "read_a_dicts", "mds-a"),
                ("webdataset", "webdataset", "webdataset_", "read_a_dicts", "wds-a"),
                ("Grain, ArrayRecord", "grain", "grain_", "read_a_dicts", "grain-a"),
                ("NumPy slices of an mmap", "arrays", "arrays", "read_mmap_dicts", "npy-a")],
    "a_batches": [(*OURS, "read_batches", "ours-a"),
                  ("ours, shuffle_all", "ours", "ours", "read_shuffled_batches", "ours-a"),
                  ("HF, numpy format", "datasets", "hf_datasets", "read_a_numpy_batches", "hf-a"),
                  ("HF, raw Arrow, no copy", "datasets", "hf_datasets", "read_a_arrow_batches", "hf-a"),
                  ("torch index of an mmap", "arrays", "arrays", "read_torch_batches", "npy-a"),
                  ("NumPy copies of an mmap", "arrays", "arrays", "read_mmap_batches", "npy-a"),
                  ("FFCV", "ffcv", "ffcv_", "read_a_batches", "ffcv-a")],
    "b_dicts": [(*OURS, "read_dicts", "ours-b"), ("ours, lz4", "ours", "ours", "read_dicts", "ours-b-lz4"),
                (*SQ, "read_msgpack", "sqcore-b"), ("HF, Arrow", "datasets", "hf_datasets", "read_b_dicts", "hf-b")],
    "b_batches": [(*OURS, "read_batches", "ours-b"), ("ours, lz4", "ours", "ours", "read_batches", "ours-b-lz4"),
                  ("HF, Arrow to Python lists", "datasets", "hf_datasets", "read_b_batches", "hf-b"),
                  ("HF, Arrow to NumPy", "datasets", "hf_datasets", "read_b_numpy_batches", "hf-b")],
    "b_jsonl_gz": [(*OURS, "read_dicts", "sqcore-jsonl"), (*SQ, "read_jsonl", "sqcore-jsonl"),
                   (*SQI, "read_jsonl", "sqcore-jsonl"),
                   ("orjson over gzip", "arrays", "arrays", "read_orjson_gzip", "sqcore-jsonl")],
    "pack_a": [(*OURS, "pack_a", None), (*SQ, "pack_a", None), (*SQI, "pack_a", None),
               ("LMDB", "arrays", "arrays", "pack_a_lmdb", None), ("Lance", "arrays", "arrays", "pack_a_lance", None),
               ("ArrayRecord", "grain", "grain_", "pack_a", None), ("LitData", "litdata", "litdata_", "pack_a", None)],
    "pack_b": [(*OURS, "pack_b", None), (*SQ, "pack_b", None), ("HF", "datasets", "hf_datasets", "pack_b", None),
               ("Parquet, zstd", "arrays", "arrays", "pack_b_parquet", None)],
    "memory_10gb": [(*OURS, "read_batches", "ours-10gb"),
                    ("ours, window of 1 GB", "ours", "ours", "read_window_batches", "ours-10gb"),
                    ("ours, dicts", "ours", "ours", "read_dicts", "ours-10gb"),
                    ("ours, dicts, window of 1 GB", "ours", "ours", "read_window_dicts", "ours-10gb")],
    "first": [(*OURS, "first_a", "ours-a"), (*SQ, "first_a", "sqcore-a"),
              ("Grain", "grain", "grain_", "first_a", "grain-a"),
              ("HF", "datasets", "hf_datasets", "first_a", "hf-a"),
              ("LitData", "litdata", "litdata_", "first_a", "litdata-a"),
              ("MDS", "streaming", "mds", "first_a", "mds-a")],
}
TITLES = {
    "a_gz_dicts": "A from squirrel-core's .gz shards, dicts", "a_dicts": "A, dicts that own their arrays",
    "a_batches": "A in batches of 256", "b_dicts": "B, MessagePack text, dicts", "b_batches": "B in batches of 256",
    "b_jsonl_gz": "B, JSON lines .gz, dicts", "pack_a": "pack A from dicts, synced",
    "pack_b": "pack B from dicts, synced", "first": "process start to the first sample (seconds)",
    "memory_10gb": "10 GB in batches of 256, and shuffled: memory",
}


def python_of(env: str) -> pathlib.Path:
    return ROOT / ".venv/bin/python" if env == "ours" else ENVS / env / "bin/python"


def make_environment(env: str) -> bool:
    """Installs a contender's environment once; False when it can't be had on this machine."""
    if env == "ours":
        return python_of(env).exists()
    folder = ENVS / env
    if (folder / ".ok").exists():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {env}: {' '.join(ENVIRONMENTS[env])}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *ENVIRONMENTS[env]])
    if done.returncode:
        print(f"  {env} could not be installed: {NOTES.get(env, 'see above')}")
        return False
    (folder / ".ok").touch()
    return True


def call(env: str, script: str, function: str, folder: pathlib.Path, *more: str, tuned: bool = False) -> dict | None:
    """Runs one contender; its last line of output is JSON. None when it failed."""
    environment = {**os.environ, "BENCH_WORKS": str(WORKS), "TQDM_DISABLE": "1", "HF_DATASETS_OFFLINE": "1",
                   "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE / "peers"), **(MALLOC if tuned else {})}
    command = [str(python_of(env)), str(HERE / "peers" / f"{script}.py"), function, str(folder), *more]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        print(f"  {script}.{function}: took more than 900 s, given up")
        return None
    seconds = time.perf_counter() - start
    if done.returncode:
        print(f"  {script}.{function} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
        return None
    result = json.loads(done.stdout.strip().splitlines()[-1])
    result["process_seconds"] = seconds
    return result


def prepare() -> dict:
    WORKS.mkdir(parents=True, exist_ok=True)
    if not (WORKS / "sums.json").exists():
        make_environment("arrays")
        subprocess.run([python_of("arrays"), DATA.parent / "bench" / "prepare.py", WORKS], check=True)
    return json.loads((WORKS / "sums.json").read_text())


def make_dataset(name: str, stored: dict) -> bool:
    env, script, function = DATASETS[name]
    folder = WORKS / name
    marker = WORKS / f".{name}.json"
    if not (folder.exists() and marker.exists()):
        if not make_environment(env):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making {name}", flush=True)
        result = call(env, script, function, folder)
        if result is None:
            return False
        marker.write_text(json.dumps(result))
    stored[name] = json.loads(marker.read_text())["stored_bytes"]
    return True


def check(row: str, contender: tuple, sums: dict) -> str:
    """'' when the contender delivers exactly the work's samples, else what differs."""
    name, env, script, function, data = contender
    if row.startswith(("pack", "first", "memory")) or function.startswith("limit"):
        return ""
    got = call(env, script, function, WORKS / data, "--check")
    want = sums["A" if row.startswith("a") else "B"]
    if got is None:
        return "failed"
    if got["samples"] != want["samples"] or got["crc32_sum"] != want["crc32_sum"] \
            or (row.startswith("a") and got["label_sum"] != want["label_sum"]):
        return f"other samples than the work has: {got}"
    return ""


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def measure(row: str, contenders: list, rounds: int) -> dict:
    """{contender: {stock|tuned: {...}}} from interleaved rounds."""
    raw: dict = {}
    for number in range(rounds):
        for contender in contenders:
            name, env, script, function, data = contender
            for tuned in (False, True):
                folder = WORKS / (data or f"packed-{script}-{function}")
                result = call(env, script, function, folder, tuned=tuned)
                if result is None:
                    continue
                slot = raw.setdefault(name, {}).setdefault("tuned" if tuned else "stock", {"values": [], "peak": 0})
                slot["values"] += [result["process_seconds"]] if row == "first" else result["rates"]
                slot["peak"] = max(slot["peak"], result.get("peak_bytes", 0))
                slot["stored"] = result.get("stored_bytes", slot.get("stored"))
                if data is None:
                    shutil.rmtree(folder, ignore_errors=True)
        print(f"  {row}: round {number + 1} of {rounds}", flush=True)
    for kinds in raw.values():
        for slot in kinds.values():
            slot["median"] = statistics.median(slot["values"])
    return raw


def best_of(row: str, kinds: dict) -> float:
    """The better of stock and tuned."""
    return (min if row == "first" else max)(slot["median"] for slot in kinds.values())


def summary(results: dict) -> list[str]:
    """One line a row, as the README shows it: ours, squirrel-core, and the best of the others."""
    lines = ["| work | ours | squirrel-core | times it | best other | its figure | times it |",
             "|---|---:|---:|---:|---|---:|---:|"]
    for row, contenders in results["rows"].items():
        values = {name: best_of(row, kinds) for name, kinds in contenders.items()}
        ours, core = values.pop("ours", None), values.pop("squirrel-core", None)
        others = {n: v for n, v in values.items() if not n.startswith(("ours", "ISA-L"))}
        if ours is None or not (others or core):
            continue
        digits, ratio = (2, lambda v: v / ours) if row == "first" else (0, lambda v: ours / v)
        best = (min if row == "first" else max)(others, key=others.get) if others else None
        cells = [TITLES[row], f"{ours:,.{digits}f}"]
        cells += [f"{core:,.{digits}f}", f"{ratio(core):.1f}"] if core else ["-", "-"]
        cells += [best, f"{others[best]:,.{digits}f}", f"{ratio(others[best]):.2f}"] if best else ["-", "-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def table(results: dict) -> str:
    lines = [f"Machine: {results['machine']}.",
             f"Medians of {results['rounds']} interleaved rounds; samples/s unless said. Tuned: with",
             "MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ raised. Ratios are of the better of both.", "",
             *summary(results)]
    for row, contenders in results["rows"].items():
        lines += [f"### {TITLES[row]}", "", "| | stock | tuned | ours / this | peak MB |", "|---|---:|---:|---:|---:|"]
        best = {n: best_of(row, kinds) for n, kinds in contenders.items()}
        for name, kinds in contenders.items():
            digits = 3 if row == "first" else 0
            shown = [f"{kinds[k]['median']:,.{digits}f}" if k in kinds else "-" for k in ("stock", "tuned")]
            ratio = best.get("ours", 0) / best[name] if best[name] else 0
            peak = max(s["peak"] for s in kinds.values()) / 1e6
            lines.append(f"| {name} | {shown[0]} | {shown[1]} | {ratio:.2f} | {peak:,.0f} |")
        lines.append("")
    lines += ["### Stored bytes", "", "| data set | bytes |", "|---|---:|"]
    lines += [f"| {name} | {size:,} |" for name, size in sorted(results["stored"].items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="0: only make the data sets and check the readers")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--only", default="", help="contenders whose names contain one of these, comma-separated")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--output", default=str(HERE / "results"))
    args = parser.parse_args()
    sums = prepare()
    results: dict = {"machine": machine(), "rounds": args.rounds, "rows": {}, "stored": {}, "faults": []}
    for row in args.rows.split(","):
        usable = []
        for contender in ROWS[row]:
            name, env, _, _, data = contender
            if args.only and not any(o in name for o in args.only.split(",")):
                continue
            if not make_environment(env) or (data and not make_dataset(data, results["stored"])):
                results["faults"].append(f"{row}: {name}: not measured")
                continue
            fault = "" if args.no_check else check(row, contender, sums)
            if fault:
                results["faults"].append(f"{row}: {name}: {fault}")
                print(f"  {row}: {name}: {fault}")
            else:
                usable.append(contender)
        results["rows"][row] = measure(row, usable, args.rounds)
    text = table(results) + "".join(f"\n- {f}" for f in results["faults"])
    pathlib.Path(f"{args.output}.md").write_text(text)
    pathlib.Path(f"{args.output}.json").write_text(json.dumps(results, indent=1))
    print(text)
    return bool(results["faults"])


if __name__ == "__main__":
    sys.exit(main())
