"""Shards of squirrel-core 0.20.2 and ours: each side reads what the other wrote, and for the same samples both write
the same bytes (behind gzip)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from samples import SETS, all_differences, as_read, difference

import squirrel

Peer = Callable[..., str]
# Sets that squirrel-core writes; "times" it reads only.
WRITTEN = [("messagepack", "plain"), ("messagepack", "arrays"), ("jsonl", "lines"), ("jsonl", "keyed")]
CODEC = {"messagepack": {}, "jsonl": {"codec": "gzip"}}  # plain lines are no store of squirrel-core's


@pytest.fixture(scope="module")
def theirs(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Directories that squirrel-core wrote."""
    root = tmp_path_factory.mktemp("theirs")

    def directory(name: str, samples: str) -> Path:
        path = root / f"{name}-{samples}"
        if not path.exists():
            peer("write", name, path, samples)
        return path

    return directory


def pack(name: str, samples: str, directory: Path) -> Path:
    squirrel.pack(SETS[samples](), directory, format=name, samples_per_shard=10, prefix="shard", **CODEC[name])
    return directory


def payloads(directory: Path) -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in sorted(directory.glob("*.gz"))]


@pytest.mark.parametrize(("name", "samples"), WRITTEN)
def test_we_read_what_they_wrote(theirs: Callable[[str, str], Path], name: str, samples: str) -> None:
    stream = squirrel.open(theirs(name, samples))
    assert stream.driver == name
    assert all_differences(list(stream), as_read(samples)) is None


@pytest.mark.parametrize(("name", "samples"), [*WRITTEN, ("messagepack", "times")])
def test_they_read_what_we_wrote(peer: Peer, tmp_path: Path, name: str, samples: str) -> None:
    peer("check", name, pack(name, samples, tmp_path / "ours"), samples)


@pytest.mark.parametrize(("name", "samples"), WRITTEN)
def test_both_write_the_same_bytes(
    theirs: Callable[[str, str], Path], tmp_path: Path, name: str, samples: str
) -> None:
    ours = pack(name, samples, tmp_path / "ours")
    assert payloads(ours) == payloads(theirs(name, samples))


def test_converted_shards_keep_the_bytes(theirs: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Read natively and written natively, never as Python objects: the same payload."""
    for name, samples in (("messagepack", "arrays"), ("jsonl", "lines")):
        source, native, again = theirs(name, samples), tmp_path / samples, tmp_path / name
        squirrel.pack(source, native)
        squirrel.pack(native, again, format=name, samples_per_shard=10, **CODEC[name])
        assert payloads(again) == payloads(source)


@pytest.mark.parametrize("name", ["messagepack", "jsonl"])
def test_the_catalog_drivers_name_opens_their_store(theirs: Callable[[str, str], Path], name: str) -> None:
    from squirrel.catalog import Catalog, Source

    samples = "plain" if name == "messagepack" else "lines"
    catalog = Catalog()
    catalog["theirs"] = Source(name, driver_kwargs={"url": str(theirs(name, samples))})
    assert all_differences(list(catalog["theirs"].get_driver().get_iter()), as_read(samples)) is None


def test_utf8_instead_of_escapes_is_read_by_them(peer: Peer, tmp_path: Path) -> None:
    squirrel.pack(SETS["lines"](), tmp_path / "utf8", format="jsonl", codec="gzip", ascii=False)
    assert "日本".encode() in b"".join(payloads(tmp_path / "utf8"))
    peer("check", "jsonl", tmp_path / "utf8", "lines")


@pytest.mark.parametrize(("name", "samples"), [("messagepack", "plain"), ("jsonl", "lines")])
def test_a_cut_shard_of_theirs_is_an_error(
    peer: Peer, theirs: Callable[[str, str], Path], tmp_path: Path, name: str, samples: str
) -> None:
    """squirrel-core raises an EOFError that names no file. Here it is one error that does, behind the samples that
    are whole."""
    whole = sorted(theirs(name, samples).glob("*.gz"))[0].read_bytes()
    wanted = as_read(samples)
    for keep in (len(whole) - 1, len(whole) - 8, len(whole) // 2, 30):
        path = tmp_path / f"cut-{keep}.gz"
        path.write_bytes(whole[:keep])
        found = []
        with pytest.raises(squirrel.TruncatedError) as caught:
            for sample in squirrel.open(path):
                found.append(sample)
        assert str(path) in str(caught.value)
        assert all_differences(found, wanted[: len(found)]) is None


@pytest.mark.parametrize("name", ["messagepack", "jsonl"])
def test_a_shard_of_no_bytes_is_an_error(peer: Peer, tmp_path: Path, name: str) -> None:
    """squirrel-core takes it for a shard of no samples; no gzip file is so short."""
    squirrel.pack([{"n": 1}], tmp_path, format=name, prefix="a", **CODEC[name])
    (tmp_path / "b.gz").write_bytes(b"")
    assert int(peer("count", name, tmp_path)) == 1
    with pytest.raises(squirrel.Error, match="b.gz"):
        list(squirrel.open(tmp_path))


def test_a_payload_cut_within_a_sample(peer: Peer, tmp_path: Path) -> None:
    """The gzip stream is whole, but its writer stopped within a sample: squirrel-core drops the tail without a word,
    here the error names the file and the sample."""
    samples = [{"text": "x" * 50, "n": i} for i in range(5)]
    squirrel.pack(samples, tmp_path / "whole", format="messagepack", prefix="a")
    payload = payloads(tmp_path / "whole")[0]
    (tmp_path / "cut").mkdir()
    path = tmp_path / "cut" / "a.gz"
    path.write_bytes(gzip.compress(payload[:-3]))
    assert int(peer("count", "messagepack", tmp_path / "cut")) == 4  # and no error
    found = []
    with pytest.raises(squirrel.TruncatedError, match="a.gz.*sample 4"):
        for sample in squirrel.open(tmp_path / "cut"):
            found.append(sample)
    assert found == samples[:4]


def test_a_missing_directory_is_an_error(peer: Peer, tmp_path: Path) -> None:
    """squirrel-core's driver gives no samples for a path that is not there."""
    (tmp_path / "empty").mkdir()
    assert int(peer("count", "messagepack", tmp_path / "empty")) == 0
    for path in (tmp_path / "missing", tmp_path / "empty"):
        with pytest.raises(squirrel.Error, match=path.name):
            list(squirrel.open(path, driver="messagepack"))


@pytest.mark.parametrize("value", [
    np.array([b"bytes"]), np.zeros(2, "M8[D]"), np.zeros(2, "c8"), np.zeros(2, [("a", "u1")]), 1j,
], ids=lambda v: str(getattr(v, "dtype", v)))
def test_what_squirrel_core_cannot_write_as_json_and_read_again_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(squirrel.SampleTypeError, match="JSON"):
        squirrel.pack([{"x": value}], tmp_path / "out.jsonl.gz")


def test_integers_beyond_64_bits_of_theirs_are_read(tmp_path: Path) -> None:
    """Python's json writes them; MessagePack has no room for them, so they are read only."""
    text = json.dumps({"n": 10**30, "m": -(10**25)})
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode() + b"\n"))
    (sample,) = squirrel.open(tmp_path)
    assert difference(sample, {"n": 10**30, "m": -(10**25)}) is None
    with pytest.raises(squirrel.UnsupportedError, match="64 bits") as caught:
        squirrel.pack(tmp_path, tmp_path / "out.jsonl")
    assert "18446744073709551615" not in str(caught.value)
