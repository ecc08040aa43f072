"""Drivers: what a catalog's source names, and what opens its data."""

from squirrel.driver.csv import CsvDriver
from squirrel.driver.data_frame import DataFrameDriver
from squirrel.driver.driver import Driver, IterDriver, MapDriver
from squirrel.driver.excel import ExcelDriver
from squirrel.driver.feather import FeatherDriver
from squirrel.driver.file import FileDriver
from squirrel.driver.jsonl import JsonlDriver
from squirrel.driver.msgpack import MessagepackDriver
from squirrel.driver.native import IdxDriver, NativeDriver, SqrlDriver, driver_class
from squirrel.driver.parquet import ParquetDriver
from squirrel.driver.source_combiner import SourceCombiner
from squirrel.driver.store import StoreDriver
from squirrel.driver.zarr import ZarrDriver

__all__ = [
    "CsvDriver",
    "DataFrameDriver",
    "Driver",
    "ExcelDriver",
    "FeatherDriver",
    "FileDriver",
    "IdxDriver",
    "IterDriver",
    "JsonlDriver",
    "MapDriver",
    "MessagepackDriver",
    "NativeDriver",
    "ParquetDriver",
    "SourceCombiner",
    "SqrlDriver",
    "StoreDriver",
    "ZarrDriver",
    "driver_class",
]
