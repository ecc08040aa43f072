"""Batches: dicts of columns that share one recycled piece of memory."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from squirrel import _native

_DATA, _OFFSETS, _SHAPES, _VALID = range(4)
_UNSET: Any = object()


class Column:
    """A column that is no plain array: strings, bytes, ragged arrays, or only nulls.

    ``column[i]`` is the str, bytes or array of row i, or None where a value is missing. Nothing
    is copied to make one; rows of ragged columns are views.

    Attributes:
        name: the field's name, nested ones dotted.
        kind: "string", "binary", "ragged", "null" or "dense".
        data: the elements of all rows one after another (uint8 for strings and bytes).
        offsets: int64[rows + 1], where each row begins in data; None for dense columns.
        shapes: int64[rows, dims], the shape of each row where it has two or more dimensions
            (or was padded), else None.
        valid: bool[rows], or None when no value is missing.
    """

    __slots__ = ("name", "kind", "_rows", "_slot", "_index", "_part")

    name: str
    kind: str

    @classmethod
    def _of_slot(cls, slot: _native.Slot, index: int) -> Column:
        self = cls.__new__(cls)
        self._slot = slot
        self._index = index
        self._rows = slot.rows
        self._part = [_UNSET, _UNSET, _UNSET, _UNSET]
        self.name, self.kind, _, _, _ = slot.column(index)
        return self

    @classmethod
    def of_arrays(
        cls,
        kind: str,
        name: str,
        rows: int,
        data: Any,
        offsets: Any = None,
        shapes: Any = None,
        valid: Any = None,
    ) -> Column:
        """A column from its arrays, e.g. from another process."""
        self = cls.__new__(cls)
        self._slot = None
        self._index = 0
        self._rows = rows
        self._part = [data, offsets, shapes, valid]
        self.name = name
        self.kind = kind
        return self

    _slot: _native.Slot | None
    _index: int
    _rows: int
    _part: list[Any]

    def _get(self, part: int) -> Any:
        array = self._part[part]
        if array is _UNSET:
            assert self._slot is not None
            array = self._part[part] = self._slot.part(self._index, part)
        return array

    @property
    def data(self) -> Any:
        return self._get(_DATA)

    @property
    def offsets(self) -> Any:
        return self._get(_OFFSETS)

    @property
    def shapes(self) -> Any:
        return self._get(_SHAPES)

    @property
    def valid(self) -> Any:
        return self._get(_VALID)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self._row(i) for i in range(*row.indices(self._rows))]
        i = row.__index__()
        if i < 0:
            i += self._rows
        if not 0 <= i < self._rows:
            raise IndexError(f"row {row} of a column of {self._rows}")
        return self._row(i)

    def _row(self, i: int) -> Any:
        if self.kind == "null" or (self.valid is not None and not self.valid[i]):
            return None
        if self.kind == "dense":
            return self.data[i]
        if self._slot is not None and self.kind != "ragged":
            return self._slot.texts(self._index, i)
        part = self.data[self.offsets[i] : self.offsets[i + 1]]
        if self.kind == "ragged":
            return part if self.shapes is None else part.reshape(self.shapes[i])
        raw: bytes = part.tobytes()
        return raw.decode() if self.kind == "string" else raw

    def tolist(self) -> list[Any]:
        """All rows as a list of str, bytes, arrays or None."""
        if self._slot is not None and self.kind in ("string", "binary"):
            texts: list[Any] = self._slot.texts(self._index)
            return texts
        return [self._row(i) for i in range(self._rows)]

    def __repr__(self) -> str:
        return f"<squirrel.Column {self.name!r}: {self._rows} rows, {self.kind}>"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.data, self.offsets, self.shapes, self.valid)
        return Column.of_arrays, (self.kind, self.name, self._rows, *parts)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Capsules of the Arrow C data interface; nothing but the validity is copied."""
        if self._slot is None:
            raise TypeError("this column was copied out of its batch: export the batch itself")
        return self._slot.arrow(self._index)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """`data` as a DLPack capsule: versioned when the consumer knows version 1."""
        if stream is not None:
            raise BufferError("a column lies in CPU memory: stream must be None")
        if dl_device is not None and tuple(dl_device) != (1, 0):
            raise BufferError("a column lies in CPU memory; copy it to the device instead")
        if copy or self._slot is None:
            data = self.data.copy() if copy else self.data
            return data.__dlpack__()
        versioned = max_version is not None and max_version[0] >= 1
        return self._slot.dlpack(self._index, _DATA, versioned)

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.data)


class Batch(dict):  # type: ignore[type-arg]
    """Named columns of one batch: NumPy arrays, or :class:`Column` where rows vary in length.

    Nested fields have dotted names ("meta.label"). Arrays are writable and stay valid for as
    long as they are kept; they share one piece of memory, which is recycled when the last of
    them is gone.
    """

    __slots__ = ("_slot", "_valid", "_shapes", "_places", "_rows")

    _slot: _native.Slot | None
    _valid: dict[str, Any] | None
    _shapes: dict[str, Any] | None
    _places: Any
    _rows: int

    @classmethod
    def _of_slot(cls, columns: dict[str, Any], slot: _native.Slot) -> Batch:
        self = cls(columns)
        self._slot = slot
        self._rows = slot.rows
        self._valid = self._shapes = None
        self._places = _UNSET
        return self

    @classmethod
    def of_columns(
        cls,
        columns: Mapping[str, Any],
        rows: int,
        valid: Mapping[str, Any] | None = None,
        shapes: Mapping[str, Any] | None = None,
        places: Any = None,
    ) -> Batch:
        """A batch from columns that were made in Python."""
        self = cls(columns)
        self._slot = None
        self._rows = rows
        self._valid = dict(valid or {})
        self._shapes = dict(shapes or {})
        self._places = places
        return self

    def _collect(self, part: int, index: int) -> dict[str, Any]:
        slot = self._slot
        found: dict[str, Any] = {}
        for i in range(slot.columns if slot is not None else 0):
            assert slot is not None
            column = slot.column(i)
            if column[index]:
                found[column[0]] = slot.part(i, part)
        return found

    @property
    def rows(self) -> int:
        """Number of samples in the batch."""
        return self._rows

    @property
    def valid(self) -> dict[str, Any]:
        """bool[rows] for each column in which values are missing (those read as zero or empty)."""
        if self._valid is None:
            self._valid = self._collect(_VALID, 3)
        return self._valid

    @property
    def shapes(self) -> dict[str, Any]:
        """int64[rows, dims] for each padded column: the shapes before padding."""
        if self._shapes is None:
            self._shapes = self._collect(_SHAPES, 4)
        return self._shapes

    @property
    def places(self) -> Any:
        """uint64[rows, 2]: shard and number within the shard of each sample; None if unknown.

        The number is 2**64-1 where it can't be told: plain JSON lines, shuffled.
        """
        if self._places is _UNSET:
            self._places = self._slot.places() if self._slot is not None else None
        return self._places

    def column(self, name: str) -> Column:
        """Any column as a :class:`Column`, arrays too: for DLPack and Arrow."""
        value = self[name]
        if isinstance(value, Column):
            return value
        if self._slot is not None:
            for i in range(self._slot.columns):
                if self._slot.column(i)[0] == name:
                    return Column._of_slot(self._slot, i)
        return Column.of_arrays("dense", name, self._rows, value, valid=self.valid.get(name))

    def to_arrow(self) -> Any:
        """The batch as a pyarrow.RecordBatch that shares its memory."""
        import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]

        return pa.record_batch(_Exporter(self))  # a dict would be converted column by column

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The batch as an Arrow struct array, without a copy."""
        if self._slot is None:
            raise TypeError("this batch was made in Python: only native batches export to Arrow")
        return self._slot.arrow(-1)

    def __reduce__(self) -> tuple[Any, ...]:
        args = (dict(self), self._rows, self.valid, self.shapes, self.places)
        return Batch.of_columns, args


class _Exporter:
    """Only what the Arrow interface asks for."""

    def __init__(self, batch: Batch) -> None:
        self.__arrow_c_array__ = batch.__arrow_c_array__
