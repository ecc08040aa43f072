"""Where samples come from: shard, number, position and key beside each one."""

from __future__ import annotations

from squirrel import _native
from squirrel.iterstream.base import Composable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.random import Generator

    from squirrel.stream import Stream

__all__ = ["META", "add_meta", "generator", "sample_rng", "sample_seed", "with_meta"]

META = "__meta__"


class _Places:
    """Turns (shard path, number in it) into what META holds."""

    def __init__(self, stream: Stream) -> None:
        self.first: dict[str, int | None] = {}
        self.key = stream._opened.key_field
        total: int | None = 0
        for shard in stream.shards:
            self.first[shard["path"]] = total
            samples = shard["samples"]
            total = None if total is None or samples is None else total + samples

    def of(self, sample: dict[str, Any], shard: str, number: int | None) -> dict[str, Any]:
        first = self.first.get(shard)
        index = None if first is None or number is None else first + number
        return {"shard": shard, "sample": number, "index": index, "key": self._key_of(sample)}

    def _key_of(self, sample: dict[str, Any]) -> Any:
        if self.key is None or self.key in sample:
            return sample.get(self.key) if self.key is not None else None
        value: Any = sample
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value


class _WithMeta(Composable):
    """The samples of a native stream, each with its META."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(source=())
        self.stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        places = _Places(self.stream)
        with self.stream.iterator() as items:
            for sample in items:
                place = items.place()
                shard, number = place if place is not None else ("", None)
                sample[META] = places.of(sample, shard, number)
                yield sample


def with_meta(stream: Stream) -> Composable:
    if stream._plan.batched:
        raise TypeError("with_meta() stands in front of batch(); a Batch has places")
    return _WithMeta(stream)


def add_meta(stream: Stream, indices: Any, samples: list[dict[str, Any]]) -> None:
    """Adds META to what get_many() gave for these positions."""
    places = _Places(stream)
    for index, sample in zip(indices, samples):
        sample[META] = places.of(sample, *stream.locate(index))


def sample_seed(meta: dict[str, Any], seed: int, epoch: int = 0, repeat: int = 0) -> int:
    """64 bits for the random choices made for one sample, wherever and by whomever they are made.

    Args:
        meta: what says which sample it is: ``sample["__meta__"]`` of with_meta() and get_many(meta=True),
            or any dict with `shard` (a path, of which the last name counts) and `sample`.
        seed: 0 to 2**64-1.
        epoch: another one, other choices.
        repeat: which of several results of the sample: 0, 1, ...

    Raises:
        ValueError: the sample has no number: those of its file are not counted.
    """
    if meta["sample"] is None:
        raise ValueError(f"the samples of {meta['shard']} are not counted: `squirrel index` counts them")
    return _native.sample_seed(seed, epoch, meta["shard"], meta["sample"], repeat)


def sample_rng(meta: dict[str, Any], seed: int, epoch: int = 0, repeat: int = 0) -> Generator:
    """A NumPy generator of :func:`sample_seed`: what :meth:`Stream.augment` gives its callable."""
    from numpy.random import Generator, Philox

    return Generator(Philox(key=sample_seed(meta, seed, epoch, repeat)))


def generator(seed: int, epoch: int, shard: str, sample: int, repeat: int) -> Generator:
    """The same, unpacked."""
    from numpy.random import Generator, Philox

    return Generator(Philox(key=_native.sample_seed(seed, epoch, shard, sample, repeat)))
