"""A driver of one's own: random walks over a graph, named in a catalog.

    python examples/python/walks_package/graph_walks.py      registered by code, see main()
    pip install examples/python/walks_package                 registered by the package's entry point
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from squirrel.catalog import Catalog, Source
from squirrel.driver import MapDriver
from squirrel.framework.plugins.hookimpl import hookimpl
from squirrel.framework.plugins.plugin_manager import register_driver


class WalkDriver(MapDriver):
    """Random walks over the graph of a file with one edge "a b" a line; a key is the node where a walk begins.

    Args:
        url: the file.
        length: nodes of a walk.
        seed: of the walks; that of a node is the same in each run.
    """

    name = "random_walks"

    def __init__(self, url: str, length: int = 5, seed: int = 0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.length, self.seed = length, seed
        self.neighbours: dict[str, list[str]] = {}
        for line in Path(url).read_text().splitlines():
            one, other = line.split()
            self.neighbours.setdefault(one, []).append(other)
            self.neighbours.setdefault(other, []).append(one)

    def keys(self) -> Iterator[str]:
        return iter(self.neighbours)

    def get(self, key: str, walks: int = 1) -> list[list[str]]:
        draw = random.Random(f"{self.seed}-{key}")
        found = []
        for _ in range(walks):
            walk = [key]
            while len(walk) < self.length:
                walk.append(draw.choice(self.neighbours[walk[-1]]))
            found.append(walk)
        return found


@hookimpl
def squirrel_drivers() -> list[type[WalkDriver]]:
    """What squirrel asks an installed plug-in."""
    return [WalkDriver]


def main() -> None:
    register_driver(WalkDriver)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ring.txt").write_text("\n".join(f"{i} {(i + 1) % 6}" for i in range(6)))
        catalog = Catalog()
        catalog["walks"] = Source("random_walks", driver_kwargs={"url": f"{folder}/ring.txt", "length": 4})
        stream = catalog["walks"].get_driver().get_iter(
            flatten=True, get_kwargs={"walks": 2}, shuffle_key_buffer=6, key_shuffle_kwargs={"seed": 1}
        )
        walks = stream.collect()
        assert walks == stream.collect() and len(walks) == 12
        for walk in walks:
            assert all(abs(int(a) - int(b)) in (1, 5) for a, b in zip(walk, walk[1:]))
            print(" - ".join(walk))


if __name__ == "__main__":
    main()
