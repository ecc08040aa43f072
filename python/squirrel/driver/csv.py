"""Comma-separated values."""

from __future__ import annotations

from squirrel.driver.data_frame import DataFrameDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import pandas as pd

    from squirrel.constants import URL

    DataFrame = Any

__all__ = ["CsvDriver"]

_ROWS = 100_000
# With these, a part of the file is not what the same rows are in the whole.
_WHOLE = {"chunksize", "iterator", "skipfooter", "index_col", "engine", "dtype_backend"}


class CsvDriver(DataFrameDriver):
    """A CSV file.

    Args:
        url: path or URL of the file; what ``pandas.read_csv`` or ``dask.dataframe.read_csv`` take.
        *args, **kwargs: of :class:`DataFrameDriver`.
    """

    name = "csv"

    def __init__(self, url: URL, *args: Any, **kwargs: Any) -> None:
        super().__init__(url, *args, **kwargs)

    def _read(self, **kwargs: Any) -> DataFrame | pd.DataFrame:
        """The whole file."""
        reader = self._engine("CSV")
        if self.engine == "dask":
            return reader.read_csv(self.url, **{**self._located(), **kwargs})
        with self._file() as file:
            return reader.read_csv(file, **_told(self.url, kwargs))

    def _read_parts(self, **kwargs: Any) -> Iterator[pd.DataFrame] | None:
        if _WHOLE & set(kwargs):
            return None
        return self._parts(_told(self.url, kwargs))

    def _parts(self, kwargs: dict[str, Any]) -> Iterator[pd.DataFrame]:
        """Parts of 100,000 rows, with the columns' types of the whole: a larger file is looked through first."""
        with self._file() as file, self._engine("CSV").read_csv(file, chunksize=_ROWS, **kwargs) as parts:
            first = next(iter(parts), None)
            if first is None:
                return
            second = next(iter(parts), None) if len(first) == _ROWS else None
            if second is None:
                yield first
                return
            types = _common_types([first.dtypes, second.dtypes, *(part.dtypes for part in parts)])
        del first, second
        given = kwargs.get("dtype")
        if isinstance(given, dict):
            types = {**types, **given}
        if given is None or isinstance(given, dict):
            kwargs = {**kwargs, "dtype": types}
        with self._file() as file, self._engine("CSV").read_csv(file, chunksize=_ROWS, **kwargs) as parts:
            yield from parts


def _told(url: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """pandas infers the compression from a name, and gets a file here."""
    if kwargs.get("compression", "infer") != "infer":
        return kwargs
    endings = {".gz": "gzip", ".bz2": "bz2", ".zip": "zip", ".xz": "xz", ".zst": "zstd"}
    found = [kind for ending, kind in endings.items() if str(url).lower().endswith(ending)]
    return {**kwargs, "compression": found[0] if found else None}


def _common_types(dtypes: list[pd.Series]) -> dict[str, Any]:
    """For columns whose type differs between the parts, the type that the whole would have."""
    import numpy as np

    types: dict[str, Any] = {}
    for column in dtypes[0].index:
        seen = {str(part[column]): part[column] for part in dtypes}
        if len(seen) == 1:
            continue
        kinds = {getattr(dtype, "kind", "O") for dtype in seen.values()}
        if kinds <= set("iuf"):
            types[column] = np.result_type(*seen.values())
        elif "b" not in kinds:  # booleans among others stay what they are, row by row
            types[column] = str
    return types
