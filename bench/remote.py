#!/usr/bin/env python3
"""Measures reading through a slow link beside the peers, and writes bench/remote.md and bench/remote.json.

    bench/remote.py [--rounds 3] [--megabytes 1000] [--shards 8,64] [--only ours,curl]

A web server on the loopback (tests/support/fault_server.c) takes 30 ms to the first byte and gives 40 MB/s a
connection, 400 MB/s in all. Every contender reads the same samples (bytes of photo size, in its own format) once a
round, cold, in its own environment (bench/envs) and process, in turn. Requests and bytes are the server's count. The
floors are 16 parallel ranged GETs of 4 MiB over the files of our shards.

Peers that speak S3 only (MosaicML, LitData, s3torchconnector, squirrel-core with s3fs) are not measured here: the
server does not speak it.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import run

HERE = run.HERE
sys.path.insert(0, str(run.ROOT / "tests" / "support"))
LINK = {"latency_ms": 30, "per_connection": 40_000_000, "total": 400_000_000}

run.ENVIRONMENTS.update({
    "remote-core": ["squirrel-core==0.20.2", "numpy<2", "aiohttp", "isal"],
    "remote-webdataset": ["webdataset", "numpy", "torch==2.13.0"],
    "remote-hf": ["datasets", "numpy", "aiohttp"],
    "remote-obstore": ["obstore"],
})
# data set: (environment, function, suffix of its files)
DATASETS = {"ours": ("ours", "make_ours", ".sqrl"), "core": ("remote-core", "make_core", ".gz"),
            "webdataset": ("remote-webdataset", "make_webdataset", ".tar"), "hf": ("remote-hf", "make_hf", ".parquet")}
# contender: (environment, function, data set)
CONTENDERS = {
    "floor: curl, 16 ranged GETs": ("ours", "curl", "ours"),
    "floor: obstore, 16 ranged GETs": ("remote-obstore", "obstore", "ours"),
    "ours": ("ours", "ours_dicts", "ours"), "ours, shuffle_all": ("ours", "ours_shuffled", "ours"),
    "ours, squirrel-core's shards": ("ours", "ours_store", "core"),
    "squirrel-core over http": ("remote-core", "squirrel_core", "core"),
    "squirrel-core, 16 threads": ("remote-core", "squirrel_core_threads", "core"),
    "webdataset, 8 processes": ("remote-webdataset", "webdataset", "webdataset"),
    "Hugging Face datasets": ("remote-hf", "hf", "hf"),
}


def peer(env: str, *args: str) -> dict | None:
    """One contender's JSON line; None when it failed."""
    environment = {**os.environ, "HF_DATASETS_OFFLINE": "0", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1",
                   "no_proxy": "127.0.0.1"}
    command = [str(run.python_of(env)), str(HERE / "peers" / "remote_.py"), *args]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        print(f"  {args[0]}: took more than 900 s, given up")
        return None
    if done.returncode:
        print(f"  {args[0]} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def make(data: str, shard: int, megabytes: int) -> pathlib.Path | None:
    env, function, suffix = DATASETS[data]
    folder = run.WORKS / f"remote-{data}-{shard}-{megabytes}"
    marker = folder.with_suffix(".json")
    if not marker.exists():
        run.WORKS.mkdir(parents=True, exist_ok=True)
        print(f"making {folder.name}", flush=True)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        if peer(env, function, str(folder), str(megabytes * 1_000_000 // 110_000), str(shard * 1_000_000)) is None:
            return None
        files = sorted((p.name, p.stat().st_size) for p in folder.iterdir() if p.name.endswith(suffix))
        marker.write_text(json.dumps(files))
    return folder


def measure(name: str, folder: pathlib.Path, server) -> dict | None:
    env, function, _ = CONTENDERS[name]
    server.reset()
    result = peer(env, function, f"{server.url}/{folder.name}", str(folder.with_suffix(".json")))
    if result is not None:
        counters = server.counters()
        size = sum(size for _, size in json.loads(folder.with_suffix(".json").read_text()))
        result["requests"], result["link_bytes"] = counters["requests"], counters["bytes"]
        result["share"] = size / result["seconds"] / LINK["total"]  # of what there is to read, not of what was fetched
    return result


def table(results: dict) -> str:
    lines = ["# Reading through a slow link", "", __doc__.split("\n\n")[2].replace("\n", " "), "",
             f"Machine: {results['machine']}. {results['rounds']} interleaved rounds, medians; "
             f"{results['megabytes']} MB.", ""]
    for shard, rows in results["shards"].items():
        floor = max((r["share"] for n, r in rows.items() if n.startswith("floor")), default=0)
        lines += [f"### Shards of {shard} MB", "",
                  "| | share of the link | of the floor | requests | MB fetched | CPU s/GB | peak MB |",
                  "|---|---:|---:|---:|---:|---:|---:|"]
        for name, r in rows.items():
            of_floor = f"{r['share'] / floor:.0%}" if floor else "-"
            gigabytes = r["link_bytes"] / 1e9
            cells = [name, f"{r['share']:.0%}", of_floor, f"{r['requests']:,.0f}", f"{r['link_bytes'] / 1e6:,.0f}",
                     f"{r['cpu_seconds'] / gigabytes:.2f}", f"{r['peak_bytes'] / 1e6:,.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, *(f"- {fault}" for fault in results["faults"])]) + "\n"


def main() -> int:
    from fault_server import FaultServer, compiled

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--shards", default="8,64", help="sizes in MB")
    parser.add_argument("--only", default="", help="contenders whose names contain one of these, comma-separated")
    parser.add_argument("--output", default=str(HERE / "remote"))
    args = parser.parse_args()
    results: dict = {"machine": run.machine(), "rounds": args.rounds, "megabytes": args.megabytes, "shards": {},
                     "faults": []}
    run.WORKS.mkdir(parents=True, exist_ok=True)
    program = compiled(run.WORKS)
    if program is None:
        print("no C compiler for the server")
        return 1
    with FaultServer(program, run.WORKS, **LINK) as server:
        for shard in (int(s) for s in args.shards.split(",")):
            raw: dict = {}
            folders = {}
            for name, (env, _, data) in CONTENDERS.items():
                if args.only and not any(o in name for o in args.only.split(",")):
                    continue
                usable = run.make_environment(env) and run.make_environment(DATASETS[data][0])
                folders[name] = make(data, shard, args.megabytes) if usable else None
                if folders[name] is None:
                    results["faults"].append(f"{shard} MB: {name}: not measured")
            for number in range(args.rounds):
                for name, folder in folders.items():
                    found = measure(name, folder, server) if folder else None
                    if found:
                        raw.setdefault(name, []).append(found)
                print(f"  shards of {shard} MB: round {number + 1} of {args.rounds}", flush=True)
            keys = ("share", "requests", "link_bytes", "cpu_seconds", "peak_bytes", "seconds")
            results["shards"][shard] = {
                name: {key: statistics.median(r[key] for r in rounds) for key in keys} for name, rounds in raw.items()}
    text = table(results)
    pathlib.Path(f"{args.output}.md").write_text(text)
    pathlib.Path(f"{args.output}.json").write_text(json.dumps(results, indent=1))
    print(text)
    return bool(results["faults"])


if __name__ == "__main__":
    sys.exit(main())
