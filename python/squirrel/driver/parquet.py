"""Parquet."""

from __future__ import annotations

from squirrel.driver.data_frame import DataFrameDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import pandas as pd

    from squirrel.constants import URL

    DataFrame = Any

__all__ = ["ParquetDriver"]


class ParquetDriver(DataFrameDriver):
    """A Parquet file, or a directory of them.

    Args:
        url: path or URL; what ``pandas.read_parquet`` or ``dask.dataframe.read_parquet`` take.
        *args, **kwargs: of :class:`DataFrameDriver`.
    """

    name = "parquet"

    def __init__(self, url: URL, *args: Any, **kwargs: Any) -> None:
        super().__init__(url, *args, **kwargs)

    def _read(self, **kwargs: Any) -> DataFrame | pd.DataFrame:
        """The whole file or directory."""
        reader = self._engine("Parquet")
        if self.engine == "dask" or not self._is_file():
            return reader.read_parquet(self.url, **{**self._located(), **kwargs})
        with self._file() as file:
            return reader.read_parquet(file, **kwargs)

    def _is_file(self) -> bool:
        from squirrel.fsspec.fs import get_fs_from_url

        return bool(get_fs_from_url(self.url, **self.storage_options).isfile(str(self.url)))

    def _read_parts(self, **kwargs: Any) -> Iterator[pd.DataFrame] | None:
        if set(kwargs) - {"columns"} or not self._is_file():
            return None
        return self._parts(kwargs.get("columns"))

    def _parts(self, columns: list[str] | None) -> Iterator[pd.DataFrame]:
        """One row group after another."""
        import pyarrow.parquet

        from squirrel.driver._arrow import frames

        self._engine("Parquet")
        with self._file() as file:
            parquet = pyarrow.parquet.ParquetFile(file)
            wanted = {"columns": columns, "use_pandas_metadata": True}
            groups = range(parquet.num_row_groups)
            tables: Iterator[Any] = (parquet.read_row_group(i, **wanted) for i in groups)
            if parquet.num_row_groups == 0:
                tables = iter([parquet.read(**wanted)])
            yield from frames(tables, _nullable(parquet.metadata))


def _nullable(metadata: Any) -> set[str]:
    """The columns that hold a null somewhere, or don't say."""
    names = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for i in range(row_group.num_columns):
            column = row_group.column(i)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                names.add(column.path_in_schema)
    return names
