#!/usr/bin/env python3
"""Measures catalogs beside squirrel-core, Intake 2 and PyYAML's C loader, and writes bench/catalog.md.

    bench/catalog.py [--python ours=PYTHON] [--python reference=PYTHON] [--python intake=PYTHON] [--print]

Each runs in a process of its own. CPU time, the best of several runs (one run where it takes more than a second). The
reference takes minutes at the sizes of the others: it is measured at smaller ones, which the table names.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import run as runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
ENVS = pathlib.Path(os.environ.get("BENCH_ENVS", HERE / "envs"))
# Sources of which a catalog is made; the reference's first, then everybody else's.
SIZES = {"reference": (100, 200), "others": (1000, 5000)}
PLUGINS, OF_EACH = 50, 20
SHARDS = 20


# --- what runs in the contender's own process ---


def seconds(function, runs: int = 7) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
        if best > 1:
            break
    return best


def resident_mib() -> float:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fields(name: str) -> tuple[dict, dict]:
    return ({"url": f"s3://bucket/data/{name}", "storage_options": {"anon": True}},
            {"owner": "team", "tags": ["a", "b"], "rows": 12345})


def catalog_of(prefix: str, count: int):
    from squirrel.catalog import Catalog, Source

    catalog = Catalog()
    for i in range(count):
        catalog[f"{prefix}{i}"] = Source("messagepack", *fields(f"{prefix}{i}"))
    return catalog


def yaml_file(folder: str, prefix: str, count: int) -> str:
    """Written by hand, in the form of both: making it by the reference would take longer than all else."""
    lines = ["!YamlCatalog", "version: 0.20.2", "sources:"]
    for i in range(count):
        name = f"{prefix}{i}"
        lines += ["- !YamlSource", f"  identifier: {name}", "  driver_name: messagepack", "  driver_kwargs:",
                  f"    url: s3://bucket/data/{name}", "    storage_options:", "      anon: true", "  version: 1",
                  "  metadata:", "    owner: team", "    tags:", "    - a", "    - b", "    rows: 12345"]
    path = pathlib.Path(folder, f"{prefix}{count}.yaml")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def run_squirrel(sizes: tuple[int, int]) -> dict[str, float]:
    from squirrel.catalog import Catalog

    small, large = sizes
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in sizes:
            text = pathlib.Path(yaml_file(folder, "a", count)).read_text()
            results[f"read {count}"] = seconds(lambda: Catalog.from_str(text))
        a = Catalog.from_files([yaml_file(folder, "a", large)])
        b = Catalog.from_files([yaml_file(folder, "b", large)])
        same = Catalog.from_files([yaml_file(folder, "a", large)])
    works = {"union": lambda: a.union(b), "join": lambda: a.join(b), "difference": lambda: a.difference(b),
             "intersection": lambda: a.intersection(same), "equality": lambda: a == same,
             "slice of 10": lambda: a.slice([f"a{i}" for i in range(10)])}
    for name, function in works.items():
        results[f"{name} {large}"] = seconds(function)
    results[f"union of catalogs made in Python {large}"] = min(first_union(large) for _ in range(5))
    names = [f"a{i}" for i in range(large)]

    def look_up() -> None:
        for name in names:
            a[name]

    results["first look-up of a source"] = seconds(look_up, 1) / large
    results["look-up"] = seconds(look_up) / large
    return results


def first_union(count: int) -> float:
    """Of two catalogs that nothing was done with before."""
    made, other = catalog_of("a", count), catalog_of("b", count)
    return seconds(lambda: made.union(other), 1)


def run_shards() -> dict[str, float]:
    """Elapsed time of a pass over a store whose shards take 100 ms to open."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem
    from squirrel.driver import MessagepackDriver
    from squirrel.serialization import MessagepackSerializer
    from squirrel.store import SquirrelStore

    class Late(MemoryFileSystem):
        protocol = "late"
        store: dict = {}
        pseudo_dirs = [""]

        @classmethod
        def _strip_protocol(cls, path):
            return MemoryFileSystem._strip_protocol(path.replace("late://", "memory://"))

        def _open(self, path, mode="rb", **kwargs):
            if mode == "rb":
                time.sleep(0.1)
            return super()._open(path, mode, **kwargs)

        def cat_file(self, path, start=None, end=None, **kwargs):
            with self._open(path) as file:
                return file.read()[start:end]

    fsspec.register_implementation("late", Late, clobber=True)
    store = SquirrelStore("late://shards", serializer=MessagepackSerializer())
    for i in range(SHARDS):
        store.set([{"n": 2 * i}, {"n": 2 * i + 1}], key=f"s{i:02}")
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        samples = MessagepackDriver("late://shards").get_iter(prefetch_buffer=SHARDS, max_workers=SHARDS).collect()
        best = min(best, time.perf_counter() - start)
        assert len(samples) == 2 * SHARDS
    return {f"a pass over {SHARDS} shards of 100 ms to open": best}


def memory(count: int) -> dict[str, float]:
    from squirrel.catalog import Catalog

    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(yaml_file(folder, "a", count)).read_text()
    Catalog.from_str(text[:text.index("- !YamlSource", 100)])  # what is needed once
    before = resident_mib()
    catalog = Catalog.from_str(text)
    after_reading = resident_mib() - before
    touched = sum(len(source.metadata) for _, source in catalog)
    assert touched == 3 * count
    return {f"memory read {count}": after_reading, f"memory used {count}": resident_mib() - before}


def run_plugins() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        for i in range(PLUGINS):
            info = pathlib.Path(folder, f"plug{i}-1.0.dist-info")
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plug{i}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[squirrel]\nplug{i} = plug{i}\n")
            pathlib.Path(folder, f"plug{i}.py").write_text(
                "from squirrel.catalog import CatalogKey, Source\n"
                "from squirrel.framework.plugins.hookimpl import hookimpl\n"
                "@hookimpl\ndef squirrel_sources():\n"
                f"    return [(CatalogKey(f'plug{i}-{{k}}', 1), Source('csv', {{'path': 'x'}}))\n"
                f"            for k in range({OF_EACH})]\n")
        sys.path.insert(0, folder)
        from squirrel.catalog import Catalog

        start = time.process_time()
        count = len(Catalog.from_plugins())
        first = time.process_time() - start
        assert count >= PLUGINS * OF_EACH, count
        return {"first from_plugins": first, "from_plugins": seconds(Catalog.from_plugins)}


def run_pyyaml(sizes: tuple[int, int]) -> dict[str, float]:
    import yaml

    class Loader(yaml.CSafeLoader):
        pass

    for tag in ("!YamlCatalog", "!YamlSource"):
        Loader.add_constructor(tag, lambda loader, node: loader.construct_mapping(node, deep=True))
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in sizes:
            text = pathlib.Path(yaml_file(folder, "a", count)).read_text()
            results[f"read {count}"] = seconds(lambda: yaml.load(text, Loader))
    return results


def run_intake(sizes: tuple[int, int]) -> dict[str, float]:
    from intake.readers import datatypes, readers
    from intake.readers.entry import Catalog

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in sizes:
            catalog, path = Catalog(), f"{folder}/c.yaml"
            for i in range(count):
                kwargs, metadata = fields(f"a{i}")
                data = datatypes.CSV(url=kwargs["url"], storage_options=kwargs["storage_options"])
                catalog[f"a{i}"] = readers.PandasCSV(data, metadata=metadata)
            catalog.to_yaml_file(path)
            results[f"read {count}"] = seconds(lambda: Catalog.from_yaml_file(path))
    return results


WORKERS = {"squirrel": lambda sizes: {**run_squirrel(sizes)}, "memory": lambda sizes: memory(sizes[0]),
           "plugins": lambda sizes: run_plugins(), "shards": lambda sizes: run_shards(),
            "pyyaml": run_pyyaml, "intake": run_intake}


# --- the table ---


def environment(name: str, packages: list[str]) -> str:
    """The Python of an environment below bench/envs, made on first use."""
    python = ENVS / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVS / name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return str(python)


def measure(python: str, worker: str, sizes: tuple[int, int]) -> dict[str, float]:
    done = subprocess.run([python, __file__, "--worker", worker, *map(str, sizes)], capture_output=True, text=True)
    if done.returncode:
        print(f"{worker} with {python}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def shown(row: str, value: float | None) -> str:
    if value is None:
        return ""
    if row.startswith("memory"):
        return f"{value:.1f} MiB"
    if "look-up" in row:
        return f"{value * 1e6:.2f} us"
    return f"{value * 1e3:,.0f} ms" if value >= 0.1 else f"{value * 1e3:.2f} ms"


def table(columns: dict[str, dict[str, float]], targets: dict[str, str]) -> str:
    rows: list[str] = []
    for column in columns.values():
        rows += [row for row in column if row not in rows]
    lines = ["| | " + " | ".join(columns) + " | wanted |", "|---|" + "---:|" * (len(columns) + 1)]
    for row in rows:
        values = " | ".join(shown(row, column.get(row)) for column in columns.values())
        lines.append(f"| {row} | {values} | {targets.get(row, '')} |")
    return "\n".join(lines) + "\n"


HEAD = """# Catalogs

CPU time, best of 7 (that of shards elapsed, best of 3), written by bench/catalog.py; MACHINE.
The number in a row's name is how many sources each catalog has.
squirrel-core is measured with few: its set operations copy both catalogs through YAML. PyYAML gives dictionaries only.
from_plugins: 50 plug-ins of 20 sources.

"""
TARGETS = {"read 1000": "25 ms", "read 5000": "120 ms", "look-up": "0.7 us", "memory used 10000": "30 MiB",
           "slice of 10 5000": "O(k)", f"a pass over {SHARDS} shards of 100 ms to open": "140 ms",
           **{f"{name} 5000": "5 ms" for name in ("union", "join", "difference", "intersection", "equality",
                                                  "union of catalogs made in Python")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--print", action="store_true", help="do not write bench/catalog.md")
    parser.add_argument("--worker", nargs=3)
    args = parser.parse_args()
    if args.worker:
        sizes = (int(args.worker[1]), int(args.worker[2]))
        print(json.dumps(WORKERS[args.worker[0]](sizes)))
        return
    given = dict(text.split("=", 1) for text in args.python)
    ours = given.get("ours", str(HERE.parent / ".venv/bin/python"))
    reference = given.get("reference") or environment("sqcore", ["squirrel-core==0.20.2", "numpy<2"])
    intake = given.get("intake") or environment("intake", ["intake>=2", "pyyaml"])
    memory_sizes = {"ours": (10000, 0), "squirrel-core": (1000, 0)}
    columns = {"ours": {**measure(ours, "squirrel", SIZES["others"]), **measure(ours, "memory", memory_sizes["ours"]),
                        **measure(ours, "plugins", (0, 0)), **measure(ours, "shards", (0, 0))},
               "squirrel-core": {**measure(reference, "squirrel", SIZES["reference"]),
                                 **measure(reference, "memory", memory_sizes["squirrel-core"]),
                                 **measure(reference, "plugins", (0, 0)), **measure(reference, "shards", (0, 0))},
               "Intake 2": measure(intake, "intake", SIZES["others"]),
               "PyYAML, C loader": measure(intake, "pyyaml", SIZES["others"])}
    text = HEAD.replace("MACHINE", runner.machine()) + table(columns, TARGETS)
    print(text)
    if not args.print:
        (HERE / "catalog.md").write_text(text)


if __name__ == "__main__":
    main()
