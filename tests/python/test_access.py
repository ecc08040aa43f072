"""Samples by position: len, indexing, slices, get_many, as a map-style dataset of torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import squirrel

from sample_data import image_samples


def numbers(samples: list[dict]) -> list[int]:
    return [sample["label"] for sample in samples]


def test_index_and_slice(images: Path) -> None:
    stream = squirrel.open(images)
    all_samples = list(image_samples(2000))
    assert len(stream) == 2000
    for index in (0, 1, 299, 300, 1234, 1999, -1, -2000, np.int64(17), True):
        got, want = stream[index], all_samples[index]
        assert got.keys() == want.keys() and got["label"] == want["label"]
        np.testing.assert_array_equal(got["image"], want["image"])
        assert got["image"].flags.writeable and got["image"].flags.owndata
    for part in (slice(3), slice(290, 310), slice(None, None, -501), slice(5, 2), slice(-3, None)):
        assert numbers(stream[part]) == list(range(2000))[part]


def test_get_many(images: Path) -> None:
    stream = squirrel.open(images)
    rng = np.random.default_rng(3)
    wanted = rng.integers(-2000, 2000, 1500)
    expected = [int(i) % 2000 for i in wanted]
    for indices in (wanted, wanted.tolist(), tuple(wanted), wanted.astype(np.int32), wanted[::1]):
        assert numbers(stream.get_many(indices)) == expected
    assert numbers(stream.get_many(range(10, 0, -1))) == list(range(10, 0, -1))
    assert numbers(stream.get_many(np.arange(20)[::-3])) == list(range(19, 0, -3))
    assert stream.get_many([]) == []
    assert numbers(stream.get_many([5, 5, -1, 5])) == [5, 5, 1999, 5]
    views = stream.get_many([7, 1000], copy=False)
    assert not views[0]["image"].flags.writeable
    del stream
    np.testing.assert_array_equal(views[1]["image"], list(image_samples(1001))[1000]["image"])


def test_behind_select_drop_and_rename(images: Path) -> None:
    stream = squirrel.open(images).select("label", "text").rename(label="n").drop("text")
    assert stream[41] == {"n": 41}
    assert stream.get_many([3, -1]) == [{"n": 3}, {"n": 1999}]
    assert pickle.loads(pickle.dumps(stream))[41] == {"n": 41}
    for other in (stream.filter("n > 3"), stream.take(3), stream.shuffle_all(1), stream.batch(4)):
        with pytest.raises(TypeError, match="in front of filter"):
            other[0]


def test_errors(images: Path, tmp_path: Path) -> None:
    stream = squirrel.open(images)
    for index in (2000, -2001, 2**70, -(2**70)):
        with pytest.raises(IndexError, match=rf"no sample {index}: .* 2000, numbered 0 to 1999"):
            stream[index]
    with pytest.raises(IndexError, match="no sample 2000"):
        stream.get_many(np.array([0, 2000]))
    for wrong in ("3", 1.0, None):
        with pytest.raises(TypeError if wrong != "3" else squirrel.UnsupportedError):
            stream[wrong]
        with pytest.raises(TypeError):
            stream.get_many([0, wrong])
    with pytest.raises(TypeError):
        stream.get_many(3)
    squirrel.pack([], tmp_path / "empty")
    with pytest.raises(IndexError, match="has none"):
        squirrel.open(tmp_path / "empty")[0]
    squirrel.pack([{"a": 1}], tmp_path / "a.gz")
    with pytest.raises(squirrel.UnsupportedError, match="squirrel index"):
        squirrel.open(tmp_path / "a.gz")[0]


def test_small_blocks_for_random_access(tmp_path: Path) -> None:
    report = squirrel.pack(image_samples(500), tmp_path / "d", block_bytes="4 KiB", codec="none")
    assert report.samples == 500
    stream = squirrel.open(tmp_path / "d")
    order = np.random.default_rng(1).permutation(500)
    assert numbers(stream.get_many(order)) == order.tolist()
    assert numbers(list(stream)) == list(range(500))


def test_map_style_dataset_of_torch(images: Path) -> None:
    pytest.importorskip("torch")
    code = """
        import sys
        import torch.utils.data
        import squirrel

        dataset = squirrel.open(sys.argv[1]).select("label")
        for workers in (0, 2):
            loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=workers)
            seen = torch.cat([batch["label"] for batch in loader]).tolist()
            assert sorted(seen) == list(range(2000)) and seen != sorted(seen)
        """
    import textwrap

    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(images)], check=True, timeout=300)


def test_threads_and_forks(images: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    stream = squirrel.open(images)
    wanted = [np.random.default_rng(i).integers(0, 2000, 300) for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for want, got in zip(wanted, pool.map(stream.get_many, wanted)):
            assert numbers(got) == want.tolist()


def test_a_huge_range_is_an_index_error(images: Path) -> None:
    stream = squirrel.open(images)
    for beyond in (range(10**12), range(-(10**12), 0), range(0, 10**12, 10**6)):
        with pytest.raises(IndexError):
            stream.get_many(beyond)
    assert stream.get_many(range(5, 5)) == []
    assert numbers(stream.get_many(range(7, -1, -3))) == [7, 4, 1]


@pytest.mark.parametrize("size", [7_000, 100_000, 350_000, 1_000_000])
def test_a_far_sample_costs_a_mebibyte_at_most(tmp_path, size):
    """An index and a block, which ends before the sample that would make it larger than 1 MiB."""
    rng = np.random.default_rng(size)
    count = 6_000_000 // size
    squirrel.pack(({"x": rng.integers(0, 255, size, np.uint8)} for _ in range(count)), tmp_path / "data", codec="none")
    for i in (0, count // 2, count - 1):
        stream = squirrel.open(tmp_path / "data", throttle="latency=1us")
        before = stream.metrics()
        assert stream[i]["x"].nbytes == size
        after = stream.metrics()
        assert after["requests"] - before["requests"] <= 2
        assert size < after["bytes"] - before["bytes"] <= 1_100_000


def test_a_far_sample_of_small_blocks_costs_them(tmp_path):
    rng = np.random.default_rng(1)
    samples = ({"x": rng.integers(0, 255, 5_000, np.uint8)} for _ in range(1000))
    squirrel.pack(samples, tmp_path / "data", codec="none", block_bytes="16 KiB")
    stream = squirrel.open(tmp_path / "data", throttle="latency=1us")
    stream[0]  # its index is held from here on
    for i in (3, 500, 999):
        before = stream.metrics()
        assert stream[i]["x"].nbytes == 5_000
        after = stream.metrics()
        assert after["requests"] - before["requests"] == 1
        assert 5_000 < after["bytes"] - before["bytes"] <= 16_384


def test_a_sample_that_is_larger_than_a_block_stands_alone(tmp_path):
    """Blocks of what fits: 300 kB + 600 kB, then 2 MB alone, then the rest."""
    sizes = [300_000, 600_000, 200_000, 2_000_000, 10, 20]
    squirrel.pack(({"x": np.full(n, i % 7, np.uint8)} for i, n in enumerate(sizes)), tmp_path / "data")
    assert squirrel.open(tmp_path / "data").forecast()["blocks"] == 4  # (300, 600), (200), (2000), (the rest)
    assert [s["x"].nbytes for s in squirrel.open(tmp_path / "data")] == sizes


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """4,000 samples in one shard of many small blocks, in groups of fields."""
    folder = tmp_path_factory.mktemp("groups") / "data"
    rng = np.random.default_rng(4)
    squirrel.pack(
        (
            {"id": i, "x": rng.integers(0, 255, 900, np.uint8), "y": rng.integers(0, 255, 300, np.uint8)}
            for i in range(4000)
        ),
        folder, codec="none", block_bytes="8 KiB", groups={"pixels": ["x"], "more": ["y"]}, index=["id"],
    )  # fmt: skip
    return folder


def _cost(stream, indices):
    before = stream.metrics()
    samples = stream.get_many(indices)
    after = stream.metrics()
    return samples, after["requests"] - before["requests"], after["bytes"] - before["bytes"]


def test_neighbours_in_groups_are_one_request_a_group(grouped):
    stream = squirrel.open(grouped, throttle="latency=1us")
    blocks = stream.forecast()["blocks"]
    assert blocks > 400
    samples, requests, _ = _cost(stream, range(500, 3500))
    assert [s["id"] for s in samples] == list(range(500, 3500))
    assert all(s["x"].size == 900 and s["y"].size == 300 for s in samples)
    assert requests <= 3 * 3  # of each group: its index, its blocks


def test_a_select_reads_its_groups_only(grouped):
    stream = squirrel.open(grouped, throttle="latency=1us")
    samples, requests, size = _cost(stream.select("y"), range(4000))
    assert len(samples) == 4000 and {s["y"].size for s in samples} == {300} and "x" not in samples[0]
    assert requests <= 3 and size < 4000 * 400
    with pytest.raises(squirrel.NotFoundError, match='no sample has a field "z"'):
        stream.select("z").get_many([1])
    with pytest.raises(squirrel.NotFoundError, match='no sample has a field "pixel"'):
        list(stream.select("pixel"))


def test_neighbours_behind_where_are_one_request(grouped):
    stream = squirrel.open(grouped, throttle="latency=1us").where("id >= 1000 and id < 3000").select("y")
    samples, requests, _ = _cost(stream, range(0, 2000, 2))
    assert len(samples) == 1000 and requests <= 5
    whole = squirrel.open(grouped, throttle="latency=1us").where("id >= 1000 and id < 3000")
    samples, requests, _ = _cost(whole, range(2000))
    assert [s["id"] for s in samples] == list(range(1000, 3000)) and requests <= 3 * 3


def test_far_samples_in_groups_by_chance(grouped):
    wanted = np.random.default_rng(5).integers(0, 4000, 700)
    plain = list(squirrel.open(grouped))
    for stream in (squirrel.open(grouped), squirrel.open(grouped, throttle="latency=1us")):
        for sample, i in zip(stream.get_many(wanted), wanted):
            assert sample["id"] == i
            np.testing.assert_array_equal(sample["x"], plain[i]["x"])
            np.testing.assert_array_equal(sample["y"], plain[i]["y"])
