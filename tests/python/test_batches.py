"""Batches: columns in one piece of memory."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import squirrel
from squirrel import Batch, Column

from sample_data import image_samples


def packed(folder: Path, samples: list[object], **options: object) -> squirrel.Stream:
    squirrel.pack(samples, folder / "data", **options)
    return squirrel.open(folder / "data")


def test_dense_columns(images: Path) -> None:
    wanted = image_samples(2000)
    at = 0
    for batch in squirrel.open(images).batch(256):
        assert type(batch) is Batch and list(batch) == ["image", "label", "text", "score"]
        rows = wanted[at : at + 256]
        assert batch.rows == len(rows) and batch["image"].shape == (len(rows), 8, 8, 3)
        assert np.array_equal(batch["image"], np.stack([r["image"] for r in rows]))
        assert batch["label"].dtype == np.int64
        assert batch["label"].tolist() == [r["label"] for r in rows]
        assert batch["score"].dtype == np.float64
        assert batch["score"].tolist() == [r["score"] for r in rows]
        assert batch["text"].tolist() == [r["text"] for r in rows]
        assert batch.valid == {} and batch.shapes == {}
        at += len(rows)
    assert at == 2000


def mixed_rows(count: int) -> list[dict[str, object]]:
    """Rows that look alike, with some between them that don't: other order, more keys, null, missing, another type."""
    rows: list[dict[str, object]] = []
    for i in range(count):
        row: dict[str, object] = {"id": i, "text": f"row {i}" * (i % 5), "score": i / 4}
        row["raw"] = bytes([i % 256]) * (i % 3)
        if i % 97 == 3:
            row = dict(reversed(row.items()))
        if i % 89 == 5:
            row["text"] = None
        if i % 83 == 7:
            del row["score"]
        if i % 79 == 11:
            row["score"] = i  # a whole number in a column of floats
        rows.append(row)
    return rows


def test_rows_that_differ_within_a_run_of_equal_ones(tmp_path: Path) -> None:
    rows = mixed_rows(2000)
    stream = packed(tmp_path, [*rows])
    at = 0
    for batch in stream.batch(300):
        part = rows[at : at + len(batch["id"])]
        at += len(part)
        assert batch["id"].tolist() == [r["id"] for r in part]
        assert [bytes(b) for b in batch["raw"].tolist()] == [r["raw"] for r in part]
        assert batch["text"].tolist() == [r["text"] for r in part]
        assert batch["score"].tolist() == [float(r.get("score", 0.0)) for r in part]  # type: ignore[arg-type]
        assert batch.valid["score"].tolist() == ["score" in r for r in part]
        assert batch.valid["text"].tolist() == [r["text"] is not None for r in part]
    assert at == len(rows)


@pytest.mark.parametrize("bad", [1, 63, 64, 65, 777])
def test_a_bad_row_within_a_run_of_equal_ones(tmp_path: Path, bad: int) -> None:
    rows: list[dict[str, object]] = [{"id": i, "text": f"row {i}"} for i in range(1000)]
    rows[bad]["text"] = 5
    stream = packed(tmp_path, [*rows]).batch(10, fields={"text": "string"})
    got: list[int] = []
    with pytest.raises(squirrel.SampleTypeError, match=f"sample {bad}"):
        for batch in stream:
            got += batch["id"].tolist()
    assert got[: bad // 10 * 10] == list(range(bad // 10 * 10)) and len(got) <= bad


def test_drop_remainder_and_len(images: Path) -> None:
    stream = squirrel.open(images)
    assert [len(b["label"]) for b in stream.batch(600)] == [600, 600, 600, 200]
    dropped = stream.batch(600, drop_remainder=True)
    assert [len(b["label"]) for b in dropped] == [600, 600, 600]
    assert len(stream) == 2000 and len(stream.batch(600)) == 4 and len(dropped) == 3


def test_columns_are_writable_and_independent(images: Path) -> None:
    kept = list(squirrel.open(images).batch(100))
    for batch in kept:
        assert batch["image"].flags.writeable and not batch["image"].flags.owndata
        batch["image"] += 1
    labels = np.concatenate([b["label"] for b in kept])
    assert labels.tolist() == list(range(2000))
    wanted = image_samples(2000)
    got = np.concatenate([b["image"] for b in kept])
    assert np.array_equal(got, np.stack([w["image"] + 1 for w in wanted]))


def test_an_array_outlives_its_batch(images: Path) -> None:
    label = next(iter(squirrel.open(images).batch(1000)))["label"]
    gc.collect()
    for _ in squirrel.open(images).batch(1000):
        pass
    assert label.tolist() == list(range(1000))


def test_strings(tmp_path: Path) -> None:
    texts = ["", "a", "é€𝄞", "long " * 1000, "z"]
    stream = packed(tmp_path, [{"t": t, "b": t.encode()} for t in texts])
    (batch,) = stream.batch(10)
    column = batch["t"]
    assert isinstance(column, Column) and column.kind == "string" and len(column) == 5
    assert list(column) == column.tolist() == texts == [column[i] for i in range(5)]
    assert column[-1] == "z" and column[1:3] == texts[1:3]
    assert column.offsets.tolist() == np.cumsum([0, *[len(t.encode()) for t in texts]]).tolist()
    assert column.data.tobytes() == "".join(texts).encode()
    assert batch["b"].kind == "binary" and batch["b"].tolist() == [t.encode() for t in texts]
    with pytest.raises(IndexError):
        column[5]


def test_ragged_offsets(tmp_path: Path) -> None:
    rows = [np.arange(n, dtype=np.float32) for n in (3, 0, 5)]
    grids = [np.ones((n, 2), np.int16) * n for n in (1, 2, 3)]
    stream = packed(tmp_path, [{"x": x, "g": g} for x, g in zip(rows, grids)])
    (batch,) = stream.batch(3)
    assert batch["x"].kind == "ragged" and batch["x"].offsets.tolist() == [0, 3, 3, 8]
    assert all(np.array_equal(a, b) for a, b in zip(batch["x"], rows))
    assert batch["x"].data.dtype == np.float32
    assert batch["g"].shapes.tolist() == [[1, 2], [2, 2], [3, 2]]
    assert all(np.array_equal(a, b) for a, b in zip(batch["g"].tolist(), grids))


def test_ragged_padded(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"x": [1, 2, 3]}, {"x": [4]}, {"x": [5, 6]}])
    (batch,) = stream.batch(3, ragged="pad", pad_value=-1)
    assert batch["x"].tolist() == [[1, 2, 3], [4, -1, -1], [5, 6, -1]]
    assert batch.shapes["x"].tolist() == [[3], [1], [2]]
    with pytest.raises(TypeError, match="x"):
        list(stream.batch(3, ragged="error"))


def test_missing_and_null_values(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"a": 1, "s": "x"}, {"a": None}, {"s": None, "a": 3}])
    (batch,) = stream.batch(3)
    assert batch["a"].tolist() == [1, 0, 3]
    assert batch.valid["a"].dtype == np.bool_ and batch.valid["a"].tolist() == [True, False, True]
    assert batch["s"].tolist() == ["x", None, None]
    assert batch["s"].valid.tolist() == [True, False, False]


def test_nested_fields_are_dotted(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"m": {"x": i, "y": {"z": i / 2}}} for i in range(4)])
    (batch,) = stream.batch(4)
    assert set(batch) == {"m.x", "m.y.z"}
    assert batch["m.x"].tolist() == [0, 1, 2, 3] and batch["m.y.z"].tolist() == [0, 0.5, 1, 1.5]
    (again,) = stream.map(dict).batch(4)
    assert {n: c.tolist() for n, c in again.items()} == {n: c.tolist() for n, c in batch.items()}


@pytest.mark.parametrize("last", [{"m": {"x": 1.5}}, {"m": {"x": 1.5, "y": {"z": 2}}}])
def test_null_in_place_of_a_map(tmp_path: Path, last: dict) -> None:
    samples = [{"m": None}, {"k": 1}, {"m": {}}, last]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    for stream in (packed(tmp_path, samples), squirrel.open(tmp_path / "lines.jsonl")):
        (batch,) = stream.batch(4)
        assert "m" not in batch
        assert batch.valid["m.x"].tolist() == [False, False, False, True]
        assert batch["m.x"].tolist() == [0, 0, 0, 1.5]
        (batch,) = stream.select("m").batch(4)
        assert batch["m.x"].tolist() == [0, 0, 0, 1.5]
    stream = squirrel.open(tmp_path / "lines.jsonl").take(1)
    (batch,) = stream.batch(4, fields={"m.x": "float64?"})
    assert batch.valid["m.x"].tolist() == [False] and "m" not in batch


def test_a_number_in_place_of_a_map_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(squirrel.SampleTypeError, match="map"):
        list(packed(tmp_path, [{"m": 1}, {"m": {"x": 1}}]).batch(2))


def test_clashing_values_name_both_samples(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"x": 1}] * 5 + [{"x": "text"}])
    with pytest.raises(squirrel.SampleTypeError) as caught:
        list(stream.batch(10))
    assert '"x"' in str(caught.value) and "5" in str(caught.value) and "0" in str(caught.value)


def told(stream: squirrel.Stream, **options: object) -> str:
    with pytest.raises(squirrel.SampleTypeError) as caught:
        list(stream.batch(10, **options))
    return str(caught.value)


@pytest.mark.parametrize("lines", [False, True])
def test_both_samples_of_a_clash_are_named(tmp_path: Path, lines: bool) -> None:
    def opened(name: str, *shards: list[object]) -> squirrel.Stream:
        (tmp_path / name).mkdir()
        if not lines:
            squirrel.pack(sum(shards, []), tmp_path / name / "data", samples_per_shard=len(shards[0]))
            return squirrel.open(tmp_path / name / "data")
        for i, shard in enumerate(shards):
            text = "".join(json.dumps(s) + "\n" for s in shard)
            (tmp_path / name / f"{i}.jsonl").write_text(text)
        return squirrel.open(tmp_path / name)

    text = told(opened("bool", [{"b": 1}, {"a": 1}, {"a": None}, {"a": True}]))
    assert '"a"' in text and "sample 3: " in text and "sample 1 of " in text
    assert "bool" in text and "int64" in text and "drop()" in text
    text = told(opened("two", [{"a": 1}, {"a": 2}], [{"a": 3}, {"a": "x"}]))
    assert "sample 1: " in text and "string" in text and "sample 0 of " in text
    text = told(opened("one", [{"a": 1}, {"a": ["x", 1]}]).select("a"))
    assert "sample 1: " in text and "a list of 2 values" in text
    text = told(opened("ragged", [{"a": [1, 2]}, {}, {"a": [3]}]), ragged="error")
    assert "sample 2: " in text and "sample 0 of " in text
    assert "a list of 1 values" in text and "a list of 2 values" in text


def test_a_clash_between_rows_that_pass_the_filters(tmp_path: Path) -> None:
    rows = [{"k": 0, "a": "x"}, {"k": 1, "a": 1}, {"k": 0, "a": "y"}, {"k": 1, "a": True}]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(s) + "\n" for s in rows))
    text = told(squirrel.open(tmp_path / "l.jsonl").filter("k == 1"))
    assert "sample 3: " in text and "sample 1 of " in text and "int64" in text and "bool" in text


def test_an_integer_that_widens_its_column_beyond_itself(tmp_path: Path) -> None:
    text = told(packed(tmp_path, [{"a": None}, {"a": -1}, {"a": 5}, {"a": 2**64 - 1}]))
    assert "sample 3: " in text and "since sample 3" not in text and "is uint64" in text
    assert "sample 1 of " in text and "has int64" in text  # both are named


def test_too_many_and_too_long_names(tmp_path: Path) -> None:
    for name, more in (("many", {f"f{i}": i for i in range(5000)}), ("long", {"x" * 1100: 1})):
        rows = [{"a": 1, "m": {"k": 1}}, {"a": 2, "m": more}]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(s) + "\n" for s in rows))
        stream = squirrel.open(path)
        with pytest.raises(squirrel.Error) as caught:
            list(stream.batch(2))
        text = str(caught.value)
        assert f"{name}.jsonl: sample 1: " in text and "select()" in text and "drop()" in text
        for chain in (stream.select("a"), stream.drop("m")):
            assert [b["a"].tolist() for b in chain.batch(2)] == [[1, 2]]


def test_declared_fields(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"x": 1}, {"x": 2}])
    (batch,) = stream.batch(2, fields={"x": "float32"})
    assert batch["x"].dtype == np.float32 and batch["x"].tolist() == [1, 2]


def test_budgets_and_buckets(tmp_path: Path) -> None:
    lengths = [3, 50, 4, 60, 2, 55, 3, 3]
    stream = packed(tmp_path, [{"t": list(range(n)), "n": n} for n in lengths])
    batches = list(stream.batch(2, length_by="t", boundaries=[10]))
    assert all(len({n < 10 for n in b["n"].tolist()}) == 1 for b in batches)
    assert sorted(n for b in batches for n in b["n"].tolist()) == sorted(lengths)
    for batch in stream.batch(max_tokens=120, length_by="t", ragged="pad"):
        assert batch.rows == 1 or batch["t"].size <= 120
    with pytest.raises(ValueError):
        stream.batch(2, max_tokens=100)
    with pytest.raises(ValueError):
        stream.batch()


def test_places_say_where_rows_came_from(images: Path) -> None:
    batch = next(iter(squirrel.open(images).skip(298).batch(4)))
    assert batch.places.tolist() == [[0, 298], [0, 299], [1, 0], [1, 1]]


def test_batches_pickle_and_copy(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"x": [1] * (i % 3), "s": str(i), "y": None if i else 1} for i in range(5)])
    (batch,) = stream.batch(5)
    for again in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert type(again) is Batch and again.rows == 5
        assert again["s"].tolist() == batch["s"].tolist() == ["0", "1", "2", "3", "4"]
        assert [a.tolist() for a in again["x"]] == [[1] * (i % 3) for i in range(5)]
        assert again.valid["y"].tolist() == [True, False, False, False, False]
        assert again.places.tolist() == batch.places.tolist()


def test_batch_behind_a_callable(images: Path) -> None:
    native = squirrel.open(images).batch(300)
    python = squirrel.open(images).map(dict).batch(300)
    for a, b in zip(native, python, strict=True):
        assert list(a) == list(b) and a.rows == b.rows
        assert np.array_equal(a["image"], b["image"]) and np.array_equal(a["label"], b["label"])
        assert a["label"].dtype == b["label"].dtype
        assert a["text"].tolist() == b["text"].tolist()


def test_ragged_batch_behind_a_callable() -> None:
    from squirrel.iterstream import IterableSource

    items = IterableSource([{"x": np.arange(n), "s": None if n else "a"} for n in range(3)])
    (batch,) = items.batch(3)
    assert [x.tolist() for x in batch["x"]] == [[], [0], [0, 1]]
    assert batch["s"].tolist() == ["a", None, None]
    (padded,) = items.batch(3, ragged="pad", pad_value=9)
    assert padded["x"].tolist() == [[9, 9], [0, 9], [0, 1]]
    with pytest.raises(TypeError):
        list(items.batch(3, ragged="error"))


def test_only_nulls(tmp_path: Path) -> None:
    stream = packed(tmp_path, [{"a": None, "b": 1}, {"a": None, "b": 2}])
    (batch,) = stream.batch(2)
    assert batch["b"].tolist() == [1, 2]
    if "a" in batch:
        assert list(batch["a"]) == [None, None]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_arrays_of_json_lines(tmp_path: Path, suffix: str) -> None:
    """Their numbers lie beside the text: every way a batch takes them."""
    whole = [
        {
            "dense": np.arange(6, dtype=">i4").reshape(2, 3) + i,
            "ragged": np.full(i % 5, i, np.float32),
            "zero": np.array(i, np.int16),
        }
        for i in range(3000)
    ]
    squirrel.pack(whole, tmp_path / f"data{suffix}")
    stream = squirrel.open(tmp_path / f"data{suffix}")
    at = 0
    for batch in stream.batch(700):
        rows = whole[at : at + batch.rows]
        assert np.array_equal(batch["dense"], np.stack([r["dense"] for r in rows]))
        assert all(np.array_equal(a, r["ragged"]) for a, r in zip(batch["ragged"], rows))
        at += batch.rows
    assert at == 3000
    padded = next(iter(stream.skip(4).batch(2, ragged="pad", pad_value=-1)))
    assert padded["ragged"].tolist() == [[4, 4, 4, 4], [-1, -1, -1, -1]]
    few = stream.filter("zero == 7 or zero == 2999").batch(2)  # rows of two blocks, copied out
    assert [b["dense"][:, 0, 0].tolist() for b in few] == [[7, 2999]]
    buckets = stream.batch(1000, length_by="ragged", boundaries=[1, 2, 3, 4])
    for batch in buckets:
        assert all((row == first).all() for row, first in zip(batch["ragged"], batch["dense"][:, 0, 0]))


def both_ways(tmp_path: Path, samples: list[object], **options: object) -> tuple[object, object]:
    """The only batch of the native way and of the way behind a callable, or their errors."""
    squirrel.pack(samples, tmp_path / "data", overwrite=True)
    stream = squirrel.open(tmp_path / "data")
    found: list[object] = []
    for way in (stream, stream.map(dict)):
        try:
            (batch,) = way.batch(100, **options)
            found.append(batch)
        except squirrel.Error as error:
            found.append(error)
    return found[0], found[1]


F4 = np.float32
CLASHES = {
    "bool beside int": [7, True],
    "int beside bool": [True, 7],
    "float beside bool": [False, 0.5],
    "dtypes of arrays": [np.zeros(2, np.int32), np.zeros(2, F4)],
    "dtypes of scalars": [F4(1), np.float16(1)],
    "plain beside narrow": [np.int16(1), 7],
    "dimensions": [np.zeros(2, F4), np.zeros((2, 2), F4)],
    "number beside array": [np.zeros(2), 1.0],
    "text beside bytes": ["a", b"a"],
    "text beside number": [1, "a"],
    "text beside list": [[1], "a"],
    "list of bools beside ints": [[1, 2], [True]],
    "more than float64 holds": [0.5, 2**53 + 1],
    "uint64 beside negative": [2**63, -1],
}


@pytest.mark.parametrize("values", CLASHES.values(), ids=CLASHES.keys())
def test_a_clash_behind_a_callable_is_refused_as_natively(tmp_path: Path, values: list[object]) -> None:
    samples = [{"x": values[0]}, {"x": None}, {"x": values[1]}]
    for error in both_ways(tmp_path, samples):
        assert isinstance(error, squirrel.SampleTypeError) and '"x"' in str(error)
    text = str(error)
    assert "sample 2" in text and ("sample 0" in text or "it holds a list" in text)
    assert "map()" in text and "drop()" in text


@pytest.mark.parametrize(
    "value", [[1, "a"], [[1], [2]], [None], [True, 2], np.array(["a"]), np.array(1, "M8[s]"), 1 + 2j],
    ids=str,
)
def test_what_is_no_column_behind_a_callable_either(tmp_path: Path, value: object) -> None:
    for error in both_ways(tmp_path, [{"x": 1, "y": value}]):
        assert isinstance(error, squirrel.SampleTypeError) and '"y"' in str(error), error


@pytest.mark.parametrize(
    "values",
    [
        [1, 0.5, None, -3],
        [2**63, 1],
        [True, None, False],
        [np.int64(3), 4],
        [np.uint64(3), 4],
        [np.float64(0.5), 1],
        [np.arange(3, dtype=">i2"), np.arange(3, dtype="<i2")],
        [np.complex64(1j), np.complex64(2)],
        [[], np.arange(3, dtype=np.int16), []],
        [[1, 2], [0.5]],
        [[1, 2], [3, 4]],
        [np.ones((2, 3), F4), None, np.ones((1, 3), F4)],
        [np.zeros(0, F4), np.zeros(0, F4)],
        [b"a", None, b""],
    ],
    ids=str,
)
@pytest.mark.parametrize("ragged", ["offsets", "pad", "error"])
def test_values_join_as_natively(tmp_path: Path, values: list[object], ragged: str) -> None:
    native, python = both_ways(tmp_path, [{"x": v} for v in values], ragged=ragged)
    if isinstance(native, squirrel.Error):
        assert isinstance(python, type(native)), python
        return
    assert isinstance(native, Batch) and isinstance(python, Batch), python
    one, other = native["x"], python["x"]
    assert type(one) is type(other)
    if isinstance(one, Column):
        assert one.kind == other.kind and one.data.dtype == other.data.dtype
        assert [repr(v) for v in one] == [repr(v) for v in other]
    else:
        assert one.dtype == other.dtype and np.array_equal(one, other)
    assert {k: v.tolist() for k, v in native.valid.items()} == {k: v.tolist() for k, v in python.valid.items()}


def test_positions_count_over_all_batches() -> None:
    from squirrel.iterstream import IterableSource

    items = IterableSource([{"x": 1}] * 5 + [{"x": True}])
    with pytest.raises(squirrel.SampleTypeError, match="sample 5: .* since sample 4"):
        list(items.batch(4))


def test_a_map_that_is_null_has_missing_fields(tmp_path: Path) -> None:
    samples = [{"m": None, "n": 1}, {"m": {"x": 1, "y": {"z": 2}}, "n": 2}, {"m": {"x": 3, "y": None}, "n": 3}]
    from squirrel.iterstream import IterableSource

    (batch,) = IterableSource(samples).batch(3)
    assert list(batch) == ["n", "m.x", "m.y.z"]
    assert batch["m.x"].tolist() == [0, 1, 3] and batch["m.y.z"].tolist() == [0, 2, 0]
    assert batch.valid["m.x"].tolist() == [False, True, True]
    assert batch.valid["m.y.z"].tolist() == [False, True, False]


@pytest.mark.parametrize("key", [1, b"k", "a\0b", ("a",), None], ids=str)
def test_keys_that_name_no_column_are_refused_behind_a_callable(key: object) -> None:
    from squirrel.iterstream import IterableSource

    for sample in ({"x": 3, key: 2}, {"x": 3, "m": {key: 2}}):
        with pytest.raises(squirrel.SampleTypeError) as caught:
            list(IterableSource([{"x": 3}, sample]).batch(2))
        assert "sample 1" in str(caught.value) and repr(key) in str(caught.value)


@pytest.mark.parametrize(
    "key, shown", [(7, "7"), (b"k", '"k"'), ("a\0b", '"a\\x00b"'), ("", '""')], ids=str
)
@pytest.mark.parametrize("later", [False, True])
def test_keys_that_name_no_column_are_refused_natively(
    tmp_path: Path, key: object, shown: str, later: bool
) -> None:
    for number, sample in enumerate(({"x": 3, key: 2}, {"x": 3, "m": {"n": 1, key: 2}})):
        if number and key == "":
            continue  # "m." is a name
        folder = tmp_path / str(number)
        folder.mkdir()
        # The columns are fixed by the footer's schema, or (JSON has no such keys) by a block.
        stream = packed(folder, [{"x": 3}] * 2000 * later + [sample], block_bytes=10_000)
        with pytest.raises(squirrel.SampleTypeError) as caught:
            list(stream.batch(2))
        message = str(caught.value)
        assert f"sample {2000 * later}: the key {shown}" in message and "map()" in message
        assert ('in "m"' in message) == bool(number)
        # What the stages leave out is no loss; a missing value is none either.
        assert sum(b.rows for b in stream.select("x").batch(9)) == 2000 * later + 1
        if number:
            assert sum(b.rows for b in stream.drop("m").batch(9)) == 2000 * later + 1
        if key == b"k" and not number:
            assert sum(b.rows for b in stream.drop("k").batch(9)) == 2000 * later + 1


def test_samples_of_nameless_keys_alone(tmp_path: Path) -> None:
    with pytest.raises(squirrel.SampleTypeError, match="sample 0: the key 5 is an integer"):
        list(packed(tmp_path, [{5: 2}]).batch(2))


def test_dots_in_keys_behind_a_callable(tmp_path: Path) -> None:
    native, python = both_ways(tmp_path, [{"a.b": 1, "c\\d": 2, "e": {"f.g": 3}}])
    assert set(native) == set(python) == {"a\\.b", "c\\\\d", "e.f\\.g"}


def test_a_pad_value_that_does_not_fit_behind_a_callable(tmp_path: Path) -> None:
    for error in both_ways(tmp_path, [{"x": [1]}, {"x": [1, 2]}], ragged="pad", pad_value=0.5):
        assert isinstance(error, squirrel.ArgumentError) and "0.5" in str(error)


def test_a_dict_that_contains_itself_ends_with_an_error() -> None:
    from squirrel.iterstream import IterableSource

    loop: dict[str, object] = {}
    loop["a"] = loop
    with pytest.raises(squirrel.SampleTypeError, match="32 levels"):
        list(IterableSource([loop]).batch(1))
