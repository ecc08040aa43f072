"""Where samples come from: shard, number, position and key beside each one."""

from __future__ import annotations

from squirrel.iterstream.base import Composable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from squirrel.stream import Stream

__all__ = ["META", "add_meta", "with_meta"]

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
