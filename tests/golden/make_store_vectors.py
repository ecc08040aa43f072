#!/usr/bin/env python3
"""Writes tests/golden/store/vectors.h: shards as squirrel-core 0.20.2 writes them, and what is in
them by Python's own json. Needs `pip install squirrel-core`; run from the project's root."""
import gzip
import json
import pathlib
import tempfile

import numpy as np
from squirrel.serialization import JsonSerializer, MessagepackSerializer
from squirrel.store import SquirrelStore

SAMPLES = [
    {"i": 0, "text": "Fran\u00e7ois \U0001f43f", "none": None, "yes": True},
    {"i": -129, "f": 0.1, "list": [1, 2.5, "three", [], {}], "nested": {"a": {"b": "c"}}},
    {"i": 2**63 - 1, "empty": "", "long": "x" * 300, "lines": "a\nb\t\"q\"\\"},
    "a string is a sample too",
    [1, [2, [3]]],
    {"array": np.arange(6, dtype=np.int32).reshape(2, 3), "i": 6},
    {"nan": float("nan"), "inf": float("-inf"), "i": 7},
]


def c_bytes(name: str, data: bytes) -> str:
    rows = [", ".join(f"0x{b:02x}" for b in data[i:i + 14]) for i in range(0, len(data), 14)]
    return f"static const unsigned char {name}[] = {{\n    " + ",\n    ".join(rows) + "};\n"


def shard(serializer, samples) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        SquirrelStore(folder, serializer).set(list(samples), "key")
        return (pathlib.Path(folder) / "key.gz").read_bytes()


def as_json(sample) -> str:
    def array(a):
        return {"data": a.tolist(), "type": a.dtype.str, "shape": list(a.shape)}
    return json.dumps(sample, ensure_ascii=False, default=array)


out = ["/* Made by tests/golden/make_store_vectors.py; not to be changed by hand. */\n"]
packed, lines = shard(MessagepackSerializer(), SAMPLES), shard(JsonSerializer(), SAMPLES)
out.append(c_bytes("store_messagepack", packed))
out.append(c_bytes("store_json", lines))
out.append(c_bytes("store_empty", shard(MessagepackSerializer(), [])))
out.append("/* What is in the gzip file store_messagepack. */\n")
out.append(c_bytes("store_payload", gzip.decompress(packed)))
out.append("/* All samples as JSON lines in UTF-8. */\n")
out.append(c_bytes("store_lines", "".join(as_json(s) + "\n" for s in SAMPLES).encode()))
out.append(f"enum {{ STORE_SAMPLES = {len(SAMPLES)} }};\n")
target = pathlib.Path(__file__).parent / "store" / "vectors.h"
target.parent.mkdir(exist_ok=True)
target.write_text("\n".join(out))
