"""Feather."""

from __future__ import annotations

from squirrel.driver.data_frame import DataFrameDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import pandas as pd

    from squirrel.constants import URL

    DataFrame = Any

__all__ = ["FeatherDriver"]


class FeatherDriver(DataFrameDriver):
    """A Feather file.

    Args:
        url: path or URL of the file; what ``pandas.read_feather`` takes.
        *args, **kwargs: of :class:`DataFrameDriver`; dask does not read Feather.
    """

    name = "feather"
    _dask_reads = False

    def __init__(self, url: URL, *args: Any, **kwargs: Any) -> None:
        super().__init__(url, *args, **kwargs)

    def _read(self, **kwargs: Any) -> pd.DataFrame:
        """The whole file."""
        reader = self._engine("feather")
        with self._file() as file:
            return reader.read_feather(file, **kwargs)

    def _read_parts(self, **kwargs: Any) -> Iterator[pd.DataFrame] | None:
        if set(kwargs) - {"columns"}:
            return None
        self._engine("feather")
        with self._file() as file:
            if file.read(6) != b"ARROW1":  # version 1 of Feather has no parts
                return None
        return self._parts(kwargs.get("columns"))

    def _parts(self, columns: list[str] | None) -> Iterator[pd.DataFrame]:
        """One record batch after another."""
        import pyarrow as pa

        from squirrel.driver._arrow import frames

        with self._file() as file:
            batches = pa.ipc.open_file(file)
            nullable: set[str] = set()
            for i in range(batches.num_record_batches):  # only what may change its type is looked at
                batch = batches.get_batch(i)
                nullable.update(name for name in batch.schema.names if batch.column(name).null_count)
            numbers = range(batches.num_record_batches)
            tables: Iterator[Any] = (pa.Table.from_batches([batches.get_batch(i)]) for i in numbers)
            if batches.num_record_batches == 0:
                tables = iter([batches.read_all()])
            if columns is not None:
                tables = (table.select(columns) for table in tables)
            yield from frames(tables, nullable)
