"""The stages of a driver's stream: keys in one order for all workers, and shards that follow one another."""

from __future__ import annotations

import itertools
import sys

from squirrel.iterstream.base import Run
from squirrel.iterstream.split import refusal, share, splitting_exception
from squirrel.iterstream.stages import Shuffle, Stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from typing import Any

__all__ = ["HookedShuffle", "Shards", "own_hooks"]


class HookedShuffle(Shuffle):
    """A shuffle of keys in front of the user's hooks, which may give each worker or rank its part.

    The splits of iterstream take care of themselves. A hook of the user's own tells nobody what it does, so the
    workers of a DataLoader share one seed in any case, and ranks, which can't agree on one, are refused.
    """

    def __init__(
        self, source: Any, size: int = 1000, *, initial: int = 100, rng: random.Random | None = None, seed: Any = None
    ) -> None:
        super().__init__(source, size, min(initial, size), rng, seed)
        self.passes = 0

    def _start(self, run: Run) -> Iterator[Any]:
        if self._unseeded() == "pass" and run.shared is None:
            if _ranks() > 1:
                raise splitting_exception()(refusal(self, "key_hooks"))
            data = sys.modules.get("torch.utils.data")
            worker = data.get_worker_info() if data is not None else None
            if worker is not None:
                share(run, worker, self.passes)
                self.passes += 1
        return super()._start(run)


def _ranks() -> int:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


class Shards(Stage):
    """The samples of one shard after another; errors name the shard and sample in use."""

    _call = "flatten()"
    _sets_place = True

    def _start(self, run: Run) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._shards(run))

    def _shards(self, run: Run) -> Iterator[Any]:
        for shard in self._upstream(run):
            run.native = shard if hasattr(shard, "place") else None
            yield shard


def own_hooks(hooks: list[Any]) -> bool:
    """Whether a hook is the user's: all but iterstream's splits."""
    modules = (getattr(getattr(hook, "func", hook), "__module__", None) or "" for hook in hooks)
    return not all(module.startswith("squirrel.iterstream") for module in modules)
