"""Fixtures for a conftest.py::

    from squirrel.integration_test.shared_fixtures import *

None of them needs a network: where squirrel-core's wrote to a bucket, these write to memory.
"""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING, Iterator, List

import pytest

from squirrel.constants import SQUIRREL_TMP_DATA_BUCKET  # noqa: F401
from squirrel.integration_test.helpers import SHAPE, create_torch_mock

if TYPE_CHECKING:
    from pathlib import Path
    from unittest.mock import MagicMock

    from squirrel.constants import URL

__all__ = ["array_shape", "keys", "test_gcs_url", "test_path", "torch_mock", "torch_worker", "torch_world"]


@pytest.fixture
def keys() -> List[str]:
    """The keys of four shards."""
    return ["1", "2", "3", "4"]


@pytest.fixture
def array_shape() -> SHAPE:
    """The shape of an image."""
    return (3, 5, 5)


@pytest.fixture
def test_gcs_url() -> str:
    """A place that is not local: ``memory://`` and a random name."""
    return "memory://test-data/tmp/" + "".join(random.choices(string.ascii_lowercase, k=20))


@pytest.fixture(params=["local", "gcs"])
def test_path(request: pytest.FixtureRequest, tmp_path: Path, test_gcs_url: str) -> Iterator[URL]:
    """A test that uses it runs twice: with a local path, and with :func:`test_gcs_url`. What it wrote is removed."""
    if request.param == "local":
        yield str(tmp_path)
        return
    from squirrel.fsspec.fs import get_fs_from_url

    yield test_gcs_url
    fs = get_fs_from_url(test_gcs_url)
    if fs.exists(test_gcs_url):
        fs.rm(test_gcs_url, recursive=True)


@pytest.fixture(params=[(0, 1), (0, 2), (1, 2)])
def torch_worker(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Number of a DataLoader worker, and how many there are."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(0, 1), (0, 2), (1, 2)])
def torch_world(request: pytest.FixtureRequest) -> tuple[int, int]:
    """A rank, and how many there are."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def torch_mock(torch_worker: tuple[int, int], torch_world: tuple[int, int]) -> MagicMock:
    """Something that answers for torch, see :func:`create_torch_mock`."""
    return create_torch_mock(torch_worker, torch_world)
