"""Which zarr is installed."""

import zarr

ZARR_2 = int(zarr.__version__.split(".")[0]) < 3
