#!/usr/bin/env python3
"""Writes the golden index beside this script, from docs/formats/sidecar.md alone (needs msgpack, xxhash, zstandard).

lines.jsonl.gz has two members; the second is gone on from in its middle, at a block that zlib's full flush began.
"""
import gzip
import json
import pathlib
import zlib

import msgpack
import xxhash
import zstandard

HERE = pathlib.Path(__file__).resolve().parent
LINES = [json.dumps({"i": i, "text": f"line {i}"}).encode() + b"\n" for i in range(60)]


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def u(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def main() -> None:
    first, second, third = (b"".join(LINES[a : a + 20]) for a in (0, 20, 40))
    deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
    head = gzip.compress(first, 6, mtime=0)
    # A sync flush ends at a byte and keeps the window.
    middle = deflate.compress(second) + deflate.flush(zlib.Z_SYNC_FLUSH)
    tail = deflate.compress(third) + deflate.flush()
    data = head + middle + tail
    (HERE / "lines.jsonl.gz").write_bytes(data)
    window = zstandard.ZstdCompressor().compress(second[-32768:])
    points = b"".join(u(at, 8) + u(raw, 8) + u(0, 8) + u(stored, 4) + u(size, 4) + bytes(8) for at, raw, stored, size in (
        (0, 0, 0, 0), (len(head), len(first), 0, 0),
        (len(head + middle), len(first + second), len(window), len(second))))
    blocks, at = b"", 0
    for point, block in enumerate((first, second, third)):
        blocks += u(at, 8) + u(len(block), 8) + u(xxh3(block), 8) + u(20, 4) + u(point, 4) + bytes(8)
        at += len(block)
    content = b"\x89SQRS\r\n\x1a" + msgpack.packb({
        "version": 1, "writer": "make_sidecar.py", "format": "jsonl", "codec": "gzip", "file_bytes": len(data),
        "samples": 60, "raw_bytes": at, "schema": None, "blocks": blocks, "points": points, "windows": window,
        "unknown": [1, 2]})
    (HERE / "_index").mkdir(exist_ok=True)
    (HERE / "_index" / "lines.jsonl.gz.sqri").write_bytes(content + u(xxh3(content), 8))


if __name__ == "__main__":
    main()
