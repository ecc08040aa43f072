"""What squirrel asks: which sources this package has. Nothing is read before somebody opens one."""

from __future__ import annotations

from pathlib import Path

from squirrel.catalog import CatalogKey, Source
from squirrel.framework.plugins.hookimpl import hookimpl

HERE = Path(__file__).parent


@hookimpl
def squirrel_sources() -> list[tuple[CatalogKey, Source]]:
    return [
        (
            CatalogKey("pets", version),
            Source("jsonl", driver_kwargs={"url": str(HERE / f"pets-{version}.jsonl")}, metadata={"license": "CC0"}),
        )
        for version in (1, 2)
    ]
