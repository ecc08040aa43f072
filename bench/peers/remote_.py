"""Contenders of bench/remote.py: read a data set through a slow link, once, cold.

    python peers/remote_.py FUNCTION URL FILES.json      prints one JSON line: samples, bytes, seconds, cpu_seconds
"""
from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PARALLEL = 16
RANGE = 4 << 20


def ranges(files):
    """(name, begin, end) of 4 MiB each, as all of the floors ask for them."""
    return [(name, at, min(at + RANGE, size)) for name, size in files for at in range(0, size, RANGE)]


def curl(url, files):
    """16 processes of curl, each with its part of the ranges over one connection."""
    parts = [ranges(files)[i::PARALLEL] for i in range(PARALLEL)]
    running = []
    for part in filter(None, parts):
        config = "\nnext\n".join(
            f'url="{url}/{n}"\nrange={b}-{e - 1}\noutput=/dev/null\nsilent\nfail' for n, b, e in part
        )
        process = subprocess.Popen(["curl", "--noproxy", "*", "--config", "-"], stdin=subprocess.PIPE, text=True)
        process.stdin.write(config)
        process.stdin.close()
        running.append(process)
    if any([process.wait() for process in running]):
        raise RuntimeError("curl failed")
    return None, sum(size for _, size in files)


def obstore(url, files):
    from obstore.store import HTTPStore

    import obstore as obs

    store = HTTPStore.from_url(url, client_options={"allow_http": True})
    with ThreadPoolExecutor(PARALLEL) as pool:
        sizes = pool.map(lambda r: len(obs.get_range(store, r[0], start=r[1], end=r[2])), ranges(files))
        return None, sum(sizes)


def _ours(stream):
    count = sum(len(batch) if hasattr(batch, "columns") else 1 for batch in stream)
    return count, None


def ours_dicts(url, files):
    import squirrel

    return _ours(squirrel.open(url).iterator(copy=False))


def ours_shuffled(url, files):
    import squirrel

    return _ours(squirrel.open(url).shuffle_all(seed=1).iterator(copy=False))


def ours_store(url, files):
    import squirrel

    keys = ",".join(name for name, _ in files)
    return _ours(squirrel.open(url, keys=keys))


def _core(url, files, map_shards):
    from squirrel.serialization import MessagepackSerializer
    from squirrel.store import SquirrelStore

    store = SquirrelStore(url, serializer=MessagepackSerializer())
    keys = [name.removesuffix(".gz") for name, _ in files]
    return sum(len(shard) for shard in map_shards(lambda key: list(store.get(key)), keys)), None


def squirrel_core(url, files):
    return _core(url, files, map)


def squirrel_core_threads(url, files):
    with ThreadPoolExecutor(PARALLEL) as pool:
        return _core(url, files, pool.map)


def webdataset(url, files):
    import webdataset

    urls = [f"pipe:curl -s --noproxy '*' {url}/{name}" for name, _ in files]
    data = webdataset.WebDataset(urls, shardshuffle=False)
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=8)
    return sum(1 for _ in loader), None


def hf(url, files):
    import datasets

    rows = datasets.load_dataset("parquet", data_files=[f"{url}/{n}" for n, _ in files], split="train", streaming=True)
    return sum(1 for _ in rows), None


# --- making data sets: samples {"id": int, "x": bytes} of photo size ---


def photos(count):
    import random

    draw = random.Random(7)
    for i in range(count):
        yield {"id": i, "x": draw.randbytes(90_000 + draw.randrange(40_000))}


def make_ours(folder, count, shard_bytes):
    import squirrel

    squirrel.pack(photos(count), folder, codec="none", samples_per_shard=max(1, shard_bytes // 110_000))


def make_core(folder, count, shard_bytes):
    from squirrel.serialization import MessagepackSerializer
    from squirrel.store import SquirrelStore

    store, each = SquirrelStore(folder, serializer=MessagepackSerializer()), max(1, shard_bytes // 110_000)
    samples = list(photos(count))
    for at in range(0, count, each):
        store.set(samples[at : at + each], key=f"{at // each:05d}")


def make_webdataset(folder, count, shard_bytes):
    import os

    import webdataset

    os.makedirs(folder, exist_ok=True)
    with webdataset.ShardWriter(f"{folder}/%05d.tar", maxsize=shard_bytes, maxcount=1 << 30) as sink:
        for sample in photos(count):
            sink.write({"__key__": f"{sample['id']:08d}", "bin": sample["x"]})


def make_hf(folder, count, shard_bytes):
    import os

    import datasets

    os.makedirs(folder, exist_ok=True)
    each, samples = max(1, shard_bytes // 110_000), list(photos(count))
    for at in range(0, count, each):
        datasets.Dataset.from_list(samples[at : at + each]).to_parquet(f"{folder}/{at // each:05d}.parquet")


def main():
    function, target = globals()[sys.argv[1]], sys.argv[2]
    if sys.argv[1].startswith("make_"):
        function(target, int(sys.argv[3]), int(sys.argv[4]))
        print("{}")
        return
    with open(sys.argv[3]) as listing:
        files = json.load(listing)
    begin = time.perf_counter()
    samples, size = function(target, files)
    seconds = time.perf_counter() - begin
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(u.ru_utime + u.ru_stime for u in usage)
    peak = usage[0].ru_maxrss * 1024
    print(json.dumps(dict(samples=samples, bytes=size, seconds=seconds, cpu_seconds=cpu, peak_bytes=peak)))


if __name__ == "__main__":
    main()
