#!/usr/bin/env python3
"""Writes the golden files of the native shard, version 1, by its specification
(docs/formats/native-shard.md), without libsqrl: an independent implementation.

`make_native.py [DIRECTORY]`; needs msgpack, zstandard, lz4, xxhash. The files are never made
anew with other bytes: they are what all later versions must read. expected.txt has, for each
file and for the directory `set` (two commits, and one that is superseded): name, samples,
blocks, size and xxh3 of the payload, fingerprint of the commits or 0.
"""
import pathlib
import struct
import sys

import lz4.frame
import msgpack
import xxhash
import zstandard

SKIP, TRAILER_MAGIC, COMMIT_MAGIC = 0x184D2A53, b"\x89SQRL\r\n\x1a", b"\x89SQRI\r\n\x1a"


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def pack(value: object) -> bytes:
    return msgpack.packb(value, use_bin_type=True)


def array(dtype: str, shape: list[int], data: bytes) -> dict:
    """As msgpack-numpy 0.4.8 writes an array."""
    return {b"nd": True, b"type": dtype, b"kind": b"", b"shape": shape, b"data": data}


def zstd_frame(raw: bytes) -> tuple[bytes, int]:
    return zstandard.ZstdCompressor(level=3).compress(raw), 0


def zstd_stored(raw: bytes) -> tuple[bytes, int]:
    out = struct.pack("<IBBI", 0xFD2FB528, 0x80, 0x38, len(raw))
    for at in range(0, len(raw), 131072):
        piece = raw[at:at + 131072]
        out += struct.pack("<I", len(piece) << 3 | (at + len(piece) == len(raw)))[:3] + piece
    return out, 1


def lz4_frame(raw: bytes) -> tuple[bytes, int]:
    return lz4.frame.compress(raw, store_size=True), 0


def lz4_stored(raw: bytes) -> tuple[bytes, int]:
    head = struct.pack("<BBQ", 0x68, 0x70, len(raw))
    out = struct.pack("<I", 0x184D2204) + head + bytes([xxhash.xxh32_intdigest(head) >> 8 & 255])
    for at in range(0, len(raw), 4 << 20):
        piece = raw[at:at + (4 << 20)]
        out += struct.pack("<I", len(piece) | 1 << 31) + piece
    return out + bytes(4), 1


def skippable(tag: bytes, body: bytes) -> bytes:
    return struct.pack("<II", SKIP, 8 + len(body)) + tag + body


def leb128(n: int) -> bytes:
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def offsets_frame(blocks: list[list[bytes]]) -> tuple[bytes, dict]:
    sizes = [b"".join(leb128(len(sample)) for sample in block) for block in blocks]
    ends, total = b"", 0
    for piece in sizes:
        total += len(piece)
        ends += struct.pack("<Q", total)
    return skippable(b"sqrloffs", ends + b"".join(sizes)), {"kind": "offsets"}


def keys_frame(keys: list[bytes], field: str, bits: int) -> tuple[bytes, dict]:
    records = sorted((xxh3(key), i) for i, key in enumerate(keys))
    fan = [sum(h >> (64 - bits) < i for h, _ in records) for i in range((1 << bits) + 1)]
    body = struct.pack(f"<{len(fan)}Q", *fan) + b"".join(struct.pack("<QQ", *r) for r in records)
    return skippable(b"sqrlkeys", body), {"kind": "keys", "field": field, "count": len(keys),
                                          "bits": bits}


def column_frame(values: list[int], field: str) -> tuple[bytes, dict]:
    body = struct.pack(f"<{len(values)}q", *values)
    return skippable(b"sqrlcolm", body), {"kind": "column", "field": field, "dtype": "int64",
                                          "valid": False}


def shard(codec: str, blocks: list[list[bytes]], coders: list, schema: object,
          frames: list[tuple[bytes, dict]] = [], more: dict = {}) -> bytes:
    out, table = b"", b""
    for block, coder in zip(blocks, coders):
        stored, flags = coder(b"".join(block))
        table += struct.pack("<QQQIIQ", len(out), len(stored), sum(map(len, block)), len(block),
                             flags, xxh3(stored))
        out += stored
    entries = []
    for frame, entry in frames:
        entries.append({**entry, "offset": len(out), "size": len(frame), "checksum": xxh3(frame)})
        out += frame
    footer = {"version": 1, "writer": "make_native.py", "codec": codec,
              "samples": sum(map(len, blocks)), "raw_bytes": sum(len(s) for b in blocks for s in b),
              "schema": schema, "frames": entries, "blocks": table, **more}
    packed = pack(footer)
    head = struct.pack("<II", SKIP, 8 + len(packed) + 40) + b"sqrlfoot" + packed
    trailer = struct.pack("<QQQI", len(out), len(head), xxh3(head), 1)
    trailer += struct.pack("<I", xxh3(trailer) & 0xFFFFFFFF) + TRAILER_MAGIC
    return out + head + trailer


def shard_set(shards: list[tuple[str, bytes]], schema: object) -> dict:
    """What a commit says of shards."""
    table = chunks = b""
    samples = raw = 0
    for number, (_, data) in enumerate(shards):
        at, size, checksum = struct.unpack("<QQQ", data[-40:-16])
        footer = msgpack.unpackb(data[at + 16:at + size])
        blocks = len(footer["blocks"]) // 40
        table += struct.pack("<QQQQQ", len(data), footer["samples"], blocks, footer["raw_bytes"],
                             checksum)
        if blocks:
            chunks += struct.pack("<IIII", number, 0, blocks, footer["samples"])
        samples += footer["samples"]
        raw += footer["raw_bytes"]
    return {"samples": samples, "raw_bytes": raw, "schema": schema,
            "names": [name for name, _ in shards], "shards": table, "chunks": chunks}


def commit(shards: list[tuple[str, bytes]], supersedes: list[str], schema: object,
           **more: object) -> bytes:
    said = shard_set(shards, schema)
    order = ["samples", "raw_bytes", "supersedes", "schema", "names", "shards", "chunks"]
    said["supersedes"] = supersedes
    out = COMMIT_MAGIC + pack({"version": 1, "writer": "make_native.py",
                               **{key: said[key] for key in order}, **more})
    return out + struct.pack("<Q", xxh3(out))


def group_set(out: pathlib.Path) -> tuple[list[list[bytes]], int]:
    """A directory whose first shard was packed in two groups and the second whole; a third group
    was added to both. Blocks of the groups have sizes of their own. Returns whole samples and the
    fingerprint."""
    def part(fields: list[str], cuts: list[int], first: int, count: int, **group: object) -> bytes:
        rows = [pack({f: value(f, i) for f in fields}) for i in range(first, first + count)]
        cuts = [*cuts, count]
        blocks = [rows[a:b] for a, b in zip([0, *cuts], cuts)]
        more = {"group": {**group, "fields": fields}} if group else {}
        return shard("zstd", blocks, [zstd_frame] * len(blocks), [schema[f] for f in fields], [], more)

    def value(name: str, i: int) -> object:
        return {"id": i, "text": f"text {i}", "n": [i] * (i % 3)}[name]

    schema = {"id": field("id", "dense", 10, dtype="int64", shape=[], plain=True),
              "text": field("text", "string", 10),
              "n": field("n", "ragged", 10, dtype="int64", shape=[2], plain=True)}
    family = "0123456789abcdef" * 2
    base = part(["id"], [4, 8], 0, 10, family=family, name="ids", base=True)
    text = part(["text"], [], 0, 10, family=family, name="texts")
    whole = part(["id", "text"], [5], 10, 10)
    checksum = struct.unpack("<Q", whole[-24:-16])[0]
    families = [family, f"{checksum:016x}{xxh3(b'whole.sqrl'):016x}"]
    added = [part(["n"], [7], 10 * i, 10, family=families[i], name="later", added=True)
             for i in range(2)]
    files = {"part.sqrl": base, "part.texts.sqrl": text, "whole.sqrl": whole,
             "x-0.later.sqrl": added[0], "x-1.later.sqrl": added[1]}
    commits = {
        f"{5:016x}-{0x77:016x}": commit(
            [("part.sqrl", base)], [], [schema["id"]], requires=["groups"],
            groups=[{"group": {"name": "ids", "base": True, "fields": ["id"]}, "of": ["part.sqrl"]},
                    {"group": {"name": "texts", "fields": ["text"]}, "of": ["part.sqrl"],
                     **shard_set([("part.texts.sqrl", text)], [schema["text"]])}]),
        f"{6:016x}-{0x78:016x}": commit([("whole.sqrl", whole)], [], [schema["id"], schema["text"]]),
        f"{7:016x}-{0x79:016x}": commit(
            [], [], [], requires=["groups"],
            groups=[{"group": {"name": "later", "added": True, "fields": ["n"]},
                     "of": ["whole.sqrl", "part.sqrl", "gone.sqrl"],
                     **shard_set([("x-1.later.sqrl", added[1]), ("x-0.later.sqrl", added[0]),
                                  ("gone.later.sqrl", added[0])], [{**schema["n"], "seen": 30}])}])}
    (out / "_sqrl").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (out / name).write_bytes(data)
    for name, data in commits.items():
        (out / "_sqrl" / f"{name}.idx").write_bytes(data)
    (out / "_sqrl" / "list").write_text("".join(f"{name}.idx\n" for name in commits))
    rows = [pack({f: value(f, i) for f in schema}) for i in range(20)]
    blocks = [rows[:4], rows[4:8], rows[8:10], rows[10:15], rows[15:]]
    return blocks, xxh3(b"".join(data[-8:] for data in commits.values()))


def texts(first: int, count: int) -> list[bytes]:
    return [pack({"id": i, "text": f"line {i} " + "of the same words " * (i % 9)})
            for i in range(first, first + count)]


def images(count: int) -> list[bytes]:
    noise = b"".join(struct.pack("<Q", xxh3(bytes([i & 255, i >> 8]))) for i in range(count * 32))
    return [pack({"image": array("|u1", [16, 16], noise[i * 256:i * 256 + 256]),
                  "label": i % 10 - 5}) for i in range(count)]


def field(name: str, kind: str, seen: int, **more: object) -> dict:
    return {"name": name, "kind": kind, "seen": seen, "first": 0, **more}


def text_schema(seen: int) -> list[dict]:
    return [field("id", "dense", seen, dtype="int64", shape=[], plain=True),
            field("text", "string", seen)]


def main() -> None:
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    t, im = texts(0, 40), images(600)
    blocks = [t[:15], t[15:16], t[16:]]
    image_schema = [field("image", "dense", 600, dtype="uint8", shape=[16, 16]),
                    field("label", "dense", 600, dtype="int64", shape=[], plain=True, negative=True)]
    extra = [offsets_frame(blocks), keys_frame([f"key {i}".encode() for i in range(40)], "", 3),
             column_frame(list(range(40)), "id"),
             (skippable(b"sqrlnew!", b"of a later version"), {"kind": "later", "what": [1, {}]})]
    files = {
        "zstd": (blocks, shard("zstd", blocks, [zstd_frame] * 3, text_schema(40))),
        "lz4": (blocks, shard("lz4", blocks, [lz4_frame, lz4_stored, lz4_frame], text_schema(40),
                              [offsets_frame(blocks)])),
        "stored": ([im[:550], im[550:]], shard("zstd", [im[:550], im[550:]], [zstd_stored] * 2,
                                               image_schema, [offsets_frame([im[:550], im[550:]])])),
        "frames": (blocks, shard("zstd", blocks, [zstd_frame, zstd_stored, zstd_frame],
                                 text_schema(40), extra,
                                 {"later": {"a": [1, None]}, "requires": [],
                                  "group": {"family": "00" * 16, "name": "", "fields": ["id", "text"]}})),
        "bare": ([[pack(1), pack([1.5, None]), pack("x")]],
                 shard("zstd", [[pack(1), pack([1.5, None]), pack("x")]], [zstd_frame], None)),
        "empty": ([], shard("zstd", [], [], [])),
    }
    lines = []

    def expect(name: str, content: list[list[bytes]], fingerprint: int = 0) -> None:
        payload = b"".join(s for b in content for s in b)
        lines.append(f"{name} {sum(map(len, content))} {len(content)} {len(payload)} "
                     f"{xxh3(payload):016x} {fingerprint:016x}\n")

    for name, (content, data) in files.items():
        (out / f"{name}.sqrl").write_bytes(data)
        expect(f"{name}.sqrl", content)
    needs = shard("zstd", [], [], [], [], {"requires": ["something new"]})
    (out / "needs.bin").write_bytes(needs)
    folder = out / "set"
    (folder / "_sqrl").mkdir(parents=True, exist_ok=True)
    parts = [(f"part-{i}.sqrl", shard("zstd", [texts(10 * i, 10)], [zstd_frame], text_schema(10)))
             for i in range(3)]
    for name, data in parts:
        (folder / name).write_bytes(data)
    ids = [f"{i:016x}-{0x1234 + i:016x}" for i in range(3)]
    commits = [commit(parts[:1], [], text_schema(10)),
               commit([parts[2], parts[0]], [ids[0]], text_schema(20)),
               commit(parts[1:2], [], text_schema(10))]
    for name, data in zip(ids, commits):
        (folder / "_sqrl" / f"{name}.idx").write_bytes(data)
    (folder / "_sqrl" / "list").write_text("".join(f"{i}.idx\n" for i in ids[1:]))
    expect("set", [texts(20, 10), texts(0, 10), texts(10, 10)],
           xxh3(commits[1][-8:] + commits[2][-8:]))
    expect("groups", *group_set(out / "groups"))
    (out / "expected.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
