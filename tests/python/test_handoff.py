"""Batches in other libraries, without a copy."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import squirrel

from sample_data import image_samples

ROWS = [
    {"i": i, "f": i / 2, "b": i % 2 == 0, "c": np.complex64(i + 1j), "h": np.float16(i), "s": "t" * i,
     "y": b"z" * i, "v": np.arange(3, dtype=np.int32) + i, "m": np.full((2, 3), i, np.uint8),
     "r": list(range(i)), "g": np.full((i, 2), i, np.float32), "n": None if i == 1 else i}
    for i in range(4)
]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> squirrel.Batch:
    folder = tmp_path_factory.mktemp("handoff") / "d"
    squirrel.pack(ROWS, folder)
    (batch,) = squirrel.open(folder).batch(10)
    return batch


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_arrow_record_batch(batch: squirrel.Batch) -> None:
    pa = pytest.importorskip("pyarrow")
    record = batch.to_arrow()
    record.validate(full=True)
    assert record.num_rows == 4 and record.schema.names == list(batch)
    kinds = {f.name: f.type for f in record.schema}
    assert kinds["i"] == pa.int64() and kinds["f"] == pa.float64() and kinds["h"] == pa.float16()
    assert kinds["s"] == pa.large_string() and kinds["y"] == pa.large_binary()
    assert kinds["r"] == pa.large_list(pa.field("item", pa.int64()))
    rows = record.to_pylist()
    for row, wanted in zip(rows, ROWS):
        for name in ("i", "f", "s", "y", "n"):
            assert row[name] == wanted[name]
        assert row["b"] == int(wanted["b"])
        assert row["c"] == [wanted["c"].real, wanted["c"].imag]
        assert row["v"] == wanted["v"].tolist() and row["r"] == wanted["r"]
        assert row["g"]["data"] == wanted["g"].ravel().tolist()
        assert row["g"]["shape"] == list(wanted["g"].shape)
    assert record.column("n").null_count == 1
    tensor = record.column("m").to_numpy_ndarray()
    assert np.array_equal(tensor, np.stack([r["m"] for r in ROWS]))


def test_arrow_shares_the_memory(batch: squirrel.Batch) -> None:
    pa = pytest.importorskip("pyarrow")
    record = batch.to_arrow()
    assert record.column("i").buffers()[1].address == address(batch["i"])
    assert record.column("s").buffers()[2].address == address(batch["s"].data)


def test_arrow_columns(batch: squirrel.Batch) -> None:
    pa = pytest.importorskip("pyarrow")
    array = pa.array(batch["s"])
    assert array.to_pylist() == [r["s"] for r in ROWS]
    assert pa.array(batch["r"]).to_pylist() == [r["r"] for r in ROWS]
    assert pa.array(batch.column("i")).to_pylist() == [0, 1, 2, 3]


def test_arrow_outlives_the_batch(images: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    record = next(iter(squirrel.open(images).batch(500))).to_arrow()
    gc.collect()
    for _ in squirrel.open(images).batch(500):
        pass
    assert record.column("label").to_pylist() == list(range(500))


def test_arrow_stream(images: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    stream = squirrel.open(images).select("label", "text").batch(300)
    table = pa.table(stream)
    assert table.num_rows == 2000
    assert table.column("label").to_pylist() == list(range(2000))
    assert table.column("text").to_pylist()[7] == "sample 7"
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.read_next_batch().num_rows == 300
    reader.close()
    with pytest.raises(TypeError, match="batch"):
        squirrel.open(images).__arrow_c_stream__()


def test_arrow_stream_reports_errors(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    squirrel.pack(image_samples(600), tmp_path / "d", block_bytes=20_000, codec="none")
    (shard,) = (tmp_path / "d").glob("*.sqrl")
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 0x55
    shard.write_bytes(raw)
    with pytest.raises((pa.ArrowException, OSError), match=shard.name):
        pa.table(squirrel.open(tmp_path / "d").batch(10))


def test_padded_columns_bring_their_shapes(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    squirrel.pack([{"x": [1]}, {"x": [2, 3]}], tmp_path / "d")
    (batch,) = squirrel.open(tmp_path / "d").batch(2, ragged="pad")
    record = batch.to_arrow()
    assert record.column("x").to_pylist() == [[1, 0], [2, 3]]
    assert record.column("x.shape").to_pylist() == [[1], [2]]


@pytest.mark.parametrize("name", ["i", "f", "b", "c", "h", "v", "m"])
def test_dlpack_to_numpy(batch: squirrel.Batch, name: str) -> None:
    column = batch.column(name)
    assert column.__dlpack_device__() == (1, 0)
    got = np.from_dlpack(column)
    assert got.dtype == batch[name].dtype and np.array_equal(got, batch[name])
    assert address(got) == address(batch[name])


def test_dlpack_versions(batch: squirrel.Batch) -> None:
    column = batch.column("m")
    assert '"dltensor"' in repr(column.__dlpack__())
    assert '"dltensor"' in repr(column.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(column.__dlpack__(max_version=(1, 1)))
    copied = np.from_dlpack(batch.column("m"), copy=True) if np.__version__ >= "2.1" else None
    if copied is not None:
        assert address(copied) != address(batch["m"])
    with pytest.raises(BufferError):
        column.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        column.__dlpack__(dl_device=(2, 0))


def test_dlpack_of_strings_is_their_bytes(batch: squirrel.Batch) -> None:
    assert np.from_dlpack(batch["s"]).tobytes() == b"t" * 6


def test_an_unused_dlpack_capsule_frees_its_tensor(images: Path) -> None:
    import sys

    batch = next(iter(squirrel.open(images).batch(10)))
    column = batch.column("label")
    for _ in range(100):
        column.__dlpack__()
        column.__dlpack__(max_version=(1, 0))
    assert sys.getrefcount(batch._slot) < 10


def test_torch(images: Path) -> None:
    torch = pytest.importorskip("torch")
    batch = next(iter(squirrel.open(images).batch(100)))
    for value in (batch.column("image"), batch["image"]):
        tensor = torch.from_dlpack(value)
        assert tensor.dtype == torch.uint8 and tensor.shape == (100, 8, 8, 3)
        assert tensor.data_ptr() == address(batch["image"])
    tensor = torch.from_numpy(batch["label"])
    del batch
    gc.collect()
    for _ in squirrel.open(images).batch(100):
        pass
    assert tensor.tolist() == list(range(100))


def test_torch_writes_reach_numpy(images: Path) -> None:
    torch = pytest.importorskip("torch")
    batch = next(iter(squirrel.open(images).batch(10)))
    torch.from_dlpack(batch.column("label")).add_(5)
    assert batch["label"].tolist() == list(range(5, 15))


def test_buffer_protocol(batch: squirrel.Batch) -> None:
    assert memoryview(batch["v"]).shape == (4, 3)
    assert bytes(memoryview(batch["s"].data)) == b"t" * 6


def test_image_batches_are_what_was_packed(images: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    wanted = np.stack([s["image"] for s in image_samples(2000)[:64]])
    record = next(iter(squirrel.open(images).batch(64))).to_arrow()
    assert np.array_equal(record.column("image").to_numpy_ndarray(), wanted)
