#!/usr/bin/env python3
"""Two steps of a pipeline that know nothing of each other but a catalog: one YAML file goes from one to the next.

    pipeline_steps.py prepare TEXTS FOLDER CATALOG.yaml     packs lines of text and names what it made
    pipeline_steps.py count CATALOG.yaml                    reads what the catalog names

Each run of the first step adds a version; the second takes the latest, or one that is pinned: CATALOG.yaml#words@1.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import squirrel
from squirrel.catalog import Catalog, Source


def prepare(texts: str, folder: str, catalog_file: str) -> None:
    catalog = Catalog.from_files([catalog_file]) if Path(catalog_file).exists() else Catalog()
    version = catalog["words"].version + 1 if "words" in catalog else 1
    url = Path(folder) / f"words-{version}"
    lines = Path(texts).read_text().splitlines()
    squirrel.pack(({"line": i, "words": line.split()} for i, line in enumerate(lines)), url)
    catalog["words", version] = Source("sqrl", driver_kwargs={"url": str(url)}, metadata={"lines": len(lines)})
    catalog.to_file(catalog_file)
    print(f"words@{version}: {len(lines)} lines")


def count(reference: str) -> None:
    catalog_file, _, version = reference.partition("#words@")
    source = Catalog.from_files([catalog_file])["words", int(version or -1)]
    counts: Counter[str] = Counter()
    read = 0
    for sample in source.get_driver().get_iter():
        counts.update(sample["words"])
        read += 1
    if read != source.metadata["lines"]:
        sys.exit(f"the catalog promises {source.metadata['lines']} lines, {read} are there")
    for word, times in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(times, word)


if __name__ == "__main__":
    steps = {"prepare": (prepare, 3), "count": (count, 1)}
    step, wanted = steps.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if step is None or len(sys.argv) != wanted + 2:
        sys.exit(__doc__)
    step(*sys.argv[2:])
