"""Writes json/vectors.h: what CPython's json and squirrel-core's JSON classes make of texts.

Run by hand, with squirrel-core 0.20 installed; DATA is the folder of the test data:
    python tests/golden/make_json_vectors.py DATA > tests/golden/json/vectors.h

NUMBERS   text of a number, what Python reads (see unit/value/dump.h for the notation) and
          repr() of it
VALUES    a document, its dump, and json.dumps(..., ensure_ascii=False)
ARRAYS    an array as SquirrelJsonEncoder writes it, its dump, and whether our encoder must
          give the same text
FILES     a file of the test data that Python accepts, and size and CRC-32 of json.dumps
LINES     the same for files of JSON lines
"""

import json
import pathlib
import random
import struct
import sys
import zlib
from fractions import Fraction

import numpy as np
from squirrel.serialization.jsonl import SquirrelJsonDecoder, SquirrelJsonEncoder

NAMES = {"b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
         "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "f2": "float16",
         "f4": "float32", "f8": "float64"}
random.seed(20220601)


class Pairs(list):
    """An object whose duplicate keys are kept."""


def dump(v):
    if v is None:
        return "null"
    if v is True or v is False:
        return "true" if v else "false"
    if isinstance(v, float):
        return "f:" + struct.pack(">d", v).hex()
    if isinstance(v, int):
        return str(v)
    if isinstance(v, str):
        return "s:" + v.encode().hex()
    if isinstance(v, np.ndarray):
        code = v.dtype.str
        name = NAMES.get(code[1:], "other")
        text = f"n:{name}:{'>' if code[0] == '>' else ''}:{','.join(map(str, v.shape))}:"
        return text + v.tobytes().hex() + (":" + dump(code) if name == "other" else "")
    if isinstance(v, Pairs):
        return "{" + ",".join(f"{dump(k)}={dump(x)}" for k, x in v) + "}"
    if isinstance(v, dict):
        return "{" + ",".join(f"{dump(k)}={dump(x)}" for k, x in v.items()) + "}"
    return "[" + ",".join(map(dump, v)) + "]"


def text(v):
    """json.dumps that knows Pairs."""
    if isinstance(v, Pairs):
        return "{" + ", ".join(f"{text(k)}: {text(x)}" for k, x in v) + "}"
    if isinstance(v, list):
        return "[" + ", ".join(map(text, v)) + "]"
    return json.dumps(v, ensure_ascii=False)


def c_string(data):
    out = ""
    for b in data:
        out += chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
    return '"' + out + '"'


def double(bits):
    return struct.unpack(">d", struct.pack(">Q", bits))[0]


def halfway(bits):
    """The exact decimal between this double and the next."""
    h = (Fraction(double(bits)) + Fraction(double(bits + 1))) / 2
    k = h.denominator.bit_length() - 1
    return h.numerator * 5**k, k


def numbers():
    yield from ["0", "-0", "1", "-1", "10", "9223372036854775807", "9223372036854775808",
                "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
                "18446744073709551616", "99999999999999999999", "10000000000000000000",
                "19999999999999999999", "100000000000000000000000", "1" + "0" * 2000, "-" + "9" * 2000,
                "0.0", "-0.0", "0e0", "0e99999999999", "-0E-400", "1e0",
                "1E+2", "1e-2", "123e-20000000000000000000", "1e1000000000000000000000000",
                "1e400", "-1e400", "1.7976931348623157e308", "1.7976931348623158e308",
                "1.7976931348623159e308", "179769313486231580793e289", "2.2250738585072011e-308",
                "2.2250738585072014e-308", "2.2250738585072012e-308", "5e-324", "4.9e-324",
                "2.4703282292062327e-324", "2.4703282292062328e-324", "1e-400", "1e23",
                "8.5e22", "9007199254740993.0", "9007199254740992.5", "9007199254740993e0",
                "9007199254740991.4999999999999999999999999999999999", "0.1", "0.2", "0.3",
                "123456789.123456789", "3.141592653589793238462643383279502884197169399375",
                "100000000000000000000000000000000.0", "1e16", "1e15", "9999999999999998.0",
                "123456789012345678.0", "0.0001", "0.00001", "0.00012345", "1e21", "1.5e300",
                "6.02214076e23", "1.0", "5e-1", "0." + "0" * 400 + "1", "1" + "0" * 400 + ".0e-400",
                "7.2057594037927933e16", "9214843084008499.0", "30078505129381147446200.0e0",
                "1777820000000000000001.0", "0.500000000000000166533453693773481063544750213623046875",
                "1448997445238699.0e-304", "6929495644600919.5", "3571e263", "104110013277974872254e-225",
                "89255.0e-22", "8.988465674311580536566680e307", "1.00000006e0", "9355950000000000000.00",
                "2.5e-1", "1.1754943508222875e-38", "0.3e-3", "4.35e0", "65.25", "1e22", "1e-22"]
    for e in (1, 2, 3, 52, 1022, 1023, 1024, 1075, 1076, 2044, 2045, 2046):
        for m in (0, 1, (1 << 52) - 1):
            yield repr(double(e << 52 | m))
    for m in (1, 2, 3, 12345, (1 << 52) - 1):
        yield repr(double(m))
    for i in range(120):
        e = 0 if i % 6 == 0 else random.randint(1, 2045) if i % 6 == 1 else random.randint(990, 1090)
        n, k = halfway(e << 52 | random.getrandbits(52))
        if len(str(n)) <= 800:
            yield f"{n}e-{k}"
        if len(str(n)) <= 120:
            yield f"{n}1e-{k + 1}"
            yield f"{n * 10 - 1}e-{k + 1}"
    for _ in range(150):
        w = random.getrandbits(random.randint(1, 66))
        yield f"{w}e{random.randint(-345, 310)}"
        yield f"{w}e{random.randint(-30, 30)}"
        yield f"{w}.{random.getrandbits(random.randint(1, 64))}"
        f = double(random.getrandbits(63))
        if f == f and abs(f) != float("inf"):
            yield repr(f)
            yield f"{f:.20e}"


VALUES = [
    "null", "true", "false", '""', "[]", "{}", " [ ] ", "[[],{}]", '{"a":1}', '{"a":{},"b":[1,2]}',
    '{"a":1,"a":2}', '"abc"', r'"\"\\\/\b\f\n\r\t"', r'"\u0000"', r'"a\u0000b"', r'"\u007f"',
    r'"\u0080"', r'"\u07ff\u0800"', r'"\uffff"', r'"\ud83d\ude00"', r'"\uD83D\uDE00x"',
    r'"\u00e9\u00E9"', '"\u00e9\u20ac\U0001f600"', '"\x7f"', r'{"\u0061\n":"\u0062"}',
    r'["\\", "\\\\", "\\\"", "\\\\\""]', r'"' + "\\\\" * 70 + '"', '"' + "x" * 200 + r'\n' + "y" * 200 + '"',
    '"' + "\u00e9" * 100 + '"', r'"' + "a\\n" * 60 + '"', r'["0123456789abcde\t","0123456789abcdef\t0123456789abcdef"]',
    '[1,-1,0,1.5,1e3,"x",null,true,false]', '\t\r\n [1 ,\n2 ]\r\n', '{"a" : "b" , "c" : [ ] }',
    "[" * 100 + "]" * 100, '{"k":' * 40 + "0" + "}" * 40, json.dumps({str(i): i for i in range(150)}),
    json.dumps(["x" * n for n in range(20, 62)]), json.dumps([["\n" * n, n] for n in range(40)]),
    '{"type":1,"data":2}', '{"type":"<f4","data":[1],"shape":"x"}', '{"type":"Feature","data":[1],"shape":[1]}',
    '{"type":"<f4","data":[1],"shape":[-1]}', '{"type":"<f4","data":[1],"shape":[1.0]}',
    '{"type":"<f4","data":[1],"shapes":[1]}', '{"type":"<f4","data":[1],"shape":[1],"more":0}',
]

ARRAYS = [
    np.array([1, 2, 3]), np.arange(6, dtype="<i4").reshape(2, 3), np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.array([[-128, 127]], dtype=np.int8), np.array([-32768, 32767], dtype=np.int16),
    np.array([0, 65535], dtype=np.uint16), np.array([0, 2**32 - 1], dtype=np.uint32),
    np.array([-2**63, 2**63 - 1]), np.array([0, 2**64 - 1], dtype=np.uint64),
    np.array([True, False, True]), np.array([[0.1, -2.5], [1e300, 5e-324]]),
    np.array([0.1, 3.4028235e38, 1e-45], dtype=np.float32),
    np.array([0.1, 65504, 6e-8, -0.0, 2**-14, 2**-24], dtype=np.float16), np.array([1.5, -2], dtype=">f8"),
    np.array([1, 256], dtype=">u2"), np.array([1.5], dtype=">f2"), np.array(7), np.array(1.5, dtype=np.float32),
    np.zeros((0,)), np.zeros((0, 3), dtype=np.uint8), np.zeros((2, 0), dtype=np.int16),
    np.array(["a", "b\u00e9", "\U0001f600xyz"]), np.array([["", "abc"], ["d\n", '"']]), np.array(["x"], dtype=">U3"),
    np.array(["2020-01-01", "1969-12-31"], dtype="M8[ns]"), np.array([1, -1], dtype="m8[ns]"),
    np.zeros((1, 1, 1, 1, 1, 1, 1, 2)), np.arange(-300, 300, dtype=np.int16).reshape(20, 30),
]


def print_rows(name, fields, rows):
    print("static const struct {")
    for field in fields:
        print(f"    {field};")
    print(f"}} {name}[] __attribute__((unused)) = {{")
    for row in rows:
        print("    {" + ", ".join(row) + "},")
    print("};\n")


def string_and_size(data):
    return [c_string(data), str(len(data))]


def main():
    data = pathlib.Path(sys.argv[1])
    sys.set_int_max_str_digits(0)
    print("/* Made by ../make_json_vectors.py. */\n/* clang-format off */")
    rows = []
    for t in numbers():
        v = json.loads(t)
        rows.append([c_string(t.encode()), c_string(dump(v).encode()), c_string(json.dumps(v).encode())])
    print_rows("NUMBERS", ["const char *text", "const char *dump", "const char *again"], rows)
    rows = []
    for t in VALUES:
        v = json.loads(t, object_pairs_hook=Pairs)
        rows.append(string_and_size(t.encode()) + [c_string(dump(v).encode())] + string_and_size(text(v).encode()))
    print_rows("VALUES", ["const char *text", "size_t size", "const char *dump", "const char *again",
                          "size_t again_size"], rows)
    rows = []
    for a in ARRAYS:
        t = json.dumps({"x": a, "y": [0]}, cls=SquirrelJsonEncoder)
        v = json.loads(t, cls=SquirrelJsonDecoder)
        assert v["x"].dtype == a.dtype and v["x"].tobytes() == a.tobytes()
        rows.append([c_string(t.encode()), c_string(dump(v).encode()),
                     "true" if "\\u" not in t else "false"])
    print_rows("ARRAYS", ["const char *text", "const char *dump", "bool same"], rows)
    rows = []
    for folder in ("json/JSONTestSuite/test_parsing", "json/jsonchecker", "json/fuzz", "tabular/json"):
        for path in sorted((data / folder).iterdir()):
            try:
                v = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=Pairs,
                               parse_constant=lambda name: 1 / 0)
                out = text(v).encode()
            except (ValueError, RecursionError, ZeroDivisionError):
                continue
            rows.append([c_string(f"{folder}/{path.name}".encode()), str(len(out)), f"0x{zlib.crc32(out):08x}u"])
    print_rows("FILES", ["const char *name", "size_t size", "uint32_t crc"], rows)
    rows = []
    for name in ("tabular/ndjson/amazon_cellphones.ndjson",):
        lines = (data / name).read_text().split("\n")
        values = [json.loads(line) for line in lines if line.strip()]
        out = "".join(text(v) + "\n" for v in values).encode()
        rows.append([c_string(name.encode()), str(len(values)), str(len(out)), f"0x{zlib.crc32(out):08x}u"])
    print_rows("LINES", ["const char *name", "uint32_t count", "size_t size", "uint32_t crc"], rows)


main()
