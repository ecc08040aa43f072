"""What tests and fixtures share: samples, and a stand-in for torch."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Tuple
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from unittest.mock import MagicMock

    from squirrel.constants import SampleType

SHAPE = Tuple[int, int, int]

__all__ = ["SHAPE", "create_torch_mock", "get_sample"]


def get_sample(array_shape: SHAPE) -> SampleType:
    """A random sample: a key (str), an image (float64[array_shape]) and a label (0 or 1)."""
    return {
        "key": f"_{np.random.randint(1, 10_000)}",
        "image": np.random.random(array_shape),
        "label": int(np.random.randint(0, 2)),
    }


def create_torch_mock(t_worker: tuple[int, int], t_world: tuple[int, int]) -> MagicMock:
    """Something that answers for torch.

    Args:
        t_worker: number of this DataLoader worker, and how many there are.
        t_world: this rank, and how many there are.
    """
    workerinfo = collections.namedtuple("workerinfo", ["id", "num_workers"])
    torch = mock.MagicMock()
    torch.utils.data.get_worker_info.return_value = workerinfo(*t_worker)
    torch.distributed.is_available.return_value = True
    torch.distributed.is_initialized.return_value = True
    torch.distributed.get_rank.return_value = t_world[0]
    torch.distributed.get_world_size.return_value = t_world[1]
    return torch
