"""squirrel-core 0.20.2 with s3fs (and isal), as it is and with its reads forced into 16 threads."""
from concurrent.futures import ThreadPoolExecutor

import remote_common

PARALLEL = 16


def make_photos(folder):
    store = _store(folder)
    for number, samples in remote_common.in_shards(folder):
        store.set(samples, key=f"{number:05d}")


def _store(url):
    from squirrel.serialization import MessagepackSerializer
    from squirrel.store import SquirrelStore

    return SquirrelStore(url, serializer=MessagepackSerializer())


def read(place):
    """Its driver with its defaults, which would also shuffle: that is left out."""
    from squirrel.driver import MessagepackDriver

    return MessagepackDriver(place.s3).get_iter(shuffle_item_buffer=1, shuffle_key_buffer=1)


def read_threads(place):
    """Its shards are generators, read by whoever consumes them: here each is read whole in one of 16 threads."""
    store = _store(place.s3)
    keys = [name.removesuffix(".gz") for name, _ in place.files]
    with ThreadPoolExecutor(PARALLEL) as pool:
        for shard in pool.map(lambda key: list(store.get(key)), keys):
            yield from shard


if __name__ == "__main__":
    remote_common.main(globals(), "squirrel.driver", "squirrel.serialization", "squirrel.store", "s3fs")
