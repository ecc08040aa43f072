"""The samples that both sides make for themselves and compare: squirrel-core's process imports this file too, so it
needs NumPy (1 or 2) alone."""

from __future__ import annotations

import json
import math
import random
from datetime import datetime

import numpy as np

# Every dtype that msgpack-numpy writes but object, in both byte orders where there are two.
DTYPES = [
    *("?", "i1", "u1"),
    *(order + code for order in "<>" for code in ("i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")),
    *("<f16", "<c32"),
    *("S1", "S5", "<U1", "<U7", ">U7", "V3"),
]
TIMES = ["<M8[ns]", "<M8[us]", "<M8[D]", ">M8[s]", "<m8[ms]", "<m8[25m]"]
STRUCTURES = [
    [("x", "<f4"), ("y", ">i2")],
    [("name", "<U5"), ("raw", "S3")],
    [("point", "<f8", (3,)), ("flag", "?")],
    [("outer", [("a", "u1"), ("b", "<i4", (2, 2))]), ("n", "<i8")],
]


def array(dtype: object, shape: tuple[int, ...]) -> np.ndarray:
    """Some array of the dtype; the same on every version of NumPy."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    draw = random.Random(f"{dtype}{shape}")
    if dtype.kind == "U":
        texts = ["", "a", "é", "日本", "\U0001f600z", "longest"]
        return np.array([draw.choice(texts) for _ in range(count)], dtype).reshape(shape)
    if dtype.kind in "fc":
        special = [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1 / 3]
        flat = np.array([draw.choice(special) for _ in range(count)], dtype)
        if dtype.kind == "c":
            flat.imag = [draw.choice(special[:4]) for _ in range(count)]
        if dtype.char in "gG":  # 10 bytes of each 16 count; the others would be what was in memory
            flat.view(np.uint8).reshape(-1, 16)[:, 10:] = 0
        return flat.reshape(shape)
    if dtype.kind == "b":
        return np.array([draw.random() < 0.5 for _ in range(count)], dtype).reshape(shape)
    if dtype.names:
        whole = np.zeros(shape, dtype)
        for name in dtype.names:
            field = dtype[name]
            base, inner = field.subdtype or (field, ())
            whole[name] = array(base, (*shape, *inner))
        return whole
    size = count * dtype.itemsize
    return np.frombuffer(bytes(draw.randrange(1, 256) for _ in range(size)) or b"", dtype, count).reshape(shape)


def plain() -> list[dict]:
    """What MessagePack has types for."""
    integers = [0, 1, -1, 23, 127, 128, -32, -33, -128, -129, 2**15, -(2**15) - 1, 2**16, 2**31, 2**32 - 1, 2**32,
                2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
    floats = [0.0, -0.0, 0.1, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
    texts = ["", "text", "é€𝄞", "\x00\x1f\x7f\x80\u2028", '"\\/\b\f\n\r\t', "x" * 31, "x" * 32, "y" * 300, "ü" * 70_000]
    return [
        {},
        {"none": None, "true": True, "false": False},
        {"integers": integers, "floats": floats},
        {f"text{i}": text for i, text in enumerate(texts)},
        {"bytes": b"", "more": bytes(range(256)), "many": b"z" * 70_000},
        {"empty": [], "dict": {}, "deep": {"er": [{"a": [1, [2, [3, {"end": None}]]]}, "text", 2.5]}},
        {"tuple": (1, "two", (3.0,))},
        {"é": 1, "日本": {"\U0001f600": [None]}, "": 0, "with.dot": 1},
        {str(i): i for i in range(70_000)},
        {"depth": nested(100)},
        {"complex": 1 + 2j, "minus": complex(-0.0, -1.5)},
    ]


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def arrays() -> list[dict]:
    """Arrays of every dtype: of no, one and three dimensions, empty, in other orders of memory; and scalars."""
    samples: list[dict] = []
    for dtype in [*DTYPES, *STRUCTURES]:
        cube = array(dtype, (2, 3, 4))
        samples.append({
            "dtype": str(dtype), "point": array(dtype, ()), "line": array(dtype, (5,)), "cube": cube,
            "empty": array(dtype, (0,)), "hollow": array(dtype, (3, 0, 2)), "fortran": np.asfortranarray(cube),
            "strided": cube[:, ::2, ::-1], "one": array(dtype, (1, 1)),
        })
    for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "c8", "c16"):
        samples.append({"scalar": np.ones((), code)[()], "among": [np.ones((), code)[()], 2]})
    samples.append({"double": np.float64(1 / 3), "text": np.str_("é"), "bytes": np.bytes_(b"\x80")})
    samples.append({"large": array("<i4", (300, 1000))})
    samples.append({"in": [{"list": array("u1", (3,))}, (array("<f8", (2, 2)),)]})
    samples.append({"dims": array("u1", (1,) * 32)})
    samples += [{"fortran": np.asfortranarray(array(dtype, (2, 3)))} for dtype in TIMES]
    return samples


def times() -> list[dict]:
    """Arrays of times. msgpack-numpy reads them, but writes those alone that are not contiguous (NumPy lends no buffer
    of them)."""
    return [{"point": array(dtype, ()), "line": array(dtype, (5,)), "cube": array(dtype, (2, 3, 4)),
             "record": array([("at", dtype), ("n", "u1")], (3,))} for dtype in TIMES]


def lines() -> list[dict]:
    """What Python's json has types for, and the arrays that squirrel-core writes as JSON and reads again."""
    samples = [sample for sample in plain() if not any(isinstance(v, (bytes, complex)) for v in sample.values())]
    times = ("<M8[ns]", "<m8[ns]")
    for dtype in [d for d in DTYPES if np.dtype(d).kind in "biuf" and np.dtype(d).itemsize <= 8] + list(times):
        cube = array(dtype, (2, 3, 4))
        samples.append({"point": array(dtype, ()), "line": array(dtype, (5,)), "cube": cube,
                        "empty": array(dtype, (0,)), "fortran": np.asfortranarray(cube)})
    for dtype in ("<U1", "<U7", ">U7"):
        samples.append({"texts": array(dtype, (2, 3)), "text": array(dtype, ())})
    integers = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
    samples += [{"scalar": np.full((), 7, code)[()]} for code in integers]
    samples += [{"scalar": np.full((), 1 / 3, code)[()]} for code in ("f2", "f4", "f8")]
    draw = random.Random(3)
    samples.append({"floats": [draw.uniform(-1, 1) * 10.0 ** draw.randrange(-30, 30) for _ in range(2000)]})
    samples.append({"narrow": array("<f4", (50,)), "third": np.float32(1 / 3), "half": np.float16(0.1)})
    return samples


def keyed() -> list[dict]:
    """Keys that Python's json turns into texts."""
    return [{1: "int", -5: 0, 2**64 - 1: 0}, {0.5: "float", 1e300: 0}, {True: 1, None: 2}, {"mixed": {3: {4: []}}}]


SETS = {"plain": plain, "arrays": arrays, "times": times, "lines": lines, "keyed": keyed}


def as_read(name: str) -> list[dict]:
    """The samples as a reader gives them: JSON makes plain numbers of NumPy's scalars and texts of keys; for
    MessagePack see as_unpacked."""
    samples = SETS[name]()
    if name == "keyed":
        return [json.loads(json.dumps(sample)) for sample in samples]
    if name == "lines":
        return [{k: v.item() if isinstance(v, np.generic) else v for k, v in sample.items()} for sample in samples]
    if name == "arrays":
        return [{k: as_unpacked(v) for k, v in sample.items()} for sample in samples]
    return samples


def as_unpacked(value: object) -> object:
    """msgpack takes NumPy's subclasses of Python's types for what they derive from, and msgpack-numpy makes arrays of
    void structures of one field."""
    if isinstance(value, (np.float64, np.str_, np.bytes_)):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind == "V" and not value.dtype.names:
        return np.ndarray(value.shape, [("f0", value.dtype)], value.tobytes())
    return value


def difference(mine: object, theirs: object, where: str = "sample") -> str | None:
    """What differs first, or None. Types count; a tuple counts as a list, since squirrel-core reads MessagePack's
    lists as tuples and JSON's as lists; NaN equals NaN; -0.0 is not 0.0."""
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        if len(mine) != len(theirs):
            return f"{where}: lengths {len(mine)} and {len(theirs)}"
        pairs = ((f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(mine, theirs)))
        return next(filter(None, (difference(a, b, at) for at, a, b in pairs)), None)
    if isinstance(mine, datetime) and isinstance(theirs, datetime):  # ruamel.yaml has a class of its own
        same = mine == theirs and mine.utcoffset() == theirs.utcoffset()
        return None if same else f"{where}: {mine!r} and {theirs!r}"
    if type(mine) is not type(theirs):
        return f"{where}: {type(mine).__name__} and {type(theirs).__name__}"
    if isinstance(mine, dict):
        if list(mine) != list(theirs):
            return f"{where}: keys {list(mine)[:9]} and {list(theirs)[:9]}"
        return next(filter(None, (difference(mine[k], theirs[k], f"{where}.{k}") for k in mine)), None)
    if isinstance(mine, (np.ndarray, np.generic)):
        if mine.dtype != theirs.dtype or mine.dtype.str != theirs.dtype.str or mine.shape != theirs.shape:
            return f"{where}: {mine.dtype.str}{mine.shape} and {theirs.dtype.str}{theirs.shape}"
        return None if image(mine) == image(theirs) else f"{where}: {mine!r} and {theirs!r}"
    if isinstance(mine, (float, complex)):
        return None if repr(mine) == repr(theirs) else f"{where}: {mine!r} and {theirs!r}"
    return None if mine == theirs else f"{where}: {mine!r:.200} and {theirs!r:.200}"


def image(value: np.ndarray | np.generic) -> object:
    """What is compared of an array: its elements' bytes in C order; long doubles without their padding."""
    if value.dtype.char in "gG":
        return repr(value.tolist())
    return value.tobytes()


def all_differences(mine: list, theirs: list) -> str | None:
    if len(mine) != len(theirs):
        return f"{len(mine)} samples and {len(theirs)}"
    pairs = enumerate(zip(mine, theirs))
    return next(filter(None, (difference(a, b, f"sample {i}") for i, (a, b) in pairs)), None)
