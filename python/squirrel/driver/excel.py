"""Excel."""

from __future__ import annotations

from squirrel.driver.data_frame import DataFrameDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pandas as pd

    from squirrel.constants import URL

__all__ = ["ExcelDriver"]


class ExcelDriver(DataFrameDriver):
    """A sheet of an Excel file. The format can't be read in parts.

    Args:
        url: path or URL of the file; what ``pandas.read_excel`` takes.
        **kwargs: of :class:`DataFrameDriver`; dask does not read Excel.
    """

    name = "excel"
    _dask_reads = False

    def __init__(self, url: URL, **kwargs: Any) -> None:
        super().__init__(url, **kwargs)

    def _read(self, **kwargs: Any) -> pd.DataFrame:
        """The whole sheet."""
        reader = self._engine("Excel")
        with self._file() as file:
            return reader.read_excel(file, **kwargs)
