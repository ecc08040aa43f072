"""Batches of a mix of native streams: each stream makes batches of its own, natively, and their
rows are brought together in the order of the mix.

The schedule runs over numbers instead of samples: a stream's iterator gives its own number once a
row. So passes, ends and states are those of the mix itself.
"""

from __future__ import annotations

import itertools
from collections import deque

from squirrel import _native
from squirrel._errors import ArgumentError, SampleTypeError
from squirrel.batch import Batch, Column
from squirrel.iterstream.base import Run
from squirrel.iterstream.stages import Stage
from squirrel.mixing import _MixPass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from squirrel.mixing import Mix
    from squirrel.stream import Stream

__all__ = ["MixedBatches"]


class MixedBatches(Stage):
    """Batches of `size` rows of a mix whose streams are all native samples."""

    _holds_items = True
    _is_root = True

    def __init__(self, mix: Mix, size: int, drop_remainder: bool, options: dict[str, Any]) -> None:
        super().__init__(mix)
        self.size = size
        self.drop_remainder = drop_remainder
        self.options = options
        for stream in mix.streams:
            stream.batch(size, **options)  # refuses what can't be now

    @property
    def _call(self) -> str:
        return f"batch({self.size})"

    def _start(self, run: Run) -> Iterator[Batch]:
        return _BatchedPass(self, run).counter


class _BatchedPass:
    """A pass: the mix's, over numbers of rows."""

    def __init__(self, of: MixedBatches, run: Run) -> None:
        self.of = of
        mix: Mix = of.source
        self.queues: list[deque[Batch]] = [deque() for _ in mix.streams]
        self.at = [0] * len(mix.streams)  # rows of the first batch of each queue that were given
        self.rows = mix._pass = _MixPass(mix, run, self._rows)
        self.counter = _native.Counted(self._merge(of.size, of.drop_remainder))
        run.root = self

    @property
    def delivered(self) -> int:
        return self.counter.delivered

    def state_dict(self, back: int = 0) -> dict[str, Any]:
        if back:
            raise ArgumentError("a mix's batches have no state in front of the last one")
        return self.rows.state_dict()

    def _rows(self, i: int, stream: Stream, run: Run) -> tuple[Iterator[int], Callable[..., dict[str, Any]]]:
        """The stream's number once a row, and where it stands."""
        batches: Any = stream.batch(self.of.size, **self.of.options)._start(run)
        queue = self.queues[i]  # may still hold rows of the pass before

        def state() -> dict[str, Any]:
            found: dict[str, Any] = batches.state_dict(rows=self.at[i] if queue else None)
            return found

        return itertools.chain.from_iterable(_queued(i, batches, queue)), state

    def _merge(self, size: int, drop_remainder: bool) -> Iterator[Batch]:
        import numpy as np

        at = self.at
        while True:
            numbers = np.fromiter(itertools.islice(self.rows.counter, size), np.int64)
            count = len(numbers)
            if not count or (count < size and drop_remainder):
                return
            pieces = []
            for i, queue in enumerate(self.queues):
                places = np.flatnonzero(numbers == i)
                done = 0
                while done < len(places):
                    first = queue[0]
                    n = min(len(places) - done, first.rows - at[i])
                    pieces.append(_Piece(i, first, at[i], at[i] + n, places[done : done + n]))
                    done += n
                    at[i] += n
                    if at[i] == first.rows:
                        queue.popleft()
                        at[i] = 0
            yield _join(pieces, count)


def _queued(i: int, batches: Iterator[Batch], queue: deque[Batch]) -> Iterator[Iterator[int]]:
    for batch in batches:
        queue.append(batch)
        yield itertools.repeat(i, batch.rows)


class _Piece:
    """Rows `begin` to `end` of stream number `stream`'s batch, which go to `places`."""

    __slots__ = ("batch", "begin", "end", "places", "stream")

    def __init__(self, stream: int, batch: Batch, begin: int, end: int, places: Any) -> None:
        self.stream = stream
        self.batch = batch
        self.begin = begin
        self.end = end
        self.places = places


def _join(pieces: list[_Piece], count: int) -> Batch:
    names = dict.fromkeys(name for piece in pieces for name in piece.batch)
    valid: dict[str, Any] = {}
    columns = {name: _column(name, pieces, count, valid) for name in names}
    return Batch.of_columns(columns, count, valid)


def _column(name: str, pieces: list[_Piece], count: int, valid: dict[str, Any]) -> Any:
    """One column from those of the pieces; rows of streams that have none are missing."""
    import numpy as np

    mask = None
    holders: list[tuple[_Piece, Any]] = []
    for piece in pieces:
        values: Any = piece.batch.get(name)
        null = values is None or (isinstance(values, Column) and values.kind == "null")
        known = None if null else piece.batch.valid.get(name)
        if not null and isinstance(values, Column):
            known = values.valid
        if null or known is not None:
            if mask is None:
                mask = np.ones(count, bool)
            mask[piece.places] = False if known is None else known[piece.begin : piece.end]
        if not null:
            holders.append((piece, values))
    if mask is not None:
        valid[name] = mask
    if not holders:
        return Column.of_arrays("null", name, count, None, valid=mask)
    _check(name, holders)
    first = holders[0][1]
    if isinstance(first, Column):
        return _ragged(name, first, holders, count, mask)
    out = (np.empty if mask is None else np.zeros)((count, *first.shape[1:]), first.dtype)
    for piece, values in holders:
        out[piece.places] = values[piece.begin : piece.end]
    return out


def _kind(values: Any) -> tuple[Any, ...]:
    """What columns must have in common, and how it is said."""
    if isinstance(values, Column):
        dims = 1 if values.shapes is None else values.shapes.shape[1]
        return values.kind, values.data.dtype, dims
    return "dense", values.dtype, values.shape[1:]


def _check(name: str, holders: list[tuple[_Piece, Any]]) -> None:
    piece, values = holders[0]
    kind = _kind(values)
    for other, others in holders:
        if _kind(others) != kind:
            raise SampleTypeError(
                f'field "{name}" is {_said(kind)} in stream {piece.stream} of the mix, and {_said(_kind(others))} '
                f'in stream {other.stream}: declare one type for both, e.g. batch(..., fields={{"{name}": '
                f'{_declared(kind, _kind(others))!r}}}), or drop() it'
            )


def _said(kind: tuple[Any, ...]) -> str:
    if kind[0] in ("string", "binary"):
        return f"a {kind[0]}"
    shape = "~," * kind[2] if kind[0] == "ragged" else "".join(f"{n}," for n in kind[2])
    return f"{kind[1]}[{shape[:-1]}]" if shape else str(kind[1])


def _declared(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """A type that may hold both."""
    import numpy as np

    if {one[0], other[0]} & {"string", "binary"}:
        return "string"
    dtype = np.promote_types(one[1], other[1])
    dims = [kind[2] if kind[0] == "ragged" else len(kind[2]) for kind in (one, other)]
    if one[2] == other[2] and one[0] == "dense":
        return _said(("dense", dtype, one[2]))
    return _said(("ragged", dtype, max(dims)))


def _ragged(name: str, first: Column, holders: list[tuple[_Piece, Column]], count: int, mask: Any) -> Column:
    import numpy as np

    lengths = np.zeros(count, np.int64)
    shapes = None if first.shapes is None else np.zeros((count, first.shapes.shape[1]), np.int64)
    for piece, values in holders:
        lengths[piece.places] = np.diff(values.offsets[piece.begin : piece.end + 1])
        if shapes is not None:
            shapes[piece.places] = values.shapes[piece.begin : piece.end]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), first.data.dtype)
    size = out.dtype.itemsize
    to = memoryview(out.view(np.uint8))  # type: ignore[arg-type,unused-ignore]
    for piece, values in holders:
        source = memoryview(values.data.view(np.uint8))  # type: ignore[arg-type,unused-ignore]
        starts = (values.offsets[piece.begin : piece.end + 1] * size).tolist()
        for begin, end, target in zip(starts, starts[1:], (offsets[piece.places] * size).tolist()):
            to[target : target + end - begin] = source[begin:end]
    return Column.of_arrays(first.kind, name, count, out, offsets, shapes, mask)
