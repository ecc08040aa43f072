"""Columns from samples that are Python objects: what batch() does behind a Python callable.

The rules are those of native batches: plain numbers widen (int beside float is float64), array
elements keep their dtype, and what has no common type is refused. See src/value/schema.c.
"""

from __future__ import annotations

from squirrel._errors import ArgumentError, SampleTypeError
from squirrel.batch import Batch, Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

_MAX_DEPTH = 32  # of maps that become dotted names
_EXACT = 1 << 53  # whole numbers up to this are exact in float64
_DTYPES = "?bhilqBHILQefdFD"
_BINARY = (bytes, bytearray, memoryview)
_ADVICE = "make its values alike with map(), or drop() the field"


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

    def __call__(self, samples: list[Any], first: int = 0) -> Batch:
        """`first`: position of the first sample, for messages."""
        plain: set[str] = set()
        rows = [_flat(sample, first + i, plain) for i, sample in enumerate(samples)]
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row))
        valid: dict[str, Any] = {}
        shapes: dict[str, Any] = {}
        columns = {}
        for name in names:
            values = [row.get(name) for row in rows]
            if all(v is None for v in values) and _holds_others(name, names):
                continue  # a map that is null in some samples: its fields are missing there
            columns[name] = self._column(name, values, first, valid, shapes)
        return Batch.of_columns(columns, len(samples), valid, shapes)

    def _column(
        self, name: str, values: list[Any], first: int, valid: dict[str, Any], shapes: dict[str, Any]
    ) -> Any:
        import numpy as np

        kinds = {type(v) for v in values}
        mask = None
        if type(None) in kinds:
            kinds.discard(type(None))
            valid[name] = mask = np.array([v is not None for v in values])
            if not kinds:
                return Column.of_arrays("null", name, len(values), None, valid=mask)
        if kinds == {str}:
            return _texts("string", name, _utf8(name, values, first), mask)
        if kinds == {bytes}:
            return _texts("binary", name, [v or b"" for v in values], mask)
        if kinds == {bool} or kinds == {float}:
            return np.array([v or 0 for v in values], bool if kinds == {bool} else np.float64)
        if kinds == {int}:
            try:
                return np.array([v or 0 for v in values], np.int64)
            except OverflowError:
                pass  # uint64, or refused
        if kinds == {np.ndarray} and mask is None:
            dtype, shape = values[0].dtype, values[0].shape
            if dtype.char in _DTYPES and all(v.dtype == dtype and v.shape == shape for v in values):
                return np.stack(values).astype(dtype.newbyteorder("="), copy=False)
        joined = _Type(name, first)
        for i, value in enumerate(values):
            if value is not None:
                joined.take(i, value)
        if joined.kind == "string":
            return _texts("string", name, _utf8(name, values, first), mask)
        if joined.kind == "binary":
            return _texts("binary", name, [bytes(v or b"") for v in values], mask)
        arrays = joined.arrays(values)
        if not joined.lists and joined.shape is not None:
            empty = np.zeros(joined.shape, joined.dtype)
            return np.stack([empty if a is None else a for a in arrays])
        return self._ragged(joined, arrays, mask, shapes)

    def _ragged(self, joined: _Type, arrays: list[Any], mask: Any, shapes: dict[str, Any]) -> Any:
        import numpy as np

        name, dtype, dims = joined.name, joined.dtype, joined.dims
        if self.ragged == "error":
            raise SampleTypeError(
                f'field "{name}" has values of different shapes{joined.two_shapes(arrays)}; choose '
                'ragged="offsets" or "pad", or drop() it'
            )
        filled = [np.zeros((0,) * dims, dtype) if a is None else a for a in arrays]
        extents = np.array([a.shape for a in filled], dtype=np.int64)
        if self.ragged == "pad":
            self._check_pad(name, dtype)
            column = np.full((len(filled), *extents.max(axis=0)), self.pad_value, dtype)
            for row, array in zip(column, filled):
                row[tuple(slice(n) for n in array.shape)] = array
            shapes[name] = extents
            return column
        offsets = np.zeros(len(filled) + 1, np.int64)
        np.cumsum([a.size for a in filled], out=offsets[1:])
        data = np.concatenate([a.ravel() for a in filled])
        many = extents if dims > 1 else None
        return Column.of_arrays("ragged", name, len(filled), data, offsets, many, mask)

    def _check_pad(self, name: str, dtype: Any) -> None:
        import numpy as np

        pad = float(self.pad_value)
        if dtype.kind in "fc":
            return
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not pad.is_integer() or not low <= pad <= high:
            raise ArgumentError(f'pad value {pad:g} does not fit field "{name}" of type {dtype}')


class _Type:
    """What the values of one field have in common; refuses a value that does not fit."""

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.first = first  # position of row 0
        self.kind: str | None = None
        self.dtype: Any = None
        self.plain = False  # only plain numbers so far, which may widen
        self.negative = False
        self.dims = 0
        self.shape: tuple[int, ...] | None = None  # of all rows; None: they differ
        self.lists = False  # a list may have any length, whatever this batch shows
        self.since = 0  # the row that made the type what it is
        self.unknown = False  # only empty lists so far

    def take(self, row: int, value: Any) -> None:
        kind, dtype, plain, negative, shape = self._look(row, value)
        empty_list = isinstance(value, (list, tuple)) and not value
        if isinstance(value, (list, tuple)):
            self.lists = True
        if self.kind is None or (self.unknown and kind == "number" and len(shape) == 1):
            if self.kind is None:
                self.shape = shape
            elif self.shape != shape:
                self.shape = None
            self.kind, self.dtype, self.plain, self.negative = kind, dtype, plain, negative
            self.dims, self.since, self.unknown = len(shape), row, empty_list
            return
        if kind != self.kind or len(shape) != self.dims:
            self._clash(row, value, dtype, shape)
        if kind != "number":
            return
        if shape != self.shape:
            self.shape = None
        if not empty_list and not self._join(row, dtype, plain, negative):
            self._clash(row, value, dtype, shape)

    def _look(self, row: int, value: Any) -> tuple[str, Any, bool, bool, tuple[int, ...]]:
        """Kind, dtype, whether it is a plain number, whether below 0, shape."""
        import numpy as np

        if isinstance(value, str):
            return "string", None, False, False, ()
        if isinstance(value, _BINARY):
            return "binary", None, False, False, ()
        if isinstance(value, (bool, int, float)):
            return "number", self._plain(row, value), True, value < 0, ()
        if isinstance(value, (list, tuple)):
            inner = _Type(self.name, 0)
            for item in value:
                if not isinstance(item, (bool, int, float)):
                    self._refuse(row, f"a list with {_a(item)} in it")
                dtype, negative = self._plain(row, item), item < 0
                if inner.dtype is None:
                    inner.dtype, inner.plain, inner.negative = dtype, True, negative
                elif not inner._join(0, dtype, True, negative):
                    self._refuse(row, f"a list of {inner.dtype} and {dtype}")
            dtype = np.dtype("i8") if inner.dtype is None else inner.dtype
            return "number", dtype, True, inner.negative, (len(value),)
        if not isinstance(value, (np.ndarray, np.generic)) and not hasattr(value, "__array__"):
            self._refuse(row, _a(value))
        if hasattr(value, "_mask"):
            self._refuse(row, "a masked array, whose mask would be lost")
        array = np.asarray(value)
        if array.dtype.char not in _DTYPES:
            self._refuse(row, f"an array of {array.dtype}")
        return "number", array.dtype.newbyteorder("="), False, False, array.shape

    def _plain(self, row: int, value: Any) -> Any:
        import numpy as np

        if isinstance(value, bool):
            return np.dtype("?")
        if isinstance(value, float):
            return np.dtype("f8")
        if not -(1 << 63) <= value < 1 << 64:
            self._refuse(row, "an integer outside of -2**63 .. 2**64-1")
        return np.dtype("i8" if value < 1 << 63 else "u8")

    def _join(self, row: int, dtype: Any, plain: bool, negative: bool) -> bool:
        """The type that holds both, as sqrl_dtype_join finds it; False: there is none."""
        negative = negative or self.negative
        if dtype == self.dtype:
            self.plain, self.negative = self.plain and plain, negative
            return True
        order = "qQd"  # int64, uint64, float64
        if self.dtype.kind not in "iuf" or dtype.kind not in "iuf":
            return False
        if self.dtype.itemsize != 8 or dtype.itemsize != 8:
            return False
        rank, other = "iuf".index(self.dtype.kind), "iuf".index(dtype.kind)
        narrow_plain, wide_plain = (self.plain, plain) if rank < other else (plain, self.plain)
        if not narrow_plain:
            return False
        wide = max(rank, other)
        if wide == 1 and negative:
            if not wide_plain:
                return False
            wide = 2
        if wide != rank:
            self.since = row
        import numpy as np

        self.dtype = np.dtype(order[wide])
        self.plain, self.negative = self.plain and plain, negative
        return True

    def arrays(self, values: list[Any]) -> list[Any]:
        """The values as arrays of the common dtype."""
        import numpy as np

        if self.dtype.kind == "f" and self.dtype.itemsize == 8:
            for row, value in enumerate(values):
                for item in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(item, int) and not -_EXACT <= item <= _EXACT:
                        at = self.first + self.since
                        self._refuse(
                            row,
                            f"the integer {item}, but the column is float64 since sample {at}, "
                            "which does not hold it exactly",
                        )
        return [None if v is None else np.asarray(v, self.dtype) for v in values]

    def two_shapes(self, arrays: list[Any]) -> str:
        """Two samples whose shapes differ, where there are some."""
        known = [(i, a.shape) for i, a in enumerate(arrays) if a is not None]
        for row, shape in known:
            if shape != known[0][1]:
                at = self.first + known[0][0]
                return f" ({known[0][1]} in sample {at}, {shape} in sample {self.first + row})"
        return ""

    def _clash(self, row: int, value: Any, dtype: Any, shape: tuple[int, ...]) -> NoReturn:
        here = _type_text(dtype, shape) if dtype is not None else _a(value)
        if isinstance(value, int) and not isinstance(value, bool):
            here = f"the integer {value}"
        column = self.kind
        if self.kind == "number":
            column = str(self.dtype) + (f" of {self.dims} dimensions" if self.dims else "")
        raise SampleTypeError(
            f'sample {self.first + row}: field "{self.name}": the value is {here}, but the column '
            f"is {column} since sample {self.first + self.since}; {_ADVICE}"
        )

    def _refuse(self, row: int, what: str) -> NoReturn:
        raise SampleTypeError(
            f'sample {self.first + row}: field "{self.name}" can\'t be in a column: it holds '
            f"{what}; {_ADVICE}"
        )


def _flat(sample: Any, at: int, plain: set[str]) -> dict[str, Any]:
    """Nested dicts as dotted names; a dot or backslash within a key gets a backslash.

    `plain` collects keys that need no second look.
    """
    if not isinstance(sample, dict):
        raise SampleTypeError(
            f"sample {at}: batch() needs samples that are dicts, not {type(sample).__name__}; "
            "batched() makes lists of anything"
        )
    for key, value in sample.items():
        if isinstance(value, dict):
            break
        if key not in plain:
            if _escaped(key, "", at) != key:
                break
            plain.add(key)
    else:
        return sample
    flat: dict[str, Any] = {}
    levels: list[tuple[str, Iterator[tuple[Any, Any]]]] = [("", iter(sample.items()))]
    while levels:
        prefix, items = levels[-1]
        for key, value in items:
            name = prefix + _escaped(key, prefix, at)
            if isinstance(value, dict):
                if len(levels) == _MAX_DEPTH:
                    raise SampleTypeError(
                        f'sample {at}: field "{name[:120]}" is nested deeper than {_MAX_DEPTH} '
                        f"levels (does it contain itself?); {_ADVICE}"
                    )
                levels.append((name + ".", iter(value.items())))
                break
            flat[name] = value
        else:
            levels.pop()
    return flat


def _escaped(key: Any, prefix: str, at: int) -> str:
    if isinstance(key, str) and "\0" not in key and (key or prefix):
        return key.replace("\\", "\\\\").replace(".", "\\.")
    why = f"is {_a(key)}"
    if isinstance(key, str):
        why = "has a NUL in it" if key else "is empty"
    where = f' in "{prefix[:-1]}"' if prefix else ""
    raise SampleTypeError(
        f"sample {at}: the key {key!r}{where} {why}, so it can't name a column; give it a name of "
        "text with map(), or remove it"
    )


def _holds_others(name: str, names: dict[str, None]) -> bool:
    return any(other.startswith(name + ".") for other in names)


def _a(value: Any) -> str:
    """The type of a value with its article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def _type_text(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}" if shape else str(dtype)


def _utf8(name: str, values: list[Any], first: int) -> list[bytes]:
    try:
        return [(v or "").encode() for v in values]
    except UnicodeEncodeError:
        for i, value in enumerate(values):
            if value and any("\ud800" <= c <= "\udfff" for c in value):
                break
        raise SampleTypeError(
            f'sample {first + i}: field "{name}" holds half of a surrogate pair, which UTF-8 '
            f"can't write; {_ADVICE}"
        ) from None


def _texts(kind: str, name: str, values: list[bytes], mask: Any) -> Column:
    import numpy as np

    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(v) for v in values], out=offsets[1:])
    data = np.frombuffer(bytearray(b"".join(values)), np.uint8)
    return Column.of_arrays(kind, name, len(values), data, offsets, None, mask)
