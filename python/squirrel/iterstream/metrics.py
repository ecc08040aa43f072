"""What monitor() reports, and the two rates as functions."""

from __future__ import annotations

from dataclasses import asdict, dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MetricsConf", "metrics_iops", "metrics_throughput"]

_UNITS = {"bytes": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass
class MetricsConf:
    """Which rates are reported, and in what unit.

    Attributes:
        iops: items per second; otherwise 0 is reported.
        throughput: bytes per second; otherwise 0 is reported and no item is measured.
        throughput_unit: "bytes", "KB", "MB" or "GB": powers of 1024.
    """

    iops: bool = True
    throughput: bool = True
    throughput_unit: str = "MB"

    def asdict(self) -> dict[str, Any]:
        """The fields as a dict."""
        return asdict(self)


def unit_bytes(unit: str) -> int:
    """Bytes of a unit; one that is not known counts as bytes, with a warning."""
    if unit not in _UNITS:
        from logging import getLogger

        getLogger("squirrel").warning(
            'throughput_unit %r is none of "bytes", "KB", "MB", "GB": bytes are reported', unit
        )
    return _UNITS.get(unit, 1)


def metrics_iops(count: int, duration: float) -> float:
    """Items per second of `count` items in `duration` seconds, to two decimals."""
    return round(count / duration, 2)


def metrics_throughput(size: float, duration: float, unit: str = "bytes") -> float:
    """Units per second of `size` bytes in `duration` seconds, to two decimals."""
    return round(size / unit_bytes(unit) / duration, 2)
