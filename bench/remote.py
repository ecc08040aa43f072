#!/usr/bin/env python3
"""Measures reading through a slow link beside the peers, and writes bench/remote.md and bench/remote.json.

    bench/remote.py [--rounds 2] [--rows photos_8,a] [--only ours,curl] [--no-check]

A server on the loopback (tests/support/fault_server.c; it answers HTTP and unsigned S3) takes 30 ms to the first byte
and gives 40 MB/s a connection, 400 MB/s in all. Every contender reads cold, in its own process and environment
(bench/envs), in turn, round after round; then once more with malloc tuned. Whoever is slow is measured by what it
delivered in the first 6 seconds. The floor is the faster of 16 parallel ranged GETs of 4 MiB by curl and by obstore.

Photos are random bytes of photo size, 800 MB (or BENCH_PHOTO_MEGABYTES), in shards of 8 and of 64 MB; works A and B are
those of bench/run.py.
Before it is measured, each reader must deliver exactly the samples of the work (remembered in the works' folder).
"""
from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

import run

HERE = run.HERE
sys.path.insert(0, str(run.ROOT / "tests" / "support"))
from fault_server import FaultServer, compiled  # noqa: E402

LINK = {"latency_ms": 30, "per_connection": 40_000_000, "total": 400_000_000}
OPEN_LINK = {"latency_ms": 0, "per_connection": 0, "total": 0}
LIMIT_SECONDS = 6
PHOTOS = int(os.environ.get("BENCH_PHOTO_MEGABYTES", "800")) * 1_000_000 // 110_000  # how many

run.ENVIRONMENTS.update({
    "remote-core": ["squirrel-core==0.20.2", "numpy<2", "isal", "s3fs"],
    "remote-floor": ["obstore"],
    "remote-torch": ["webdataset", "s3torchconnector", "numpy", "torch==2.13.0"],
    "remote-litdata": ["litdata", "torch==2.13.0", "numpy", "boto3", "obstore"],
    "remote-hf": ["datasets", "numpy", "aiohttp", "torch==2.13.0"],
})
PEERS = {  # kind of data set: (environment, script, suffix of its files)
    "ours": ("ours", "remote_ours", ".sqrl"), "core": ("remote-core", "remote_core", ".gz"),
    "wds": ("remote-torch", "remote_webdataset", ".tar"), "mds": ("streaming", "remote_mds", ".mds"),
    "litdata": ("remote-litdata", "remote_litdata", ".bin"), "hf": ("remote-hf", "remote_hf", ".parquet"),
}
SUFFIXES = {"ours-a": ".sqrl", "ours-b": ".sqrl", "sqcore-a": ".gz", "sqcore-b": ".gz", "wds-a": ".tar",
            "mds-a": ".mds", "litdata-a": ".bin", "hf-parquet-a": ".parquet"}
run.DATASETS["hf-parquet-a"] = ("remote-hf", "remote_hf", "make_a")
for _kind, (_env, _script, _suffix) in PEERS.items():
    for _shard in (8, 64):
        run.DATASETS[f"photos-{_kind}-{_shard}-{PHOTOS}"] = (_env, _script, "make_photos")
        SUFFIXES[f"photos-{_kind}-{_shard}-{PHOTOS}"] = _suffix

CURL = ("floor: curl, 16 ranged GETs", "ours", "remote_floor", "curl")
OBSTORE = ("floor: obstore, 16 ranged GETs", "remote-floor", "remote_floor", "obstore")
OURS, CORE = ("ours", "remote_ours"), ("remote-core", "remote_core")
TORCH, MDS = "remote-torch", ("MosaicML streaming", "streaming", "remote_mds", "read")
LITDATA = ("LitData", "remote-litdata", "remote_litdata", "read")


def photos(shard: int) -> list:
    """[(contender, environment, script, function, data set)]"""
    of = {kind: f"photos-{kind}-{shard}-{PHOTOS}" for kind in PEERS}
    return [
        (*CURL, of["ours"]), (*OBSTORE, of["ours"]),
        ("ours", *OURS, "read_views", of["ours"]), ("ours, by S3", *OURS, "read_views_s3", of["ours"]),
        ("ours, shuffle_all", *OURS, "read_shuffled_views", of["ours"]),
        ("squirrel-core + s3fs", *CORE, "read", of["core"]),
        ("squirrel-core + s3fs, 16 threads", *CORE, "read_threads", of["core"]),
        ("webdataset, 8 processes", TORCH, "remote_webdataset", "read_photos", of["wds"]),
        ("s3torchconnector, 8 processes", TORCH, "remote_s3torch", "read_photos", of["wds"]),
        (*MDS, of["mds"]), (*LITDATA, of["litdata"]),
        ("Hugging Face datasets", "remote-hf", "remote_hf", "read_photos", of["hf"]),
    ]


ROWS = {
    "photos_8": photos(8), "photos_64": photos(64),
    "a": [
        (*CURL, "ours-a"), (*OBSTORE, "ours-a"), ("ours", *OURS, "read_dicts", "ours-a"),
        ("ours, batches of 256", *OURS, "read_batches", "ours-a"),
        ("ours, shuffle_all, batches of 256", *OURS, "read_shuffled_batches", "ours-a"),
        ("webdataset, 8 processes", TORCH, "remote_webdataset", "read_a", "wds-a"),
        ("s3torchconnector, 8 processes", TORCH, "remote_s3torch", "read_a", "wds-a"),
        (*MDS, "mds-a"), (*LITDATA, "litdata-a"),
        ("Hugging Face datasets, raw Arrow", "remote-hf", "remote_hf", "read_a", "hf-parquet-a"),
    ],
    "a_gz": [
        (*CURL, "sqcore-a"), (*OBSTORE, "sqcore-a"), ("ours", *OURS, "read_store_s3", "sqcore-a"),
        ("ours, by http, sizes unknown", *OURS, "read_store", "sqcore-a"),
        ("squirrel-core + s3fs", *CORE, "read", "sqcore-a"),
        ("squirrel-core + s3fs, 16 threads", *CORE, "read_threads", "sqcore-a"),
    ],
    "b": [
        (*CURL, "ours-b"), (*OBSTORE, "ours-b"), ("ours", *OURS, "read_dicts", "ours-b"),
        ("ours, from the local disk", *OURS, "read_local", "ours-b"),
        ("squirrel-core + s3fs", *CORE, "read", "sqcore-b"),
        ("squirrel-core + s3fs, 16 threads", *CORE, "read_threads", "sqcore-b"),
    ],
}
TITLES = {
    "photos_8": "Photos in shards of 8 MB, bytes only", "photos_64": "Photos in shards of 64 MB, bytes only",
    "a": "Work A, decoded to dicts or batches", "a_gz": "Work A from squirrel-core's .gz shards",
    "b": "Work B, text, dicts",
}


# --- data sets and readers ---


def work_of(row: str, sums: dict) -> dict:
    return sums["photos" if row.startswith("photos") else "B" if row == "b" else "A"]


def all_sums() -> dict:
    """run.prepare()'s, and those of the photos."""
    sums, kept = run.prepare(), run.WORKS / f"photos-{PHOTOS}.json"
    if not kept.exists():
        done = subprocess.run([sys.executable, HERE / "peers" / "remote_common.py", str(PHOTOS)], check=True,
                              capture_output=True, text=True)
        kept.write_text(done.stdout)
    return sums | {"photos": json.loads(kept.read_text())}


def place_of(data: str, samples: int, server: FaultServer) -> pathlib.Path:
    """The description of a data set for remote_common.Place."""
    folder, suffix = run.WORKS / data, SUFFIXES[data]
    files = sorted((str(p.relative_to(folder)), p.stat().st_size) for p in folder.rglob(f"*{suffix}"))
    path = run.WORKS / f"place-{data}.json"
    path.write_text(json.dumps({"endpoint": server.url, "bucket": data, "prefix": "", "files": files,
                                "folder": str(folder), "samples": samples}))
    return path


def call(contender: tuple, place: pathlib.Path, server: FaultServer, *more: str, tuned: bool = False) -> dict | None:
    _, env, script, function, _ = contender
    with environment(AWS_ENDPOINT_URL=server.url, AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none",
                     AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true",
                     NO_PROXY="127.0.0.1", no_proxy="127.0.0.1"):
        return run.call(env, script, function, place, *more, tuned=tuned)


@contextlib.contextmanager
def environment(**variables: str):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def check(row: str, contender: tuple, place: pathlib.Path, sums: dict, server: FaultServer) -> str:
    """'' when it delivers exactly the work's samples, else what differs. What was right is remembered until a script
    changes."""
    name, _, script, function, _ = contender
    if name.startswith("floor"):
        return ""
    scripts = [HERE / "peers" / f"{s}.py" for s in (script, "remote_common", "common")]
    version = hashlib.sha256(b"".join(p.read_bytes() for p in scripts)).hexdigest()
    marker = run.WORKS / f".checked-{row}-{script}-{function}"
    if marker.exists() and marker.read_text() == version:
        return ""
    server.set(**OPEN_LINK)
    got, want = call(contender, place, server, "--check"), work_of(row, sums)
    server.set(**LINK)
    if got is None:
        return "failed"
    keys = ("samples", "crc32_sum") if row == "b" else ("samples", "crc32_sum", "label_sum")
    if any(got[key] != want[key] for key in keys):
        return f"other samples than the work has: {got}"
    marker.write_text(version)
    return ""


def usable_of(row: str, only: str, no_check: bool, sums: dict, server: FaultServer, results: dict) -> list:
    """[(contender, place)] of those whose environment, data set and samples are as they should be."""
    usable = []
    for contender in ROWS[row]:
        name, env, _, _, data = contender
        if only and not any(o in name for o in only.split(",")):
            continue
        if not run.make_environment(env) or not run.make_dataset(data, {}):
            results["faults"].append(f"{row}: {name}: not measured")
            continue
        place = place_of(data, work_of(row, sums)["samples"], server)
        fault = "" if no_check else check(row, contender, place, sums, server)
        if fault:
            results["faults"].append(f"{row}: {name}: {fault}")
            print(f"  {row}: {name}: {fault}", flush=True)
        else:
            usable.append((contender, place))
    return usable


# --- measuring ---


def measure_one(contender: tuple, place: pathlib.Path, server: FaultServer, tuned: bool) -> dict | None:
    server.reset()
    result = call(contender, place, server, "--limit", str(LIMIT_SECONDS), tuned=tuned)
    if result is None:
        return None
    counters, described = server.counters(), json.loads(place.read_text())
    size = sum(size for _, size in described["files"])
    part = result["samples"] / described["samples"]
    fetched = counters["bytes"] or size  # a local reader fetches nothing
    return {"rate": result["samples"] / result["seconds"], "share": part * size / result["seconds"] / LINK["total"],
            "requests": counters["requests"], "fetched": counters["bytes"], "peak": result["peak_bytes"],
            "cpu": result["cpu_seconds"] / (fetched / 1e9)}


def measure(row: str, usable: list, rounds: int, server: FaultServer) -> dict:
    """{contender: {stock: {...}, tuned: {...}}}: medians."""
    raw: dict = {}
    for number in range(rounds + 1):
        kind = "tuned" if number == rounds else "stock"
        for contender, place in usable:
            found = measure_one(contender, place, server, kind == "tuned")
            if found:
                raw.setdefault(contender[0], {}).setdefault(kind, []).append(found)
        print(f"  {row}: round {number + 1} of {rounds + 1}", flush=True)
    return {name: {kind: {key: statistics.median(r[key] for r in found) for key in found[0]}
                   for kind, found in kinds.items()} for name, kinds in raw.items()}


def table_of(row: str, found: dict) -> list[str]:
    best = {name: max(kinds.values(), key=lambda k: k["rate"]) for name, kinds in found.items()}
    floor = max((b["rate"] for name, b in best.items() if name.startswith("floor")), default=0)
    ours = best.get("ours", {}).get("rate", 0)
    lines = [f"### {TITLES[row]}", "",
             "| | samples/s | tuned | ours / this | of the floor | of the link | requests | MB fetched | CPU s/GB "
             "| peak MB |",
             "|---|" + "---:|" * 9]
    for name, kinds in found.items():
        b = best[name]
        rates = [f"{kinds[kind]['rate']:,.0f}" if kind in kinds else "-" for kind in ("stock", "tuned")]
        cells = [name, *rates, f"{ours / b['rate']:.2f}", f"{b['rate'] / floor:.0%}" if floor else "-",
                 f"{b['share']:.0%}", f"{b['requests']:,.0f}", f"{b['fetched'] / 1e6:,.0f}", f"{b['cpu']:.2f}",
                 f"{b['peak'] / 1e6:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def text_of(results: dict) -> str:
    about = " ".join(" ".join(__doc__.split("\n\n")[2:]).split())
    lines = ["# Reading through a slow link", "", about, "",
             f"Machine: {results['machine']}. Medians of {results['rounds']} interleaved rounds; \"tuned\": one round "
             "with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ raised. Ratios and the columns behind them are of "
             "the better of both. CPU time is that of reading, workers included, per GB fetched.", ""]
    for row, found in results["rows"].items():
        lines += table_of(row, found)
    return "\n".join([*lines, *(f"- {fault}" for fault in results["faults"])]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="0: only make the data sets and check the readers")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--only", default="", help="contenders whose names contain one of these, comma-separated")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--output", default=str(HERE / "remote"))
    args = parser.parse_args()
    sums = all_sums()
    program = compiled(run.WORKS)
    if program is None:
        print("no C compiler for the server")
        return 1
    results: dict = {"machine": run.machine(), "rounds": args.rounds, "rows": {}, "faults": []}
    with FaultServer(program, run.WORKS, store=1, **LINK) as server:
        for row in args.rows.split(","):
            usable = usable_of(row, args.only, args.no_check, sums, server, results)
            if args.rounds > 0:
                results["rows"][row] = measure(row, usable, args.rounds, server)
    text = text_of(results)
    pathlib.Path(f"{args.output}.md").write_text(text)
    pathlib.Path(f"{args.output}.json").write_text(json.dumps(results, indent=1))
    print(text)
    return bool(results["faults"])


if __name__ == "__main__":
    sys.exit(main())
