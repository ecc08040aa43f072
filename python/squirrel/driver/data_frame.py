"""Tables, read by pandas or dask."""

from __future__ import annotations

from abc import abstractmethod

from squirrel.driver.file import FileDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Literal

    import pandas as pd

    from squirrel.constants import URL
    from squirrel.iterstream.base import Composable

    DataFrame = Any
    ENGINE = Literal["dask", "pandas"]

__all__ = ["DataFrameDriver"]


class DataFrameDriver(FileDriver):
    """A file that pandas or dask reads as a data frame.

    Args:
        url: path or URL of the file.
        storage_options: of fsspec's file system; a cache is ``{"protocol": "simplecache",
            "target_protocol": "gs", "cache_storage": "/tmp/cache"}``.
        engine: "pandas" or, where the format allows, "dask"; imported when it is used.
        df_hooks: functions of the whole data frame, each of which gives the next one its data frame.
        read_kwargs: arguments of the function that reads, e.g. of ``pandas.read_csv``.
        **kwargs: of :class:`squirrel.driver.Driver`.

    Subclasses define ``_read``, and ``_read_parts`` where the format can be read in parts.

    Raises:
        ValueError: there is no such engine, or it does not read the format.
    """

    _dask_reads = True

    def __init__(
        self,
        url: URL,
        storage_options: dict[str, Any] | None = None,
        engine: ENGINE = "pandas",
        df_hooks: Iterable[Callable[..., Any]] | None = None,
        read_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(url=url, storage_options=storage_options, **kwargs)
        if engine not in ("pandas", "dask"):
            raise ValueError(f'engine must be "pandas" or "dask", not {engine!r}')
        if engine == "dask" and not self._dask_reads:
            raise ValueError(f'Dask does not support reading {self.name} files: use engine="pandas"')
        self.engine = engine
        self.df_hooks = df_hooks or []
        self.read_kwargs = read_kwargs or {}

    @abstractmethod
    def _read(self, **kwargs: Any) -> DataFrame | pd.DataFrame:
        """The whole file as a data frame."""

    def _read_parts(self, **kwargs: Any) -> Iterator[pd.DataFrame] | None:
        """Data frames that together are the file's, each with its part of the index; None: it can't be read so."""
        return None

    def _options(self, read_kwargs: dict[str, Any] | None) -> dict[str, Any]:
        return {**self.read_kwargs, **(read_kwargs or {})}

    def _read_handle_kwargs(self, **kwargs: Any) -> DataFrame | pd.DataFrame:
        """The data frame, read with the driver's and these arguments, of which these win; hooks are not applied."""
        return self._read(**self._options(kwargs))

    def get_df(self, **read_kwargs: Any) -> DataFrame | pd.DataFrame:
        """The file as a data frame, as the hooks leave it.

        Args:
            **read_kwargs: beside, and before, the driver's own.
        """
        df = self._read_handle_kwargs(**read_kwargs)
        for hook in self.df_hooks:
            df = hook(df)
        return df

    def get_iter(
        self, itertuples_kwargs: dict[str, Any] | None = None, read_kwargs: dict[str, Any] | None = None
    ) -> Composable:
        """A stream of the rows as named tuples; each pass reads the file again.

        CSV, Parquet and Feather files are read in parts, so that one part is in memory at a time. Hooks and
        arguments that concern the whole data frame have it read as a whole.

        Args:
            itertuples_kwargs: of the data frame's ``itertuples``: ``index``, ``name``.
            read_kwargs: beside, and before, the driver's own.
        """
        from squirrel.iterstream.source import IterableSource

        rows = _Rows(self, itertuples_kwargs or {}, read_kwargs or {})
        return IterableSource(rows)

    def _engine(self, name: str) -> Any:
        """The module that reads; `name` is the format, for the message."""
        if self.engine == "dask":
            try:
                import dask.dataframe
            except ImportError as error:
                raise ImportError(f'engine="dask" needs it: pip install "dask[dataframe]" ({error})') from error
            return dask.dataframe
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"{name} files are read by pandas: pip install pandas ({error})") from error
        return pandas

    def _located(self) -> dict[str, Any]:
        """storage_options for a reader that takes them; none for local files."""
        if self.storage_options and not self._local():
            return {"storage_options": self.storage_options}
        return {}

    def _local(self) -> bool:
        from squirrel._remote import is_local

        return is_local(str(self.url))

    def _file(self) -> Any:
        """The file, opened for binary reading through the driver's storage options: a cache works so."""
        return self.open(mode="rb")


class _Rows:
    """What gives the rows of one pass; pickles with its driver."""

    def __init__(self, driver: DataFrameDriver, itertuples_kwargs: dict[str, Any], read_kwargs: dict[str, Any]) -> None:
        self.driver = driver
        self.itertuples_kwargs = itertuples_kwargs
        self.read_kwargs = read_kwargs

    def __call__(self) -> Iterator[Any]:
        driver = self.driver
        parts = None
        if driver.engine == "pandas" and not driver.df_hooks:
            parts = driver._read_parts(**driver._options(self.read_kwargs))
        if parts is None:
            parts = iter([driver.get_df(**self.read_kwargs)])
        for part in parts:
            yield from part.itertuples(**self.itertuples_kwargs)
