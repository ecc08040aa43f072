"""How random the order of samples is that shuffle buffers give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable

import numpy as np

from squirrel.driver.driver import MapDriver

if TYPE_CHECKING:
    from typing import Any

    from squirrel.constants import SeedType
    from squirrel.iterstream.base import Composable

__all__ = ["DummyShardedDriver", "kendalltau_metric", "quantify_randomness"]


class DummyShardedDriver(MapDriver):
    """Integers in shards: shard k holds k * shard_size to (k + 1) * shard_size - 1.

    Args:
        num_shard: number of shards.
        shard_size: integers in each.
    """

    name = "dummy_sharded_driver"

    def __init__(self, num_shard: int, shard_size: int) -> None:
        super().__init__()
        self.num_shard = num_shard
        self.shard_size = shard_size
        self.data = np.arange(num_shard * shard_size)

    def keys(self, **kwargs: Any) -> Iterable[str]:
        """The shards' numbers, as texts."""
        return map(str, range(self.num_shard))

    def get(self, key: str, **kwargs: Any) -> Iterable[int]:
        """The integers of a shard."""
        first = int(key) * self.shard_size
        return self.data[first : first + self.shard_size]

    def get_iter(self, flatten: bool = True, **kwargs: Any) -> Composable:
        """A stream of the integers, see :meth:`MapDriver.get_iter`."""
        return super().get_iter(flatten=flatten, **kwargs)


def kendalltau_metric(result1: np.array, result2: np.array) -> float:  # type: ignore[valid-type]
    """Kendall's tau of two sequences: 1 for equal orders, -1 for opposite ones, 0 for unrelated ones.

    M. G. Kendall, "A new measure of rank correlation", Biometrika 30 (1938).
    """
    from scipy.stats import kendalltau

    return float(kendalltau(result1, result2)[0])


def quantify_randomness(
    num_shard: int,
    shard_size: int,
    buffer_size: int,
    initial: int,
    n_samples: int = 250,
    metric: Callable[..., float] = kendalltau_metric,
    seed1: SeedType = None,
    seed2: SeedType = None,
) -> float:
    """How alike two passes are whose keys are shuffled completely and whose samples pass a shuffle buffer.

    The median over pairs of passes; where both have a seed, all pairs are alike and one is looked at.

    Args:
        num_shard: number of shards.
        shard_size: samples in each.
        buffer_size: of the shuffle buffer.
        initial: samples in the buffer before the first comes out.
        n_samples: pairs of passes.
        metric: of the two passes' samples (arrays int[num_shard * shard_size]).
        seed1: of the first pass.
        seed2: of the second pass.

    Returns:
        The median's absolute value: with the default metric 1 for equal passes, 0 for unrelated ones.
    """
    driver = DummyShardedDriver(num_shard, shard_size)
    pairs = n_samples if seed1 is None or seed2 is None else min(n_samples, 1)
    found = [metric(*(_order(driver, seed, buffer_size, initial) for seed in (seed1, seed2))) for _ in range(pairs)]
    return np.abs(np.median(found))  # type: ignore[no-any-return]


def _order(driver: DummyShardedDriver, seed: SeedType, buffer_size: int, initial: int) -> np.ndarray[Any, Any]:
    stream = driver.get_iter(
        shuffle_key_buffer=driver.num_shard,
        key_shuffle_kwargs={"seed": seed},
        shuffle_item_buffer=buffer_size,
        item_shuffle_kwargs={"seed": seed, "initial": initial},
    )
    return np.fromiter(stream, int)
