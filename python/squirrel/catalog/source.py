"""Source: what opens a data set."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Source"]


@dataclass
class Source:
    """What opens a data set: a driver's name, its arguments, and free metadata.

    Attributes:
        driver_name: as :func:`squirrel.drivers` lists it, e.g. "sqrl", "messagepack", "jsonl".
        driver_kwargs: what the driver is made with, e.g. {"url": "data/train"}. A relative url
            is relative to the working directory.
        metadata: whatever YAML can hold.
    """

    driver_name: str
    driver_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
