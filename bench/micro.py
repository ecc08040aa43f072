#!/usr/bin/env python3
"""One core, in C: MessagePack and JSON to the tape beside msgpack-c, simdjson and CPython's json, and how far each is
from memory bandwidth. Builds with -Dbench=true, runs every program ROUNDS times in turn and prints a table of medians.

    bench/micro.py [--rounds 3] [--output bench/micro.md]
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("SQRL_TEST_DATA", ROOT.parent / "shared" / "data"))
BUILD = ROOT / "build-bench"


def build() -> None:
    tools = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", BUILD, "-Dbuildtype=release", "-Dbench=true", "-Dtests=false"], cwd=ROOT,
                       env=tools, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, "--quiet"], env=tools, check=True)


def run(program: str, *args: str) -> list[dict]:
    path = BUILD / "bench" / program
    if not path.exists():
        return []
    done = subprocess.run([path, *args], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cpython_json(path: str) -> float:
    """GB/s of json.loads on one document (JSON lines: line by line)."""
    data = pathlib.Path(path).read_bytes()
    parts = data.splitlines() if path.endswith(".ndjson") else [data]
    best, repeats = float("inf"), max(1, 2_000_000 // len(data))
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            for part in parts:
                json.loads(part)
        best = min(best, (time.perf_counter() - start) / repeats)
    return len(data) / best / 1e9


def median(rows: list[dict], key: str) -> float:
    values = [row[key] for row in rows if key in row]
    return statistics.median(values) if values else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default=str(ROOT / "bench" / "micro.md"))
    args = parser.parse_args()
    build()
    documents = sorted(glob.glob(f"{DATA}/tabular/json/*.json"))
    msgpack: dict[str, list[dict]] = {}
    documents_rows: dict[str, list[dict]] = {}
    for _ in range(args.rounds):
        for row in run("bench_msgpack_decode"):
            msgpack.setdefault(row["work"], []).append(row)
        for program in ("bench_json_decode", "bench_json_simdjson"):
            for row in run(program, *documents):
                documents_rows.setdefault(row["document"], []).append(row)
    lines = ["### MessagePack to tape, one core", "",
             "| records | ns each | GB/s | memcpy GB/s | times msgpack-c |", "|---|---:|---:|---:|---:|"]
    for work, rows in msgpack.items():
        lines.append(f"| {work} | {median(rows, 'ns_per_record'):.0f} | {median(rows, 'gb_per_s'):.2f} | "
                     f"{median(rows, 'memcpy_gb_per_s'):.0f} | {median(rows, 'times_msgpack_c'):.1f} |")
    lines += ["", "Records with large binaries exceed memcpy because nothing is copied.", "",
              "### JSON to tape, one core", "",
              "| document | GB/s | simdjson DOM | share of it | CPython json | times it | memcpy GB/s |",
              "|---|---:|---:|---:|---:|---:|---:|"]
    for path, rows in documents_rows.items():
        ours, theirs = median(rows, "sqrl_gb_s"), median(rows, "simdjson_gb_s")
        python = cpython_json(path) if os.path.exists(path) else float("nan")
        lines.append(f"| {os.path.basename(path)} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.0%} | {python:.3f} | "
                     f"{ours / python:.0f} | {median(rows, 'memcpy_gb_s'):.0f} |")
    text = "\n".join(lines) + "\n"
    pathlib.Path(args.output).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
