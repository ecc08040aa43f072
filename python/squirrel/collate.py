"""Columns from samples that are Python objects: what batch() does behind a Python callable."""

from __future__ import annotations

from squirrel._errors import ArgumentError, SampleTypeError
from squirrel.batch import Batch, Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Collate:
    """Makes a :class:`Batch` of a list of dicts, by the rules of native batches."""

    def __init__(self, ragged: str = "offsets", pad_value: float = 0.0, **options: Any) -> None:
        if ragged not in ("offsets", "pad", "error"):
            raise ArgumentError('ragged must be "offsets", "pad" or "error"')
        given = sorted(name for name, value in options.items() if value)
        if given:
            raise ArgumentError(
                f"batch options {', '.join(given)} need native samples: put batch() in front of "
                "the first Python callable"
            )
        self.ragged = ragged
        self.pad_value = pad_value

    def __call__(self, samples: list[Any]) -> Batch:
        names: dict[str, None] = {}
        for sample in samples:
            if not isinstance(sample, dict):
                raise SampleTypeError(
                    f"batch() needs samples that are dicts, not {type(sample).__name__}; "
                    "batched() makes lists of anything"
                )
        samples = [_flat(sample) for sample in samples]
        for sample in samples:
            names.update(dict.fromkeys(sample))
        valid: dict[str, Any] = {}
        shapes: dict[str, Any] = {}
        columns = {
            name: self._column(name, [s.get(name) for s in samples], valid, shapes)
            for name in names
        }
        return Batch.of_columns(columns, len(samples), valid, shapes)

    def _column(
        self, name: str, values: list[Any], valid: dict[str, Any], shapes: dict[str, Any]
    ) -> Any:
        import numpy as np

        present = [v for v in values if v is not None]
        mask = None
        if len(present) < len(values):
            mask = np.array([v is not None for v in values])
            valid[name] = mask
        if not present:
            return Column.of_arrays("null", name, len(values), None, valid=mask)
        if all(isinstance(v, str) for v in present):
            return _texts("string", name, [(v or "").encode() for v in values], mask)
        if all(isinstance(v, (bytes, bytearray)) for v in present):
            return _texts("binary", name, [bytes(v or b"") for v in values], mask)
        arrays = [None if v is None else np.asarray(v) for v in values]
        first = next(a for a in arrays if a is not None)
        for array in arrays:
            if array is not None and (array.dtype.kind in "OUS" or array.ndim != first.ndim):
                raise SampleTypeError(
                    f'field "{name}" can\'t be a column: {_kind(first)} beside {_kind(array)}'
                )
        if all(a is None or a.shape == first.shape for a in arrays):
            empty = np.zeros_like(first)
            return np.stack([empty if a is None else a for a in arrays])
        return self._ragged(name, arrays, first, mask, shapes)

    def _ragged(
        self, name: str, arrays: list[Any], first: Any, mask: Any, shapes: dict[str, Any]
    ) -> Any:
        import numpy as np

        if self.ragged == "error":
            other = next(a for a in arrays if a is not None and a.shape != first.shape)
            raise SampleTypeError(
                f'field "{name}" has the shapes {first.shape} and {other.shape}: give '
                'ragged="offsets" or "pad"'
            )
        filled = [np.zeros((0,) * first.ndim, first.dtype) if a is None else a for a in arrays]
        extents = np.array([a.shape for a in filled], dtype=np.int64)
        dtype = np.result_type(*filled)
        if self.ragged == "pad":
            column = np.full((len(filled), *extents.max(axis=0)), self.pad_value, dtype)
            for row, array in zip(column, filled):
                row[tuple(slice(n) for n in array.shape)] = array
            shapes[name] = extents
            return column
        offsets = np.zeros(len(filled) + 1, np.int64)
        np.cumsum([a.size for a in filled], out=offsets[1:])
        data = np.concatenate([a.ravel() for a in filled]).astype(dtype, copy=False)
        many = extents if first.ndim > 1 else None
        return Column.of_arrays("ragged", name, len(filled), data, offsets, many, mask)


def _flat(sample: dict[str, Any]) -> dict[str, Any]:
    """Nested dicts as dotted names; a dot within a key is written "\\."."""
    if not any(isinstance(v, dict) or not isinstance(k, str) or "." in k for k, v in sample.items()):
        return sample
    flat: dict[str, Any] = {}
    left = [("", sample)]
    while left:
        prefix, level = left.pop()
        for key, value in level.items():
            name = prefix + str(key).replace(".", "\\.")
            if isinstance(value, dict):
                left.append((name + ".", value))
            else:
                flat[name] = value
    return flat


def _kind(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _texts(kind: str, name: str, values: list[bytes], mask: Any) -> Column:
    import numpy as np

    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(v) for v in values], out=offsets[1:])
    data = np.frombuffer(bytearray(b"".join(values)), np.uint8)
    return Column.of_arrays(kind, name, len(values), data, offsets, None, mask)
