"""Google Cloud Storage, tried again where it answers 400 for no reason."""

from __future__ import annotations

from typing import Any

import gcsfs
import gcsfs.retry
from gcsfs import GCSFileSystem
from gcsfs.retry import HttpError

__all__ = ["CustomGCSFileSystem", "custom_retry"]

_gcsfs_retries = gcsfs.retry.is_retriable


def custom_retry(exception: Exception) -> bool:
    """Whether a request that failed is made again: what gcsfs repeats, and HTTP code 400.

    Google sometimes answers 400 for a request that it grants the next time.
    """
    if isinstance(exception, HttpError) and str(getattr(exception, "code", "")) == "400":
        return True
    return bool(_gcsfs_retries(exception))


class CustomGCSFileSystem(GCSFileSystem):  # type: ignore[misc]
    """gcsfs's file system with :func:`custom_retry`."""

    def __init__(self, token: str = "google_default", access: str = "read_write", **kwargs: Any) -> None:
        """See ``gcsfs.GCSFileSystem``."""
        super().__init__(token=token, access=access, **kwargs)
        gcsfs.retry.is_retriable = custom_retry
