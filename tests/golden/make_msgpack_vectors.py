"""Writes msgpack/vectors.h: what msgpack-python and msgpack-numpy make of many values.

Run by hand, with msgpack 1.x, msgpack-numpy 0.4.8 and numpy 1.x or 2.x installed:
    python tests/golden/make_msgpack_vectors.py > tests/golden/msgpack/vectors.h
With the name of a folder it also writes some of them there, as seeds for fuzzing:
    python tests/golden/make_msgpack_vectors.py tests/fuzz/corpus/msgpack > /dev/null

Every vector is (name, bytes, dump, again): `dump` spells the value that Python sees (see
test_msgpack.c for the notation), `again` is what encoding the decoded value must give:
the same bytes, except for the old forms of arrays, which become the new one.
"""

import pathlib
import struct
import sys

import msgpack
import msgpack_numpy
import numpy as np

# msgpack-numpy writes these as numbers of their own
NAMES = {"b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
         "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "f2": "float16",
         "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128"}


class Single(float):
    """A float that is stored as 32 bits."""


def dump_array(a, scalar):
    code = a.dtype.str
    name = NAMES.get(code[1:], "other") if a.dtype.kind != "V" else "other"
    flags = (">" if code[0] == ">" else "") + ("s" if scalar else "")
    text = f"n:{name}:{flags}:{','.join(map(str, a.shape))}:{a.tobytes().hex()}"
    if name == "other":
        text += ":" + dump(a.dtype.descr if a.dtype.kind == "V" else code)
    return text


def dump(v):
    if v is None:
        return "null"
    if v is True or v is False:
        return "true" if v else "false"
    if isinstance(v, Single):
        return "F:" + struct.pack(">d", v).hex()
    if isinstance(v, float):
        return "f:" + struct.pack(">d", v).hex()
    if isinstance(v, np.generic):
        return dump_array(np.asarray(v), True)
    if isinstance(v, np.ndarray):
        return dump_array(v, False)
    if isinstance(v, complex):
        return "c:" + repr(v)
    if isinstance(v, int):
        return str(v)
    if isinstance(v, str):
        return "s:" + v.encode().hex()
    if isinstance(v, bytes):
        return "b:" + v.hex()
    if isinstance(v, msgpack.ExtType):
        return f"e:{v.code}:{v.data.hex()}"
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(dump(i) for i in v) + "]"
    if isinstance(v, dict):
        return "{" + ",".join(dump(k) + "=" + dump(i) for k, i in v.items()) + "}"
    raise TypeError(type(v))


vectors = []


def add(name, value, packed=None, again=None):
    try:
        written = msgpack_numpy.packb(value)
    except ValueError:  # no buffers of dates
        written = packed
    vectors.append((name, packed if packed is not None else written, dump(value),
                    written if packed is not None and again is None else again))


# plain values: every boundary between two encodings
for bits in (0, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64):
    for step in (-1, 0, 1):
        v = (1 << bits) + step
        if v < 1 << 64:
            add(f"int {v}", v)
        if -v >= -(1 << 63):
            add(f"int -{v}", -v)
for v in (0.0, -0.0, 1.5, -2.25e300, 5e-324, float("inf"), float("-inf"), float("nan")):
    add(f"float {v}", v)
for v in (0.5, -3.0, 65504.0, float("inf")):
    add(f"float32 {v}", Single(v), msgpack.packb(float(v), use_single_float=True),
        msgpack.packb(float(v), use_single_float=True))
for v in (None, True, False):
    add(str(v), v)
for n in (0, 1, 31, 32, 33, 255, 256):
    add(f"str of {n}", "abcdefgh"[n % 8] * n)
    add(f"bin of {n}", bytes(i % 251 for i in range(n)))
for text in ("Gr\u00fc\u00dfe", "\u65e5\u672c\u8a9e", "\U0001f43f\ufe0f", "a\0b", "\u20ac" * 30,
             "\u00e9" + "x" * 40, "x" * 40 + "\u00e9"):
    add("str " + ascii(text), text)
for n in (0, 1, 2, 3, 4, 5, 8, 16, 17):
    add(f"ext of {n}", msgpack.ExtType(7 + n, bytes(range(n))))
vectors.append(("timestamp", msgpack.packb(msgpack.Timestamp(1)), "e:-1:00000001", None))
vectors.append(("ext -128", b"\xd4\x80x", "e:-128:78", None))
for n in (0, 1, 15, 16, 17):
    add(f"array of {n}", list(range(n)))
    add(f"map of {n}", {f"key{i}": i for i in range(n)})
add("nested", {"a": [1, [2, [3, {"b": {}}]], []], "c": {"d": None}, "e": [[], {}, [{}]]})
add("binary keys", {b"nd": 1, b"x": "y"})
add("shuffled look", {"nd": True, "type": 3})

# arrays: every dtype, both byte orders, several shapes
for code in NAMES:
    for order in "<>":
        t = np.dtype(order + code)
        a = np.arange(6).astype(t).reshape(2, 3)
        add(f"array {t.str}", {"image": a, "label": 7})
    t = np.dtype("<" + code)
    add(f"0-d {t.str}", np.array(1, t))
    add(f"empty {t.str}", np.zeros((0, 4), t))
    if code != "f8":  # numpy.float64 is a float
        add(f"scalar {t.str}", t.type(1))
add("1-d long", np.arange(300, dtype="<i4"))
add("7-d", np.arange(2, dtype="u1").reshape(1, 1, 2, 1, 1, 1, 1))
add("16-d", np.zeros((1,) * 16, "u1"))
add("32-d", np.zeros((1,) * 32, "u1"))
add("wide shape", np.zeros((70000, 0, 200, 300), "f4"))
add("Fortran order", np.asfortranarray(np.arange(6, dtype="<i2").reshape(2, 3)).copy("C"))
add("sample", {"image": np.arange(48, dtype="u1").reshape(4, 4, 3), "label": 3,
               "scores": np.array([0.5, 0.25], "f4"), "name": "a\u00e9"})
add("many arrays", [np.array([i], "<u2") for i in range(20)])
for t in ("<U5", ">U3", "S4", "<f16", "<c32"):
    add(f"array {t}", np.zeros((2, 2), t))
for t in ("<M8[ns]", "<m8[s]", ">M8[D]"):  # 0.4.8 can't write these, earlier ones could
    a = np.arange(4).astype(t).reshape(2, 2)
    add(f"array {t}", a, msgpack.packb({b"nd": True, b"type": t, b"kind": b"",
                                        b"shape": a.shape, b"data": a.tobytes()}))
# by hand: 6 of the 16 bytes that Python writes are whatever lay there
vectors.append(("scalar longdouble", msgpack.packb(
    {b"nd": False, b"type": "<f16", b"data": bytes(16)}),
    "n:other:s::" + "00" * 16 + ":" + dump("<f16"), None))
v = np.timedelta64(5, "s")
add("scalar timedelta", v, msgpack.packb({b"nd": False, b"type": v.dtype.str,
                                          b"data": v.tobytes()}))
add("words", np.array(["one", "three", "\u00e9"]))
point = np.dtype([("x", "<f4"), ("y", ">i2")])
add("structure", np.array([(1.5, 2), (2.5, -3)], point))
add("structure 0-d", np.array((1.5, 2), point))
add("structure in structure", np.zeros(3, [("p", point), ("n", "<U3"), ("m", "<f8", (2, 2))]))
add("aligned structure", np.zeros(2, np.dtype([("a", "u1"), ("b", "<f8")], align=True)))
add("array of structures with titles", np.zeros(1, [(("title", "name"), "<i4")]))
add("void", np.zeros(2, "V3"))
for v in (1j, 1 + 2j, -0j, complex("nan"), complex("-inf+nanj"), 1e300 - 2.5e-17j):
    add(f"complex {v}", v)
add("complexes", {"z": [1j, 2j], "w": np.array([1j, 2 + 3j])})

# the older forms
int_array = np.array([[1, 2], [3, 4]], "<i2")
high = np.array([0xFF, 0xC3, 0x28, 0x80], "u1")  # bytes that are no UTF-8
low = np.array([65, 66], "u1")
old = lambda a: {b"nd": True, b"type": a.dtype.str, b"shape": a.shape, b"data": a.tobytes()}
raw = lambda v: msgpack.packb(v, use_bin_type=False, default=msgpack_numpy.encode)
for name, a in (("i2", int_array), ("high", high), ("low", low),
                ("big", int_array.astype(">i2")), ("words", np.array(["ab", "c"]))):
    add(f"without kind: {name}", a, msgpack.packb(old(a)))
    reverse = dict(reversed(list(old(a).items())))
    add(f"without kind, other order: {name}", a, msgpack.packb(reverse))
    new = msgpack_numpy.encode(a)
    new[b"data"] = bytes(new[b"data"])
    shuffled = {k: new[k] for k in (b"shape", b"data", b"nd", b"kind", b"type")}
    add(f"other order: {name}", a, msgpack.packb(shuffled))
    add(f"raw: {name}", a, raw(a))
    add(f"raw without kind: {name}", a, msgpack.packb(old(a), use_bin_type=False))
    add(f"raw, other order: {name}", a, msgpack.packb(shuffled, use_bin_type=False))
    add(f"raw in a sample: {name}", {"x": a, "y": [a, 1]}, raw({"x": a, "y": [a, 1]}))
add("raw scalar", np.float32(-1.5), raw(np.float32(-1.5)))
add("raw structure", np.array([(1.5, 2)], point), raw(np.array([(1.5, 2)], point)))
add("raw complex", 1 + 2j, raw(1 + 2j))
s = np.array([(1.5, 2)], point)
add("without kind: structure", s, msgpack.packb(
    {b"nd": True, b"type": s.dtype.descr, b"shape": s.shape, b"data": s.tobytes()}))
add("type by name", low, msgpack.packb({**old(low), b"type": "uint8"}))
add("type as binary", low, msgpack.packb({**old(low), b"type": b"|u1"}))

# maps that only look like arrays: they stay maps
for name, m in {
        "one key too many": {**old(low), b"extra": 1},
        "mixed keys": {b"nd": True, b"type": "|u1", "shape": [2], b"data": b"AB"},
        "no data": {b"nd": True, b"type": "|u1", b"shape": [2]},
        "nd is a number": {**old(low), b"nd": 1},
        "shape is a number": {**old(low), b"shape": 2},
        "shape of floats": {**old(low), b"shape": [2.0]},
        "data is text": {**old(low), b"data": "AB"},
        "unknown kind": {**old(low), b"kind": b"X"},
        "text keys": {"nd": True, "type": "|u1", "kind": b"", "shape": [2], "data": b"AB"},
        "text keys, wrong size": {"nd": True, "type": "|u1", "shape": [3], "data": "AB"},
        "text keys, own type": {"nd": True, "type": "cat", "shape": [2], "data": "AB"},
        "text keys, object": {"nd": False, "type": "O", "data": "AB"},
        "text keys, scalar": {"nd": False, "type": "<i4", "data": "AB"},
        "complex that is false": {b"complex": False, b"data": "1j"},
        "complex of text keys": {"complex": True, "data": "hello"}}.items():
    packed = msgpack.packb(m)
    vectors.append(("looks like an array: " + name, packed, dump(m), None))


def c_string(data):
    out, line = [], ""
    for b in data:
        line += f"\\x{b:02x}"
        if len(line) >= 76:
            out.append(f'"{line}"')
            line = ""
    if line or not out:
        out.append(f'"{line}"')
    return "\n     ".join(out)


def c_text(text):
    lines = [text[i:i + 72] for i in range(0, len(text), 72)] or [""]
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return "\n     ".join(f'"{line}"' for line in lines)


print("/* Made by ../make_msgpack_vectors.py. */")
print("/* clang-format off */")
print("static const struct {\n    const char *name;\n    const char *bytes;\n    size_t size;")
print("    const char *dump;\n    const char *again;\n    size_t again_size;\n} VECTORS[] = {")
for name, packed, text, again in vectors:
    second = c_string(again) if again is not None and again != packed else "NULL"
    second_size = len(again) if second != "NULL" else 0
    print(f"    {{{c_text(name)},\n     {c_string(packed)},\n     {len(packed)},")
    print(f"     {c_text(text)},\n     {second},\n     {second_size}}},")
print("};")

SEEDS = ("nested", "sample", "structure in structure", "raw in a sample: high", "raw structure",
         "other order: i2", "without kind: words", "complexes", "scalar <f4", "array >c16",
         "array of structures with titles", "map of 16", "ext of 17", "timestamp")
for name, packed, _, _ in vectors if len(sys.argv) > 1 else []:
    if name in SEEDS:
        file = "".join(c if c.isalnum() else "_" for c in name) + ".msgpack"
        (pathlib.Path(sys.argv[1]) / file).write_bytes(packed)
