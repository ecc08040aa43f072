#!/usr/bin/env python3
"""From a state at 50 % of an epoch to the next sample, beside StatefulDataLoader, LitData and Grain.

    bench/resume.py [--rounds 5] [--count 60000] [--folder bench/work/resume] [--python PATH]

Work A: dicts {"image": uint8[32,32,3], "label": int}, shuffled by a seed. Each contender saves its state behind half
of the samples in one process; in another one, with everything imported and the data warm, the time runs from the
state to the next sample, and that sample must be the one that would have come. torchdata goes on over a map-style
dataset of NumPy arrays in memory, with its own sampler, without workers; LitData's StreamingDataLoader and Grain's
MapDataset over the same samples in their own formats, shuffled, without workers. These two run in bench/envs (or
BENCH_ENVS), which bench/run.py fills; a row whose environment is missing is left out and named. Medians,
interleaved; CPU time beside, for
machines that are not quiet. The command prints one row a contender.
"""
from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ENVS = pathlib.Path(os.environ.get("BENCH_ENVS", HERE / "envs"))
sys.path.insert(0, str(HERE / "peers"))


def samples(count: int):
    import numpy as np

    rng = np.random.default_rng(0)
    for i in range(count):
        yield {"image": rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), "label": i}


class Ours:
    def __init__(self, folder: str, count: int) -> None:
        import squirrel

        if not os.path.exists(folder):
            squirrel.pack(samples(count), folder, codec="none", progress=False)
        self.stream = squirrel.open(folder).shuffle_all(seed=1).distribute(0, 1)
        next(self.stream.iterator())  # warm

    def begin(self, state):
        return self.stream.iterator(state=state)

    def state(self, iterator):
        return iterator.state_dict()


class OursMixed(Ours):
    """A mix of two streams over the same data, each with half of the weight."""

    def __init__(self, folder: str, count: int) -> None:
        import squirrel

        super().__init__(folder, count)
        self.stream = squirrel.mix([self.stream, squirrel.open(folder).shuffle_all(seed=2).distribute(0, 1)], seed=3)


class Torchdata:
    def __init__(self, folder: str, count: int) -> None:
        import torch
        from torchdata.stateful_dataloader import StatefulDataLoader

        rows = list(samples(count))

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return len(rows)

            def __getitem__(self, i):
                return rows[i]

        self.make = lambda: StatefulDataLoader(Rows(), batch_size=None, shuffle=True,
                                               generator=torch.Generator().manual_seed(1))

    def begin(self, state):
        self.loader = self.make()
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def state(self, iterator):
        return self.loader.state_dict()


class LitData:
    def __init__(self, folder: str, count: int) -> None:
        import litdata_

        self.folder = f"{folder}-litdata"
        if not os.path.exists(self.folder):
            litdata_._write(samples(count), self.folder)
        self.loader = None
        next(self.begin(None))  # warm

    def begin(self, state):
        from litdata import StreamingDataLoader, StreamingDataset

        self.loader = StreamingDataLoader(StreamingDataset(self.folder, shuffle=True, seed=1), batch_size=1)
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def state(self, iterator):
        return self.loader.state_dict()


class Grain:
    def __init__(self, folder: str, count: int) -> None:
        import grain
        import grain_
        import numpy as np

        def parse(record):
            image, label = pickle.loads(record)
            return {"image": np.frombuffer(image, np.uint8).reshape(32, 32, 3).copy(), "label": label}

        self.folder = f"{folder}-grain"
        if not os.path.exists(self.folder):
            grain_._write(samples(count), self.folder)
        source = grain.sources.ArrayRecordDataSource(f"{self.folder}/a.array_record")
        self.make = lambda: iter(grain.MapDataset.source(source).shuffle(seed=1).map(parse).to_iter_dataset())
        next(self.make())  # warm

    def begin(self, state):
        iterator = self.make()
        if state is not None:
            iterator.set_state(state)
        return iterator

    def state(self, iterator):
        return iterator.get_state()


CONTENDERS = {"ours": Ours, "ours, a mix of two": OursMixed, "torchdata StatefulDataLoader": Torchdata,
              "LitData": LitData, "Grain": Grain}
OWN_ENVIRONMENT = {"LitData": "litdata", "Grain": "grain"}


def measure(name: str, folder: str, count: int) -> None:
    contender = CONTENDERS[name](f"{folder}/a-{count}", count)
    saved = pathlib.Path(folder) / f"{name.replace(' ', '-')}-{count}.state"
    if not saved.exists():  # of a process of its own: the first round's
        iterator = contender.begin(None)
        for _ in itertools.islice(iterator, count // 2):
            pass
        state = contender.state(iterator)
        saved.write_bytes(pickle.dumps((state, int(next(iterator)["label"]))))
        print(json.dumps(None))
        return
    state, wanted = pickle.loads(saved.read_bytes())
    wall, cpu = time.perf_counter(), time.process_time()
    got = int(next(contender.begin(state))["label"])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if got != wanted:
        sys.exit(f"{name} went on with sample {got} instead of {wanted}")
    print(json.dumps({"ms": 1000 * wall, "cpu_ms": 1000 * cpu, "bytes": len(pickle.dumps(state))}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--folder", default=str(HERE / "work" / "resume"))
    parser.add_argument("--python", default=str(HERE.parent / ".venv/bin/python"), help="that has all of them")
    parser.add_argument("--measure", metavar="CONTENDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure(args.measure, args.folder, args.count)
    os.makedirs(args.folder, exist_ok=True)
    rows: dict[str, list] = {}
    missing: set[str] = set()
    for _ in range(args.rounds + 1):
        for name in CONTENDERS:
            python = args.python
            if name in OWN_ENVIRONMENT:
                python = str(ENVS / OWN_ENVIRONMENT[name] / "bin" / "python")
            if not os.path.exists(python):
                missing.add(f"{name}: not measured, there is no {python}")
                continue
            command = [python, "-W", "ignore", __file__, "--folder", args.folder, "--count", str(args.count)]
            done = subprocess.run([*command, "--measure", name], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr}")
            row = json.loads(done.stdout.splitlines()[-1])
            rows.setdefault(name, []).extend([row] if row else [])
    print(f"{'contender':30} {'ms':>8} {'CPU ms':>8} {'bytes':>8}")
    for name, runs in rows.items():
        print(f"{name:30} " + " ".join(f"{statistics.median(r[key] for r in runs):8,.1f}"
                                       for key in ("ms", "cpu_ms", "bytes")))
    print(*sorted(missing), sep="\n", end="\n" if missing else "")


if __name__ == "__main__":
    main()
