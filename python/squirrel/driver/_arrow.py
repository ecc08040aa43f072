"""Arrow tables, one after another, as the data frames that the whole table's would be cut into."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    import pandas as pd

__all__ = ["frames"]


def frames(tables: Iterable[Any], nullable: set[str]) -> Iterator[pd.DataFrame]:
    """Data frames of the tables.

    A column of integers or booleans becomes one of floats or objects as soon as a null is in it. `nullable`
    names the columns for which that happens in the whole, so that it happens in each part.
    """
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    before = 0
    for table in tables:
        rows = table.num_rows
        df = table.to_pandas()
        for field in table.schema:
            if field.name not in nullable or field.name not in df.columns:
                continue
            if not isinstance(df[field.name].dtype, np.dtype):  # pandas' own types have room for a null
                continue
            if pa.types.is_integer(field.type) and df[field.name].dtype.kind in "iu":
                df[field.name] = df[field.name].astype("float64")
            elif pa.types.is_boolean(field.type) and df[field.name].dtype.kind == "b":
                df[field.name] = df[field.name].astype(object)
        if isinstance(df.index, pd.RangeIndex):
            start, step = _range(table.schema)
            begin = start + before * step
            df.index = pd.RangeIndex(begin, begin + rows * step, step, name=df.index.name)
        before += rows
        yield df


def _range(schema: Any) -> tuple[int, int]:
    """Start and step of the index that pandas described in the file."""
    index = ((schema.pandas_metadata or {}).get("index_columns") or [None])[0]
    if isinstance(index, dict) and index.get("kind") == "range":
        return int(index["start"]), int(index["step"])
    return 0, 1
