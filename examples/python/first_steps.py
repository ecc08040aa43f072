"""First steps: pack samples, look at them, stream them shuffled and in batches, mix in Python functions.

    python examples/python/first_steps.py [FOLDER]
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import numpy as np

import squirrel


def make_samples(count: int):
    """Small images with a bright square each; the label says in which quarter it is."""
    draw = np.random.default_rng(0)
    for i in range(count):
        image = draw.integers(0, 60, (32, 32), dtype=np.uint8)
        quarter = i % 4
        y, x = 16 * (quarter // 2), 16 * (quarter % 2)
        image[y + 4:y + 12, x + 4:x + 12] = 255
        yield {"image": image, "label": quarter, "name": f"square-{i}", "meta": {"size": 8}}


def brightness(sample: dict) -> dict:
    """A step in Python: adds a field."""
    return {**sample, "brightness": float(sample["image"].mean())}


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else temporary) / "squares"

        report = squirrel.pack(make_samples(2000), folder, samples_per_shard=500, overwrite=True)
        print(f"packed {report.samples} samples into {report.shards} shards of {report.file_bytes / 1e6:.1f} MB in all")

        stream = squirrel.open(folder)
        print(stream, len(stream), "samples:", {f["name"]: f["type"] for f in stream.schema})

        # Samples are dicts; arrays own their bytes.
        for sample in stream.filter('label == 2 and name endswith "6"').take(2):
            print(sample["name"], sample["image"].shape, sample["meta"])

        # Batches are dicts of arrays: [n, 32, 32], [n]; strings have offsets.
        batch = next(iter(stream.shuffle_all(seed=1).batch(256)))
        print({name: getattr(column, "shape", column) for name, column in batch.items()})

        # Python functions: one after another, or several at a time. Behind them batch() collates in Python.
        bright = stream.parallel_map(brightness, workers=2).filter(lambda s: s["brightness"] > 40).batch(100)
        print(bright)
        print(f"mean brightness {np.concatenate([b['brightness'] for b in bright]).mean():.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
