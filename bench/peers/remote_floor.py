"""The floors of bench/remote.py: 16 parallel ranged GETs of 4 MiB over all files, by curl and by obstore."""
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import remote_common

PARALLEL = 16
RANGE = 4 << 20


def ranges(place):
    """(name, begin, end) of all files."""
    return [(name, at, min(at + RANGE, size)) for name, size in place.files for at in range(0, size, RANGE)]


def curl(place):
    """16 processes of curl, each with its part of the ranges over one connection."""
    parts = [ranges(place)[i::PARALLEL] for i in range(PARALLEL)]
    program, running = shutil.which("curl"), []
    for part in filter(None, parts):
        config = "\nnext\n".join(
            f'url="{place.url}/{n}"\nrange={b}-{e - 1}\noutput=/dev/null\nsilent\nfail' for n, b, e in part)
        process = subprocess.Popen([program, "--noproxy", "*", "--config", "-"], stdin=subprocess.PIPE, text=True)
        process.stdin.write(config)
        process.stdin.close()
        running.append(process)
    if any([process.wait() for process in running]):
        raise RuntimeError("curl failed")
    return {}


def obstore(place):
    import obstore as obs
    from obstore.store import HTTPStore

    store = HTTPStore.from_url(place.url, client_options={"allow_http": True})
    with ThreadPoolExecutor(PARALLEL) as pool:
        sizes = pool.map(lambda r: len(obs.get_range(store, r[0], start=r[1], end=r[2])), ranges(place))
        if sum(sizes) != sum(size for _, size in place.files):
            raise RuntimeError("obstore gave other sizes")
    return {}


if __name__ == "__main__":
    import sys

    remote_common.main(globals(), *(["obstore"] if sys.argv[1] == "obstore" else []))
