"""MessagePack extensions where the package msgpack is not installed."""

from __future__ import annotations

import struct
from collections import namedtuple

# code: -128 to 127; data: bytes.
ExtType = namedtuple("ExtType", ["code", "data"])


class Timestamp:
    """MessagePack's extension -1: seconds since 1970 and nanoseconds (0 to 999,999,999)."""

    __slots__ = ("seconds", "nanoseconds")

    def __init__(self, seconds: int, nanoseconds: int = 0) -> None:
        if not 0 <= nanoseconds < 10**9:
            raise ValueError("nanoseconds must be 0 to 999999999")
        self.seconds = seconds
        self.nanoseconds = nanoseconds

    @classmethod
    def from_bytes(cls, data: bytes) -> Timestamp:
        """Reads the forms of 4, 8 and 12 bytes."""
        if len(data) == 4:
            return cls(struct.unpack(">I", data)[0])
        if len(data) == 8:
            (both,) = struct.unpack(">Q", data)
            return cls(both & (1 << 34) - 1, both >> 34)
        nanoseconds, seconds = struct.unpack(">Iq", data)
        return cls(seconds, nanoseconds)

    def to_bytes(self) -> bytes:
        """The shortest form."""
        if self.seconds >> 34 == 0:
            both = self.nanoseconds << 34 | self.seconds
            return struct.pack(">I", both) if both < 1 << 32 else struct.pack(">Q", both)
        return struct.pack(">Iq", self.nanoseconds, self.seconds)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timestamp):
            return NotImplemented
        return (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds)

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanoseconds))

    def __repr__(self) -> str:
        return f"Timestamp(seconds={self.seconds}, nanoseconds={self.nanoseconds})"
