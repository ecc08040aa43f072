"""Which rank and worker this process is, as torch knows it."""

from __future__ import annotations

import sys

__all__ = ["topology"]


def topology() -> dict[str, int]:
    """rank, world_size, worker, workers: those that torch knows; it is never imported for this.

    torch.distributed where a process group is there, get_worker_info() in a DataLoader's worker.
    """
    torch = sys.modules.get("torch")
    found: dict[str, int] = {}
    if torch is None:
        return found
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found["rank"] = distributed.get_rank()
        found["world_size"] = distributed.get_world_size()
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    if info is not None:
        found["worker"] = info.id
        found["workers"] = info.num_workers
    return found
