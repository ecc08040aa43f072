"""fsspec's file systems, with more patience for Google's.

Any URL that fsspec knows can be read. The library reads local files itself and everything else through
fsspec; caches (``simplecache``, ``filecache``, ``blockcache``) are asked for in ``storage_options``::

    {"protocol": "simplecache", "target_protocol": "s3", "cache_storage": "/tmp/cache"}
"""
