"""The reference's side of the tests: runs in squirrel-core's own Python.

    peer.py write FORMAT DIRECTORY SET     squirrel-core's store writes the samples, in shards of 10
    peer.py check FORMAT DIRECTORY SET     squirrel-core's driver reads; exits with what differs
    peer.py count FORMAT DIRECTORY         how many samples its driver gives
    peer.py catalog-write FILE             Catalog.to_file
    peer.py catalog-check FILE             Catalog.from_files; exits with what differs
    peer.py catalog-dump FILE              Catalog.from_files, as JSON
"""

from __future__ import annotations

import json
import sys

from catalogs import SOURCES
from samples import SETS, all_differences, as_read
from squirrel.catalog import Catalog, Source
from squirrel.driver import JsonlDriver, MessagepackDriver
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import SquirrelStore

SERIALIZERS = {"messagepack": MessagepackSerializer, "jsonl": JsonSerializer}
DRIVERS = {"messagepack": MessagepackDriver, "jsonl": JsonlDriver}


def write(name: str, directory: str, samples: str) -> None:
    store = SquirrelStore(directory, serializer=SERIALIZERS[name]())
    values = SETS[samples]()
    for i in range(0, len(values), 10):
        store.set(values[i : i + 10], key=f"shard-{i // 10:03d}")


def read(name: str, directory: str) -> list:
    driver = DRIVERS[name](directory)
    return driver.get_iter(keys_iterable=sorted(driver.keys())).collect()


def check(name: str, directory: str, samples: str) -> None:
    sys.exit(all_differences(read(name, directory), as_read(samples)))


def count(name: str, directory: str) -> None:
    print(len(read(name, directory)))


def catalog_write(path: str) -> None:
    catalog = Catalog()
    for name, version, driver, kwargs, metadata in SOURCES:
        catalog[name][version] = Source(driver, driver_kwargs=kwargs, metadata=metadata)
    catalog.to_file(path)


def rows(path: str) -> list[tuple]:
    catalog = Catalog.from_files([path])
    return [(name, source.version, source.driver_name, source.driver_kwargs, source.metadata)
            for name in catalog.keys() for source in catalog[name]]


def catalog_check(path: str) -> None:
    sys.exit(all_differences([plain(row) for row in rows(path)], [plain(row) for row in SOURCES]))


def catalog_dump(path: str) -> None:
    json.dump([plain(row) for row in rows(path)], sys.stdout)


def plain(value: object) -> object:
    """ruamel's own kinds of dict, list, str and int as Python's."""
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
