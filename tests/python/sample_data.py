"""Samples that many tests use."""

from __future__ import annotations

import numpy as np


def image_samples(count: int) -> list[dict[str, object]]:
    """Small images that all differ, with labels and texts."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return [
        {"image": images[i], "label": i, "text": f"sample {i}", "score": i / 4} for i in range(count)
    ]
