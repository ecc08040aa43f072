"""The stages as plain functions of an iterable: each returns an iterator."""

from __future__ import annotations

import itertools
import random
from collections import deque

from squirrel import _native
from squirrel.iterstream.metrics import MetricsConf, unit_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

__all__ = [
    "batched_",
    "dask_delayed_",
    "filter_",
    "flatten_",
    "get_random_range",
    "getsize",
    "map_",
    "monitor_",
    "shuffle_",
    "take_",
    "tqdm_",
]


def map_(iterable: Iterable[Any], callback: Callable[[Any], Any]) -> Iterator[Any]:
    """Each item becomes ``callback(item)``."""
    return map(callback, iterable)


def filter_(iterable: Iterable[Any], predicate: Callable[[Any], Any]) -> Iterator[Any]:
    """Keeps the items for which ``predicate(item)`` is true."""
    return filter(predicate, iterable)


def flatten_(iterables: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """The items of the items."""
    return itertools.chain.from_iterable(iterables)


def take_(iterable: Iterable[Any], n: int) -> Iterator[Any]:
    """The first n items."""
    return itertools.islice(iterable, n)


def batched_(
    iterable: Iterable[Any],
    batchsize: int = 20,
    collation_fn: Callable[[list[Any]], Any] | None = None,
    drop_last_if_not_full: bool = True,
) -> Iterator[list[Any]]:
    """Lists of `batchsize` items each, or what ``collation_fn(list)`` makes of them."""
    lists = _native.Batched(iter(iterable), batchsize, drop_last_if_not_full)
    return lists if collation_fn is None else map(collation_fn, lists)


def get_random_range(
    rng: random.Random | None = None, seed: int | float | str | bytes | bytearray | None = None
) -> random.Random:
    """`rng`, or a new ``random.Random``; seeded with `seed` unless that is None.

    A given `rng` without a seed goes on from the state it has, so that what it gives repeats.
    """
    if rng is None:
        return random.Random(seed)
    if seed is not None:
        rng.seed(seed)
    return rng


def shuffle_(
    iterable: Iterable[Any],
    bufsize: int = 1000,
    initial: int = 100,
    rng: random.Random | None = None,
    seed: int | float | str | bytes | bytearray | None = None,
) -> Iterator[Any]:
    """Random order within a buffer.

    Args:
        iterable: the items.
        bufsize: items held.
        initial: items to have before the first comes out; at most `bufsize`.
        rng: a ``random.Random``, something with its methods, or the module ``random``.
        seed: what `rng` (or a new ``random.Random``) is seeded with; None: not seeded.
    """
    initial = min(initial, bufsize)
    owned = rng is None
    rng = get_random_range(rng, seed)
    draws: Any = rng
    bits = False
    if owned:
        draws = twister(rng)
    elif type(rng) is random.Random or draws is random:
        draws, bits = rng.getrandbits, True
    return _native.Shuffled(iter(iterable), bufsize, initial, draws, bits)


def twister(rng: random.Random) -> _native.MersenneTwister:
    """The generator inside a ``random.Random``, for native draws."""
    import array

    *words, position = rng.getstate()[1]
    return _native.MersenneTwister(array.array("I", words).tobytes(), position)


def dask_delayed_(iterable: Iterable[Any], callback: Callable[[Any], Any]) -> Iterator[Any]:
    """Each item becomes ``dask.delayed(callback)(item)``."""
    from dask import delayed  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return map(delayed(callback), iterable)


def tqdm_(iterable: Iterable[Any], **kwargs: Any) -> Iterator[Any]:
    """Shows a progress bar by the package tqdm."""
    from tqdm import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return iter(tqdm(iterable, **kwargs))


def getsize(item: Any) -> int:
    """Bytes of an item: those of an array's data, or of the item's pickle."""
    import pickle
    import sys

    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(item, numpy.ndarray):
        return int(item.nbytes)
    return len(pickle.dumps(item))


def monitor_(
    iterable: Iterable[Any],
    callback: Callable[[dict[str, float | int]], Any],
    prefix: str | None = None,
    metrics_conf: MetricsConf | type[MetricsConf] = MetricsConf,
    *,
    window_size: int = 5,
    **kwargs: Any,
) -> Iterator[Any]:
    """Passes items on and calls ``callback(metrics, **kwargs)`` for each one that ends a window.

    Args:
        iterable: the items.
        callback: e.g. ``mlflow.log_metrics`` or ``wandb.log``; gets a dict of two rates, named
            "IOPS number/s" and "throughput MB/s", rounded to 2 decimals.
        prefix: put in front of the names.
        metrics_conf: which rates are wanted; 0 stands for the other one, and with none of them
            the callback isn't called.
        window_size: items of the rolling window, at least 1. Its rates are those of the items
            that came after its oldest one, over the time since that one; for 1, of the interval
            since the item before.
        **kwargs: arguments for the callback.
    """
    if window_size < 1:
        raise ValueError(f"window_size must be at least 1, not {window_size}")
    conf, prefix = metrics_conf, prefix or ""
    if not conf.iops and not conf.throughput:
        return iter(iterable)
    return _native.Monitored(
        iter(iterable),
        callback,
        kwargs or None,
        window_size,
        f"{prefix}IOPS number/s",
        conf.iops,
        f"{prefix}throughput {conf.throughput_unit}/s",
        unit_bytes(conf.throughput_unit) if conf.throughput else 1,
        getsize if conf.throughput else None,
    )


def zip_index_(iterable: Iterable[Any], pad_length: int | None = None) -> Iterator[tuple[int | str, Any]]:
    """(index, item) pairs; with `pad_length` the index is a str with leading zeros."""
    if pad_length is None:
        return enumerate(iterable)
    texts = map(str.zfill, map(str, itertools.count()), itertools.repeat(pad_length))
    return zip(texts, iterable)


def sliding_(
    iterable: Iterable[Any],
    window_size: int,
    deep: bool,
    stride: int,
    drop_last_if_not_full: bool,
    min_window_size: int,
    fill_nan_on_partial: bool,
) -> Iterator[list[Any]]:
    """See :meth:`squirrel.iterstream.Composable.sliding`."""
    import copy

    items = iter(iterable)
    held = list(itertools.islice(items, window_size))
    if len(held) < window_size:
        min_window_size = 1  # a stream that is shorter than a window is one window
        stride = window_size
    elif stride == 1:
        full = deque(held, window_size)
        yield copy.deepcopy(held) if deep else list(held)
        for item in items:
            full.append(item)
            window = list(full)
            yield copy.deepcopy(window) if deep else window
        held = list(full)[1:]
    while held:
        window = list(held)
        if len(held) < window_size:
            if drop_last_if_not_full:
                return
            if fill_nan_on_partial:
                window += [None] * (window_size - len(held))
            elif len(held) < min_window_size:
                return
        yield copy.deepcopy(window) if deep else window
        del held[:stride]
        held += itertools.islice(items, stride)
