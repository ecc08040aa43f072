#!/usr/bin/env python3
"""Measures what a stage of a Python stream costs, beside itertools, toolz, squirrel-core, torchdata, Grain and Hugging
Face, and writes bench/iterstream.md.

    bench/iterstream.py [--rounds 3] [--only ours,itertools] [--python NAME=PYTHON ...] [--print]

Every contender runs in its own environment (bench/envs, made on first use) and process, in turn, round after round.
Million items a second of CPU time, the median of the rounds; the callables do next to nothing, so that the stage shows.
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

import run as runner

HERE = pathlib.Path(__file__).resolve().parent
# contender: (its environment, what pip installs there)
CONTENDERS = {
    "ours": ("ours", []), "plain generator": ("ours", []), "itertools": ("ours", []),
    "toolz": ("toolz", ["toolz"]),
    "squirrel-core": ("sqcore", runner.ENVIRONMENTS["sqcore"]),
    "torchdata": ("torchdata", ["torchdata>=0.10", "torch==2.13.0", "numpy"]),
    "Hugging Face": ("datasets", runner.ENVIRONMENTS["datasets"]),
    "Grain": ("grain", runner.ENVIRONMENTS["grain"]),
}
PIPELINE = "map, filter, batched(100)"


def plus(x: int) -> int:
    return x + 1


def even(x: int) -> bool:
    return x % 2 == 0


def drain(items) -> None:
    for _ in items:
        pass


# --- what runs in the contender's own process: {work: (items, function)} ---


def works_ours() -> dict:
    from squirrel.iterstream import IterableSource, Multiplexer, MultiplexingStrategy

    def source(n: int):
        return IterableSource(range(n))

    def mixed(n: int):
        return Multiplexer([source(n), source(n)], MultiplexingStrategy.SAMPLING, [0.5, 0.5], seed=1)

    return {
        PIPELINE: (2_000_000, lambda n: source(n).map(plus).filter(even).batched(100)),
        "map": (2_000_000, lambda n: source(n).map(plus)),
        "filter": (2_000_000, lambda n: source(n).filter(even)),
        "batched(100)": (2_000_000, lambda n: source(n).batched(100)),
        "flatten": (2_000_000, lambda n: IterableSource([range(100)] * (n // 100)).flatten()),
        "zip_index": (1_000_000, lambda n: source(n).zip_index()),
        "sliding(3)": (200_000, lambda n: source(n).sliding(3, deepcopy=False)),
        "take": (2_000_000, lambda n: source(n).take(n)),
        "shuffle(10_000)": (500_000, lambda n: source(n).shuffle(10_000, seed=1)),
        "monitor": (100_000, lambda n: source(n).monitor(lambda metrics: None)),
        "async_map": (50_000, lambda n: source(n).async_map(plus)),
        "Multiplexer, SAMPLING": (100_000, lambda n: mixed(n // 2)),
        **works_generator_names(source),
    }


def works_generator_names(source) -> dict:
    """The stages that are measured beside a plain generator alone."""
    from squirrel.iterstream import Multiplexer, MultiplexingStrategy

    turns = MultiplexingStrategy.ROUND_ROBIN
    return {
        "loop(10)": (1_000_000, lambda n: source(n // 10).loop(10)),
        "join": (500_000, lambda n: joining(source(n))),
        "tqdm": (500_000, lambda n: source(n).tqdm(disable=True)),
        "to(generator)": (1_000_000, lambda n: source(n).to(each)),
        "skip_k behind a split": (1_000_000, lambda n: source(n).split_by_worker_pytorch()),
        "Multiplexer, ROUND_ROBIN": (200_000, lambda n: Multiplexer([source(n // 2), source(n // 2)], turns)),
    }


def joining(stream):
    """join() passes through the stream by itself."""
    stream.join()
    return ()


def each(items):
    yield from items


def works_generator() -> dict:
    """Each stage as one would write it, as a plain Python generator."""
    import random
    import time as clock
    from collections import deque

    def mapped(n: int):
        for x in range(n):
            yield plus(x)

    def filtered(n: int):
        for x in range(n):
            if even(x):
                yield x

    def batched(items, size: int = 100):
        batch = []
        for x in items:
            batch.append(x)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def flattened(n: int):
        for part in [range(100)] * (n // 100):
            yield from part

    def indexed(n: int):
        i = 0
        for x in range(n):
            yield i, x
            i += 1

    def sliding(n: int, size: int = 3):
        window = deque(maxlen=size)
        for x in range(n):
            window.append(x)
            if len(window) == size:
                yield list(window)

    def taken(n: int):
        left = n
        for x in range(n):
            if not left:
                return
            left -= 1
            yield x

    def shuffled(n: int, size: int = 10_000):
        rng, buffer = random.Random(1), []
        for x in range(n):
            if len(buffer) < size:
                buffer.append(x)
                continue
            at = rng.randrange(size)
            yield buffer[at]
            buffer[at] = x
        rng.shuffle(buffer)
        yield from buffer

    def monitored(n: int, callback=lambda metrics: None, window: int = 5):
        times = deque(maxlen=window)
        for x in range(n):
            times.append(clock.perf_counter())
            yield x
            if len(times) == window:
                callback({"items/s": (window - 1) / (times[-1] - times[0])})

    def looped(n: int):
        for _ in range(10):
            for x in range(n // 10):
                yield x

    def in_turn(n: int):
        counts, sources = [0, 0], [(0, iter(range(n // 2))), (1, iter(range(n // 2)))]
        while sources:
            for i, one in list(sources):
                try:
                    item = next(one)
                except StopIteration:
                    sources = [(k, s) for k, s in sources if k != i]
                    continue
                counts[i] += 1  # Multiplexer.num_samples
                yield item

    def drawn(n: int):
        rng, sources = random.Random(1), [iter(range(n // 2)), iter(range(n // 2))]
        while sources:
            one = rng.choice(sources)
            try:
                yield next(one)
            except StopIteration:
                sources.remove(one)

    def passed(n: int):
        for x in range(n):
            yield x

    def bar(n: int):
        from tqdm.auto import tqdm

        yield from tqdm(range(n), disable=True)

    def future(n: int):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor() as pool:
            waiting = deque()
            for x in range(n):
                waiting.append(pool.submit(plus, x))
                if len(waiting) == 100:
                    yield waiting.popleft().result()
            for one in waiting:
                yield one.result()

    return {
        PIPELINE: (2_000_000, lambda n: batched(x for x in mapped(n) if even(x))),
        "map": (2_000_000, mapped), "filter": (2_000_000, filtered),
        "batched(100)": (2_000_000, lambda n: batched(range(n))), "flatten": (2_000_000, flattened),
        "zip_index": (1_000_000, indexed), "sliding(3)": (200_000, sliding), "take": (2_000_000, taken),
        "shuffle(10_000)": (500_000, shuffled), "monitor": (100_000, monitored), "async_map": (50_000, future),
        "Multiplexer, SAMPLING": (100_000, drawn), "loop(10)": (1_000_000, looped),
        "join": (500_000, lambda n: [drain(passed(n))]), "tqdm": (500_000, bar),
        "to(generator)": (1_000_000, lambda n: each(iter(range(n)))),
        "skip_k behind a split": (1_000_000, passed), "Multiplexer, ROUND_ROBIN": (200_000, in_turn),
    }


def works_itertools() -> dict:
    """Builtins, where there are any."""
    import itertools

    def batched(items, size: int):
        while batch := list(itertools.islice(items, size)):
            yield batch

    return {
        PIPELINE: (2_000_000, lambda n: batched(filter(even, map(plus, range(n))), 100)),
        "map": (2_000_000, lambda n: map(plus, range(n))),
        "filter": (2_000_000, lambda n: filter(even, range(n))),
        "batched(100)": (2_000_000, lambda n: batched(iter(range(n)), 100)),
        "flatten": (2_000_000, lambda n: itertools.chain.from_iterable([range(100)] * (n // 100))),
        "zip_index": (1_000_000, lambda n: enumerate(range(n))),
        "take": (2_000_000, lambda n: itertools.islice(range(n), n)),
    }


def works_toolz() -> dict:
    import toolz

    return {PIPELINE: (2_000_000, lambda n: toolz.partition_all(100, filter(even, map(plus, range(n)))))}


def works_torchdata() -> dict:
    import warnings

    warnings.simplefilter("ignore")
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper

    def pipeline(n: int):
        # It has no filter: the mapped items go into batches as they are.
        return Loader(Batcher(Mapper(IterableWrapper(range(n)), plus), 100))

    return {PIPELINE: (200_000, pipeline)}


def works_hf() -> dict:
    from datasets import IterableDataset

    def rows(n: int):
        for x in range(n):
            yield {"x": x}

    def pipeline(n: int):
        data = IterableDataset.from_generator(rows, gen_kwargs={"n": n})
        return data.map(lambda row: {"x": row["x"] + 1}).filter(lambda row: row["x"] % 2 == 0).batch(100)

    return {PIPELINE: (50_000, pipeline)}


def works_grain() -> dict:
    import grain

    def pipeline(n: int):
        return grain.MapDataset.range(n).to_iter_dataset().map(plus).filter(even).batch(100)

    return {PIPELINE: (50_000, pipeline)}


WORKS = {"ours": works_ours, "plain generator": works_generator, "squirrel-core": works_ours,
         "itertools": works_itertools, "toolz": works_toolz, "torchdata": works_torchdata,
         "Hugging Face": works_hf, "Grain": works_grain}


def contend(name: str) -> dict[str, float]:
    """Million items a second of each work."""
    found = {}
    for work, (count, function) in WORKS[name]().items():
        drain(function(max(count // 20, 100)))
        start = time.process_time()
        drain(function(count))
        found[work] = count / (time.process_time() - start) / 1e6
    return found


# --- what starts them ---


def run_one(python: str, name: str) -> dict[str, float] | None:
    done = subprocess.run([python, __file__, "--contender", name], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{name}: not measured: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def table(results: dict[str, list[dict[str, float]]]) -> str:
    names = [name for name in CONTENDERS if results.get(name)]
    works = list(dict.fromkeys(work for name in names for work in results[name][0]))
    lines = ["| work | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    for work in works:
        cells = []
        for name in names:
            values = [r[work] for r in results[name] if work in r]
            cells.append(f"{statistics.median(values):.2f}" if values else "")
        lines.append(f"| {work} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="contenders, divided by commas")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PYTHON", help="instead of bench/envs")
    parser.add_argument("--print", action="store_true", help="don't write iterstream.md")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        print(json.dumps(contend(arguments.contender)))
        return 0
    given = dict(pair.split("=", 1) for pair in arguments.python)
    chosen = arguments.only.split(",") if arguments.only else list(CONTENDERS)
    pythons = {}
    for name in chosen:
        env, packages = CONTENDERS[name]
        runner.ENVIRONMENTS.setdefault(env, packages)
        if name in given or env == "ours" or runner.make_environment(env):
            pythons[name] = given.get(name, str(runner.python_of(env)))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for _ in range(arguments.rounds):
        for name, python in pythons.items():
            measured = run_one(python, name)
            if measured is not None:
                results[name].append(measured)
    text = table(results)
    print(text)
    if not arguments.print:
        head = ("# Stages of Python streams\n\nMillion items a second of CPU time, medians of "
                f"{arguments.rounds} interleaved rounds; {runner.machine()}. `bench/iterstream.py` measures again.\n\n"
                "torchdata's pipeline has no filter. Hugging Face's items are dicts. \"Plain generator\" is the "
                "stage as one would write it in Python;\n"
                "tqdm is measured without its bar, splits in a process alone.\n\n")
        (HERE / "iterstream.md").write_text(head + text + "\n")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    sys.exit(main())
