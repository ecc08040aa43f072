"""zarr groups over fsspec, listed with one request; zarr 2 and zarr 3.

With zarr 3, groups that are made here are of zarr's format 2, which both read.
"""
