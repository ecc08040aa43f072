"""Encoding and decoding of single samples, against msgpack and msgpack-numpy."""

from __future__ import annotations

import collections
import enum
import math

import numpy as np
import pytest

from squirrel import SampleTypeError, _native

msgpack = pytest.importorskip("msgpack")
msgpack_numpy = pytest.importorskip("msgpack_numpy")


def reference(value: object) -> bytes:
    return msgpack.packb(value, use_bin_type=True, default=msgpack_numpy.encode)


class Colour(enum.IntEnum):
    RED = 3


PLAIN = [
    None,
    True,
    False,
    *[sign * (2**bits + d) for bits in range(64) for d in (-1, 0, 1) for sign in (1, -1)
      if -(2**63) <= sign * (2**bits + d) < 2**64],
    2**64 - 1,
    0.0,
    -0.0,
    1.5,
    math.inf,
    -math.inf,
    5e-324,
    1.7976931348623157e308,
    "",
    "text",
    "é€𝄞",
    "x" * 31,
    "x" * 32,
    "x" * 255,
    "x" * 256,
    "x" * 65536,
    b"",
    b"\x00\xff",
    b"y" * 255,
    b"y" * 256,
    b"y" * 65536,
    bytearray(b"abc"),
    memoryview(b"abc"),
    [],
    list(range(15)),
    list(range(16)),
    list(range(65536)),
    (1, "two", [3.0]),
    {},
    {str(i): i for i in range(15)},
    {str(i): i for i in range(16)},
    {i: None for i in range(70000)},
    {"nested": {"deep": [{"er": (1, {"and": b"er"})}]}},
    {b"binary key": 1, 3: 2, None: 3, True: 4},
    1 + 2j,
    complex(-0.0, math.inf),
    collections.OrderedDict(b=1, a=2),
    Colour.RED,
    msgpack.ExtType(5, b"data"),
    msgpack.Timestamp(1, 2),
    msgpack.Timestamp(2**33, 999),
    msgpack.Timestamp(-5, 1),
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}")
def test_plain_values_are_encoded_as_msgpack_does(value: object) -> None:
    assert _native.encode(value) == reference(value)


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}")
def test_plain_values_are_decoded_as_msgpack_does(value: object) -> None:
    encoded = reference(value)
    wanted = msgpack.unpackb(encoded, object_hook=msgpack_numpy.decode, strict_map_key=False)
    got = _native.decode(encoded)
    assert got == wanted
    assert type(got) is type(wanted)
    assert repr(got) == repr(wanted)  # tells -0.0 from 0.0


def test_nan_goes_both_ways() -> None:
    assert _native.encode(math.nan) == reference(math.nan)
    assert math.isnan(_native.decode(reference(math.nan)))


DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4), (1, 2, 3, 4)])
def test_arrays(dtype: str, order: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    array = np.arange(count).astype(dtype).astype(order + dtype).reshape(shape)
    encoded = reference(array)
    assert _native.encode(array) == encoded
    got = _native.decode(encoded)
    assert isinstance(got, np.ndarray)
    assert got.dtype == array.dtype and got.dtype.str == array.dtype.str
    assert got.shape == shape
    assert got.tobytes() == array.tobytes()
    assert got.flags.writeable and got.flags.c_contiguous
    assert got.flags.owndata


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4)[:, ::2, 1::2],
        np.arange(10)[::-1],
        np.broadcast_to(np.float32(2.5), (3, 2)),
        np.arange(12, dtype=">i4").reshape(3, 4).T,
    ],
    ids=["fortran", "strided", "reversed", "broadcast", "big-endian"],
)
def test_any_layout_is_written_in_c_order(array: np.ndarray) -> None:
    assert _native.encode(array) == reference(np.ascontiguousarray(array))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["one", "three"]),
        np.array([b"one", b"three"]),
        np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
        np.zeros(2, dtype=[("p", [("x", "f4"), ("y", "f4")]), ("m", "u1", (2, 3))]),
    ],
    ids=["text", "bytes", "structured", "nested"],
)
def test_described_dtypes(array: np.ndarray) -> None:
    encoded = reference(array)
    assert _native.encode(array) == encoded
    got = _native.decode(encoded)
    assert got.dtype == array.dtype
    assert got.tobytes() == array.tobytes()
    assert got.flags.writeable


def test_dates_are_kept() -> None:
    array = np.array(["2020-01-01", "NaT"], dtype="datetime64[ns]")
    got = _native.decode(_native.encode(array))
    assert got.dtype == array.dtype and got.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("f8",)])
def test_numpy_scalars(dtype: str) -> None:
    scalar = np.dtype(dtype).type(1)
    encoded = reference(scalar)
    assert _native.encode(scalar) == encoded
    got = _native.decode(encoded)
    assert type(got) is type(scalar) and got == scalar


def test_float64_scalars_are_floats_as_msgpack_writes_them() -> None:
    assert _native.encode(np.float64(0.1)) == reference(np.float64(0.1)) == reference(0.1)


def test_strings_of_numpy_are_strings() -> None:
    assert _native.encode({"a": np.str_("x"), "b": np.bytes_(b"y")}) == reference(
        {"a": "x", "b": b"y"}
    )


def test_long_doubles_keep_all_digits() -> None:
    value = np.longdouble(1) / 3
    assert _native.encode(value) == reference(value)
    assert _native.decode(reference(value)) == value


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ({1, 2}, TypeError, "set"),
        (object(), TypeError, "object"),
        (np.array([object()]), TypeError, "Python objects"),
        (np.zeros(1, [("a", "O")]), TypeError, "Python objects"),
        (2**64, SampleTypeError, "2**64-1"),
        (-(2**63) - 1, SampleTypeError, "-2**63"),
        ("\ud800", SampleTypeError, "surrogate"),
    ],
    ids=["set", "object", "object-array", "object-field", "large", "small", "surrogate"],
)
def test_what_cannot_be_stored_names_the_field(value: object, error: type, says: str) -> None:
    with pytest.raises(error, match=None) as caught:
        _native.encode({"outer": [0, {"inner": value}]})
    assert says in str(caught.value)
    assert caught.value.__notes__ == ['in field "outer[1].inner" of the sample']


def test_a_sample_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="511 levels"):
        _native.encode(loop)


def test_depth_up_to_the_limit_goes_both_ways() -> None:
    value: object = 1
    for _ in range(510):
        value = [value]
    assert _native.decode(_native.encode(value)) == value


@pytest.mark.parametrize("size", [0, 1, 2, 5, 9, 40])
def test_cut_data_is_an_error(size: int) -> None:
    encoded = _native.encode({"a": [1, 2.5, "text"], "b": np.arange(6)})
    with pytest.raises(ValueError):
        _native.decode(encoded[:size])


def test_data_behind_the_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="follow"):
        _native.decode(b"\x01\x02")


def test_pickled_arrays_are_refused() -> None:
    evil = msgpack.packb(
        {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"cos\nsystem\n."}
    )
    with pytest.raises(squirrel_errors()):
        _native.decode(evil)


def squirrel_errors() -> tuple[type, ...]:
    from squirrel import Error

    return (Error,)


def test_an_array_whose_size_does_not_fit_is_refused() -> None:
    bad = msgpack.packb({b"nd": True, b"type": "<U5", b"kind": b"", b"shape": [3], b"data": b"abcd"})
    with pytest.raises(ValueError):
        _native.decode(bad)


def test_extensions_without_msgpack(script) -> None:
    done = script(
        """
        import sys
        sys.modules["msgpack"] = None
        from squirrel import _native
        value = _native.decode(b"\\xd4\\x05x")
        assert value == (5, b"x") and type(value).__module__ == "squirrel.ext", value
        assert _native.encode(value) == b"\\xd4\\x05x"
        stamp = _native.decode(b"\\xd6\\xff\\x00\\x00\\x00\\x01")
        assert stamp.seconds == 1 and _native.encode(stamp) == b"\\xd6\\xff\\x00\\x00\\x00\\x01"
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_dict_that_changes_meanwhile_does_not_spoil_the_block() -> None:
    class Shrinking(dict):
        def items(self):
            return [("a", 1), "no pair"]

    with pytest.raises(TypeError, match="pairs"):
        _native.encode(Shrinking(a=1))


def test_large_arrays_live_in_recycled_memory() -> None:
    array = np.arange(100_000, dtype=np.int32)
    got = _native.decode(_native.encode(array))
    assert type(got.base).__name__ == "Memory"
    assert got.flags.writeable and (got == array).all()
    got += 1
    assert (got == array + 1).all()


def test_errors_have_codes() -> None:
    with pytest.raises(SampleTypeError) as caught:
        _native.encode({1, 2})
    assert caught.value.code == "type" and not caught.value.retryable


def test_nothing_is_packed_that_would_come_back_as_less() -> None:
    with pytest.raises(SampleTypeError, match="mask"):
        _native.encode({"a": np.ma.array([1, 2], mask=[False, True])})
    with pytest.raises(SampleTypeError, match="tuple can't be a key"):
        _native.encode({("a", 1): 2})
    with pytest.raises(SampleTypeError, match="tuple can't be a key"):
        _native.encode(collections.OrderedDict({("a", 1): 2}))
