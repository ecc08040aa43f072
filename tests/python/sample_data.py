"""Samples that many tests use."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re

import numpy as np
import pytest


def image_samples(count: int) -> list[dict[str, object]]:
    """Small images that all differ, with labels and texts."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return [
        {"image": images[i], "label": i, "text": f"sample {i}", "score": i / 4} for i in range(count)
    ]


def skip_unless_packages_can_be_built() -> None:
    """pip makes a wheel of a folder without a download: setuptools does it alone since 70.1, before by wheel."""
    for needed in ("pip", "setuptools", "pluggy"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    numbers = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("setuptools"))[:2])
    if numbers < (70, 1) and importlib.util.find_spec("wheel") is None:
        pytest.skip("setuptools before 70.1 needs the package wheel, which is not installed")
