"""What an order of samples is worth: Kendall's tau, displacement, how mixed batches are.

    from squirrel.benchmark.shuffle_quality import buffer_order, measure, stream_order

    measure(*stream_order(squirrel.open("data").shuffle_all(seed=1)))
    measure(*buffer_order(num_shard=100, shard_size=1000, size=1000, initial=100))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from squirrel import _native

if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

    import numpy as np

    from squirrel.stream import Stream

    Positions = np.ndarray[Any, np.dtype[np.uint64]]
    Groups = np.ndarray[Any, np.dtype[np.uint32]]

__all__ = ["Quality", "buffer_order", "kendall_tau", "measure", "plot", "stream_order"]


@dataclass(frozen=True)
class Quality:
    """Figures of one order. Of a perfect shuffle: tau 0, mean_displacement 1/3, the groups of a
    batch as random_batch_groups says, its entropy nearly the whole's.

    Attributes:
        tau: Kendall's tau of the order and the source's own: 1 for not shuffled at all.
        mean_displacement: how far samples are from where they were, as a part of the whole.
        max_displacement: that of the sample that is farthest.
        batch_groups: different groups (shards) in a batch, on average over whole batches.
        random_batch_groups: what batches drawn at random would have.
        batch_entropy: of the groups' shares in a batch, in bits, on average.
        whole_entropy: of their shares in the whole.
        batches: whole batches.
    """

    tau: float
    mean_displacement: float
    max_displacement: float
    batch_groups: float
    random_batch_groups: float
    batch_entropy: float
    whole_entropy: float
    batches: int


def measure(order: Any, groups: Any = None, batch_size: int = 256) -> Quality:
    """The figures of an order.

    Args:
        order: int[n], the position in the source of each sample in the order of delivery.
        groups: int[n], what each sample belongs to (its shard), from 0 on; None: all are one group.
        batch_size: samples of a batch.
    """
    import numpy as np

    order = np.ascontiguousarray(order, np.uint64)
    groups = np.zeros(len(order), np.uint32) if groups is None else np.ascontiguousarray(groups, np.uint32)
    return Quality(*_native.order_quality(order, groups, batch_size))


def kendall_tau(one: Any, other: Any) -> float:
    """Kendall's tau-b of two arrays int[n] of values from 0 on, as scipy.stats.kendalltau has it."""
    import numpy as np

    return _native.kendall_tau(np.ascontiguousarray(one, np.uint64), np.ascontiguousarray(other, np.uint64))


def stream_order(stream: Stream) -> tuple[Positions, Groups]:
    """Positions and shards of a native stream's samples in the order of delivery: all are read."""
    import numpy as np

    firsts = np.cumsum([0] + [shard["samples"] or 0 for shard in stream.shards], dtype=np.uint64)
    places = [batch.places for batch in stream.batch(4096)]
    both = np.concatenate([np.zeros((0, 2), np.uint64), *places])
    return firsts[both[:, 0].astype(np.int64)] + both[:, 1], both[:, 0].astype(np.uint32)


def buffer_order(
    num_shard: int, shard_size: int, size: int, initial: int, seed: int = 0, shuffle_shards: bool = True
) -> tuple[Positions, Groups]:
    """The order that ``shuffle(size, initial=initial)`` makes of shards in random order.

    Args:
        num_shard: number of shards.
        shard_size: samples in each.
        size: of the buffer; below 2: none.
        initial: samples in it before the first comes out.
        seed: of both orders.
        shuffle_shards: whether the shards themselves come in random order.
    """
    import numpy as np

    from squirrel.iterstream import IterableSource

    shards = np.arange(num_shard)
    if shuffle_shards:
        shards = np.random.default_rng(seed).permutation(num_shard)
    samples = (shards[:, None] * shard_size + np.arange(shard_size)).ravel().tolist()
    stream = IterableSource(samples).shuffle(size, initial=initial, seed=seed)
    order = np.fromiter(stream, np.uint64, len(samples))
    return order, (order // np.uint64(shard_size)).astype(np.uint32)


def plot(order: Any, path: str | PathLike[str], title: str = "") -> None:
    """Draws position in the source against position in the stream, by matplotlib (at most 50,000 dots).

    Args:
        order: int[n] as for :func:`measure`.
        path: of the picture; its ending says which format.
        title: over the picture.
    """
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("plot() draws with the package matplotlib: pip install matplotlib") from error
    import numpy as np

    order = np.asarray(order)
    step = max(1, len(order) // 50_000)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(0, len(order), step), order[::step], ",")
    axes.set(xlabel="position in the stream", ylabel="position in the source", title=title)
    figure.savefig(path)
