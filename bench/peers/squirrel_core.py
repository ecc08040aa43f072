"""squirrel-core 0.20.2, stock or with the package isal installed (its environment decides)."""
import common


def _shards(samples, folder, serializer, size=1000):
    from squirrel.store import SquirrelStore

    store = SquirrelStore(folder, serializer=serializer)
    for at in range(0, len(samples), size):
        store.set(samples[at:at + size], key=f"{at // size:05d}")


def _msgpack():
    from squirrel.serialization import MessagepackSerializer

    return MessagepackSerializer()


def _jsonl():
    from squirrel.serialization import JsonSerializer

    return JsonSerializer()


def make_a_gz(folder):
    _shards(common.work_a_samples(), folder, _msgpack())


def make_b_gz(folder):
    _shards(common.work_b_samples(), folder, _msgpack())


def make_b_jsonl(folder):
    _shards(common.work_b_samples(), folder, _jsonl(), 10_000)


def read_msgpack(folder):
    from squirrel.driver import MessagepackDriver

    return MessagepackDriver(folder).get_iter(shuffle_item_buffer=1, shuffle_key_buffer=1)


def read_jsonl(folder):
    from squirrel.driver import JsonlDriver

    return JsonlDriver(folder).get_iter(shuffle_item_buffer=1, shuffle_key_buffer=1)


def pack_a(samples, folder):
    _shards(samples, folder, _msgpack())
    common.sync_folder(folder)


def pack_b(samples, folder):
    _shards(samples, folder, _msgpack())
    common.sync_folder(folder)


def first_a(folder):
    next(iter(read_msgpack(folder)))


def limit_inflate(folder):
    """Not a loader: what ISA-L's inflate alone gives for these files, on two cores (two processes).
    Counts the samples that the inflated bytes hold."""
    import glob
    import multiprocessing

    files = sorted(glob.glob(f"{folder}/*.gz"))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(_inflate, files[:2])
        import time

        start = time.perf_counter()
        pool.map(_inflate, files, chunksize=5)
        seconds = time.perf_counter() - start
    return seconds


def _inflate(path):
    from isal import igzip_lib

    with open(path, "rb") as f:
        return len(igzip_lib.decompress(f.read(), flag=igzip_lib.DECOMP_GZIP))


if __name__ == "__main__":
    import sys

    if sys.argv[1] == "limit_inflate":
        import json

        print(json.dumps(dict(samples=60000, rates=[60000 / limit_inflate(sys.argv[2]) for _ in range(3)])))
    else:
        common.main(globals())
