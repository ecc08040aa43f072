"""What the extension module asks of Python: rare types, and the classes of batches."""

from __future__ import annotations

import sys

from squirrel._errors import CorruptError, UnsupportedError
from squirrel.batch import Batch, Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CATALOG_KEY_EXT = 1  # SQRL_CATALOG_KEY_EXT
CATALOG_TIME_EXT = 2  # SQRL_CATALOG_TIME_EXT

make_column = Column._of_slot
make_batch = Batch._of_slot


def dtype_from_description(described: tuple[Any, int], shape: tuple[int, ...]) -> Any:
    """The np.dtype of msgpack-numpy's text ("<U5") or list of fields; checks the data's size."""
    import numpy as np

    description, data_bytes = described
    try:
        dtype = np.dtype(_fields(description) if isinstance(description, list) else description)
    except (TypeError, ValueError, SyntaxError) as error:
        raise CorruptError(f"an array has the unreadable dtype {description!r}: {error}") from None
    if dtype.hasobject:
        raise UnsupportedError("an array of Python objects is pickle: it is refused")
    count = 1
    for length in shape:
        count *= length
    if count * dtype.itemsize != data_bytes:
        raise CorruptError(
            f"an array of {dtype} and shape {shape} needs {count * dtype.itemsize} bytes, "
            f"not {data_bytes}"
        )
    return dtype


def _fields(description: list[Any]) -> list[Any]:
    """Fields as np.dtype wants them: tuples, nested descriptions as lists again."""
    fields = []
    for field in description:
        name, kind, *rest = (_text(part) for part in field)
        if isinstance(kind, list):
            kind = _fields(kind)
        fields.append((name, kind, *(tuple(r) if isinstance(r, list) else r for r in rest)))
    return fields


def _text(part: Any) -> Any:
    return part.decode() if isinstance(part, bytes) else part


def make_ext(code: int, data: bytes) -> Any:
    """A MessagePack extension: msgpack's own classes where msgpack is installed."""
    try:
        from msgpack import ExtType, Timestamp  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        from squirrel.ext import ExtType, Timestamp
    if code == -1 and len(data) in (4, 8, 12):
        return Timestamp.from_bytes(data)
    return ExtType(code, data)


def split_ext(value: Any) -> tuple[int, bytes] | None:
    """(code, data) of an extension object, or None."""
    kinds = [sys.modules.get("squirrel.ext"), sys.modules.get("msgpack")]
    for module in kinds:
        if module is None:
            continue
        if isinstance(value, module.ExtType):
            return value.code, bytes(value.data)
        if isinstance(value, module.Timestamp):
            return -1, value.to_bytes()
    return None


def make_catalog_key(code: int, data: bytes) -> Any:
    """An extension in a catalog: a CatalogKey, or any other."""
    from squirrel import _native
    from squirrel.catalog import CatalogKey

    if code == CATALOG_TIME_EXT:
        return _time_of(data.decode())
    return CatalogKey(*_native.decode(data)) if code == CATALOG_KEY_EXT else make_ext(code, data)


TIME = (
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.(\d{0,6}))?"
    r"[ \t]*(?:(Z)|([-+])(\d\d?)(?::(\d\d))?)?"
)


def _time_of(text: str) -> Any:
    """A date or time as YAML writes it."""
    import re
    from datetime import date, datetime, timedelta, timezone

    if len(text) == 10:
        return date.fromisoformat(text)
    found = re.fullmatch(TIME, text)
    if found is None:
        raise ValueError(f"no date or time: {text!r}")
    *numbers, fraction, utc, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    zone = timezone(-offset if sign == "-" else offset) if utc or sign else None
    year, month, day, hour, minute, second = map(int, numbers)
    micros = int((fraction or "").ljust(6, "0"))
    return datetime(year, month, day, hour, minute, second, micros, zone)


def split_catalog_key(value: Any) -> tuple[int, bytes] | None:
    """(code, data) of a CatalogKey or another extension object in a catalog, or None."""
    from squirrel import _native
    from squirrel.catalog import CatalogKey

    if isinstance(value, CatalogKey):
        return CATALOG_KEY_EXT, _native.encode([value.identifier, value.version])
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, datetime.date):
        exact = isinstance(value, datetime.datetime)
        return CATALOG_TIME_EXT, (value.isoformat(" ") if exact else value.isoformat()).encode()
    return split_ext(value)


def sibling_workers() -> int:
    """How many processes of a DataLoader this one is among."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return info.num_workers if info is not None else 1
