"""Source: what opens a data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Source"]


@dataclass(repr=False)
class Source:
    """What opens a data set: a driver's name, its arguments, and free metadata.

    Attributes:
        driver_name: as a driver's class has it in ``name``, e.g. "sqrl", "messagepack", "jsonl".
        driver_kwargs: what the driver is made with, e.g. {"url": "data/train"}. A relative url
            is relative to the working directory.
        metadata: whatever YAML can hold.
    """

    driver_name: str
    driver_kwargs: dict[str, Any] | None = field(default_factory=dict)
    metadata: dict[str, Any] | None = field(default_factory=dict)

    def _described(self) -> dict[str, Any]:
        return {
            "driver_name": self.driver_name,
            "driver_kwargs": self.driver_kwargs,
            "metadata": self.metadata,
        }

    def __repr__(self) -> str:
        import json

        return json.dumps(self._described(), indent=2, default=str)
