"""The stages of a driver's stream: keys in one order for all workers, and shards that follow one another."""

from __future__ import annotations

import itertools
import os
import sys

from squirrel.iterstream.base import Composable, Run, _Stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["SharedShuffle", "Shards"]


class SharedShuffle(_Stage):
    """An unseeded shuffle whose copies agree: in each pass, all workers of a process shuffle alike.

    If each worker shuffled for itself, the hooks that give each its part would divide different orders:
    some keys would come twice and others never.
    """

    def __init__(self, source: Composable, size: int, shuffling: dict[str, Any]) -> None:
        super().__init__(source)
        self.size = size
        self.shuffling = {k: v for k, v in shuffling.items() if k not in ("seed", "rng")}
        self.drawn = int.from_bytes(os.urandom(8), "little")  # goes with the copies that workers get
        self.passes = 0
        self.call = f"shuffle({size})"

    def _start(self, run: Run) -> Iterator[Any]:
        _refuse_ranks()
        seed = f"{self.drawn}-{_epoch_of_loader()}-{self.passes}"
        self.passes += 1
        shuffled = self.source.shuffle(size=self.size, seed=seed, **self.shuffling)
        return shuffled._start(run)  # type: ignore[no-any-return]


def _epoch_of_loader() -> int:
    """What a DataLoader draws for each epoch and tells all its workers; 0 elsewhere."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return 0 if info is None else int(info.seed) - int(info.id)


def _refuse_ranks() -> None:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    ranks = distributed.get_world_size()
    if ranks > 1:
        from squirrel.framework.exceptions import PyTorchSplittingException

        raise PyTorchSplittingException(
            f"the keys are shuffled without a seed in front of key_hooks, in {ranks} ranks: each would shuffle for "
            "itself, and samples would be lost and repeated. Give all ranks one seed, another one each epoch: "
            'key_shuffle_kwargs={"seed": epoch}'
        )


class Shards(_Stage):
    """The samples of one shard after another; errors name the shard and sample in use."""

    call = "flatten()"

    def _start(self, run: Run) -> Iterator[Any]:
        return self._guard(itertools.chain.from_iterable(self._shards(run)), run)

    def _shards(self, run: Run) -> Iterator[Any]:
        for shard in self._upstream(run):
            run.native = shard if hasattr(shard, "place") else None
            yield shard
