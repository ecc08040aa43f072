"""Properties over generated values and plans."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import squirrel
from squirrel import _native

msgpack = pytest.importorskip("msgpack")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=20) | st.dictionaries(st.text(), v, max_size=20), max_leaves=40
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_encoding_is_that_of_msgpack_and_comes_back(value: object) -> None:
    encoded = msgpack.packb(value, use_bin_type=True)
    assert _native.encode(value) == encoded
    assert _native.decode(encoded) == msgpack.unpackb(encoded, strict_map_key=False)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_noise_is_decoded_as_msgpack_does_or_refused(data: bytes) -> None:
    try:
        got = _native.decode(data)
    except (squirrel.Error, ValueError, TypeError, OverflowError):
        return
    try:
        wanted = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return  # extensions and maps that only one side takes
    if "nd" not in repr(wanted) and "complex" not in repr(wanted):
        assert repr(got) == repr(wanted)


class Model:
    """A plan in plain Python beside the native one."""

    def __init__(self, stream: squirrel.Stream, rows: list[dict[str, object]]) -> None:
        self.stream = stream
        self.rows = rows
        self.limited = self.shuffled = False

    def step(self, draw: random.Random) -> None:
        verb = draw.choice(["filter", "select", "drop", "rename", "take", "skip", "shuffle_all", "prefetch"])
        names = sorted({name for row in self.rows for name in row})
        if verb == "filter" and "label" in names:
            low, high = sorted(draw.randrange(2000) for _ in range(2))
            self.stream = self.stream.filter(f"label >= {low} and not label > {high}")
            self.rows = [r for r in self.rows if low <= r["label"] <= high]  # type: ignore[operator]
        elif verb == "select" and names:
            kept = draw.sample(names, draw.randint(1, len(names)))
            self.stream = self.stream.select(*kept)
            self.rows = [{n: r[n] for n in kept if n in r} for r in self.rows]
        elif verb == "drop" and len(names) > 1:
            gone = draw.choice(names)
            self.stream = self.stream.drop(gone)
            self.rows = [{n: v for n, v in r.items() if n != gone} for r in self.rows]
        elif verb == "rename" and "text" in names:
            self.stream = self.stream.rename(text="words")
            self.rows = [{"words" if n == "text" else n: v for n, v in r.items()} for r in self.rows]
        elif verb == "take" and not self.shuffled:
            n = draw.randrange(2500)
            self.stream, self.rows, self.limited = self.stream.take(n), self.rows[:n], True
        elif verb == "skip" and not self.shuffled:
            n = draw.randrange(300)
            self.stream, self.rows, self.limited = self.stream.skip(n), self.rows[n:], True
        elif verb == "shuffle_all" and not (self.limited or self.shuffled):
            self.stream = self.stream.shuffle_all(draw.randrange(2**64), draw.choice([0, "20 KiB"]))
            self.shuffled = True
        elif verb == "prefetch":
            self.stream = self.stream.prefetch(draw.choice([0, 1, "64 KiB"]))


def check_plans(folder: Path, count: int, seed: int) -> None:
    rows = [{"key": i, "label": (i * 7919) % 2000, "text": f"t{i}", "x": {"y": i / 2}} for i in range(2000)]
    if not folder.exists():
        squirrel.pack(rows, folder, samples_per_shard=333, block_bytes=4000)
    draw = random.Random(seed)
    for number in range(count):
        model = Model(squirrel.open(folder), rows)
        for _ in range(draw.randrange(6)):
            model.step(draw)
        order = (lambda items: sorted(items, key=repr)) if model.shuffled else list
        assert order(model.stream) == order(model.rows), (number, repr(model.stream))
        if model.rows:
            size = draw.randrange(1, 400)
            batches = list(model.stream.batch(size))
            assert sum(b.rows for b in batches) == len(model.rows), repr(model.stream)
            for name in {n for r in model.rows for n in r} - {"x"}:
                got = [v for b in batches for v in b[name].tolist()]
                assert order(got) == order(r[name] for r in model.rows), (name, repr(model.stream))


def test_random_plans(tmp_path: Path) -> None:
    check_plans(tmp_path / "d", 40, 1)


@pytest.mark.soak
def test_many_random_plans(tmp_path: Path) -> None:
    check_plans(tmp_path / "d", 3000, 2)
