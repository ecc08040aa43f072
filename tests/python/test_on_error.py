"""on_error of native streams: what is left out, replaced, counted and told."""

from __future__ import annotations

import collections
import json

import numpy as np
import pytest

import squirrel
from squirrel.iterstream import SKIP, SUBSTITUTE, OnError

N = 1000


@pytest.fixture
def damaged(tmp_path):
    """One shard of 1,000 samples in blocks; block 3's bytes are changed. Also which samples are in it."""
    folder = tmp_path / "data"
    rng = np.random.default_rng(3)
    samples = [{"id": i, "x": rng.integers(0, 255, 200, np.uint8)} for i in range(N)]
    squirrel.pack(samples, folder, block_bytes=20_000)
    (path,) = folder.glob("*.sqrl")
    raw = bytearray(path.read_bytes())
    place = raw.find(samples[300]["x"].tobytes())
    assert place > 0
    raw[place] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(squirrel.CorruptError) as caught:
        list(squirrel.open(folder))
    assert "block" in str(caught.value)
    good = []
    it = iter(squirrel.open(folder))
    while len(good) < N:
        try:
            good.append(next(it)["id"])
        except squirrel.CorruptError:
            break
    begin = len(good)  # what came before the damage
    return folder, begin


def ids(stream):
    return [s["id"] for s in stream]


def lost(folder, begin):
    """The block's samples: those that skipping leaves out; they are one piece that begins at `begin`."""
    got = ids(squirrel.open(folder).on_error("skip"))
    gone = sorted(set(range(N)) - set(got))
    assert got == [i for i in range(N) if i not in gone]
    assert gone == list(range(begin, begin + len(gone))) and 300 in gone and len(gone) < 200
    return gone


def test_skip(damaged):
    folder, begin = damaged
    gone = lost(folder, begin)
    with squirrel.open(folder).on_error("skip").iterator() as items:
        assert len(list(items)) == N - len(gone)
        (bad,) = items.quarantine()
    assert bad["samples"] == len(gone) and bad["sample"] is None and bad["block"] > 0
    assert bad["file"].endswith(".sqrl") and "checksum" in bad["error"]
    batches = squirrel.open(folder).on_error("skip").batch(64).collect()
    assert np.concatenate([b["id"] for b in batches]).tolist() == [i for i in range(N) if i not in gone]


@pytest.mark.parametrize("window", [0, "30 KiB", None])
def test_shuffled(damaged, window):
    """The order of what is good is that of the undamaged data: taken from where the bad ones are replaced."""
    folder, begin = damaged
    gone = lost(folder, begin)
    stream = squirrel.open(folder).shuffle_all(5, window)
    got = ids(stream.on_error("skip"))
    assert sorted(got) == [i for i in range(N) if i not in gone]
    replaced = ids(stream.on_error("substitute"))
    assert len(replaced) == N
    counts = collections.Counter(replaced)
    assert set(counts) == set(got) and sum(n - 1 for n in counts.values()) == len(gone)
    assert list(dict.fromkeys(replaced)) == got
    batched = stream.on_error("substitute").batch(50).collect()
    assert np.concatenate([b["id"] for b in batched]).tolist() == replaced


def test_ranks_have_equal_steps(damaged):
    folder, _ = damaged
    stream = squirrel.open(folder).shuffle_all(5)
    parts = [ids(stream.on_error("substitute").distribute(r, 4, tail="pad")) for r in range(4)]
    assert [len(p) for p in parts] == [N // 4] * 4
    skipped = [ids(stream.on_error("skip").distribute(r, 4, tail="pad")) for r in range(4)]
    whole = sum(skipped, [])
    assert len(whole) == len(set(whole)) == len(lost(folder, damaged[1])) * -1 + N


def test_a_bad_block_at_the_front_is_replaced_by_what_follows(tmp_path):
    samples = [{"id": i, "x": bytes([i % 251]) * 300} for i in range(200)]
    squirrel.pack(samples, tmp_path / "d", block_bytes=6000)
    (path,) = (tmp_path / "d").glob("*.sqrl")
    raw = bytearray(path.read_bytes())
    raw[40] ^= 0xFF
    path.write_bytes(raw)
    good = ids(squirrel.open(tmp_path / "d").on_error("skip"))
    assert 0 not in good and good[-1] == 199
    replaced = ids(squirrel.open(tmp_path / "d").on_error("substitute"))
    assert replaced == [good[0]] * (200 - len(good)) + good


def test_rows(tmp_path):
    """Values that fit no filter or column are failures one by one."""
    lines = [{"id": i, "v": f"text {i}" if i in (5, 6, 40) else i} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stream = squirrel.open(tmp_path / "a.jsonl")
    with pytest.raises(squirrel.SampleTypeError):
        list(stream.filter("v < 100"))
    good = [i for i in range(60) if i not in (5, 6, 40)]
    assert ids(stream.on_error("skip").filter("v < 100")) == good
    with stream.on_error("skip").batch(16, fields={"v": "int64"}).iterator() as batches:
        assert np.concatenate([b["id"] for b in batches]).tolist() == good
        bad = batches.quarantine()
    assert [b["sample"] for b in bad] == [5, 6, 40] and {b["samples"] for b in bad} == {1}
    assert all('field "v"' in b["where"] for b in bad)
    replaced = ids(stream.on_error("substitute").filter("v < 100"))
    assert replaced == [4 if i in (5, 6) else 39 if i == 40 else i for i in range(60)]


def test_budgets(tmp_path):
    lines = [{"id": i, "v": "text" if i % 3 == 1 or 40 <= i < 45 else i} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stream = squirrel.open(tmp_path / "a.jsonl")

    def run(**budget):
        got = []
        with pytest.raises(squirrel.SampleTypeError) as caught:
            for sample in stream.on_error(OnError("skip", **budget)).filter("v < 100"):
                got.append(sample["id"])
        return got, str(caught.value)

    got, said = run(consecutive=3)
    assert got == [i for i in range(40) if i % 3 != 1] and "3 bad samples or blocks in a row" in said
    got, said = run(total=4)
    assert got == [0, 2, 3, 5, 6, 8, 9] and "4 bad samples or blocks in all" in said


def test_the_rest_of_a_file(tmp_path):
    """Damage in what is read from the front only: all behind it is left out, the next file is read."""
    (tmp_path / "d").mkdir()
    for name, begin in (("a", 0), ("b", 100)):
        lines = [json.dumps({"id": begin + i}) for i in range(100)]
        if name == "a":
            lines[50] = '{"id": '
        (tmp_path / "d" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    with squirrel.open(tmp_path / "d").on_error("skip").iterator() as items:
        got = [s["id"] for s in items]
        (bad,) = items.quarantine()
    assert got == list(range(50)) + list(range(100, 200))
    assert bad["samples"] is None and bad["file"].endswith("a.jsonl")


def test_states_go_on(damaged):
    """A run that failed goes on without the bad ones."""
    folder, begin = damaged
    failing = squirrel.open(folder).iterator()
    with pytest.raises(squirrel.CorruptError):
        got = []
        for sample in failing:
            got.append(sample["id"])
            state = failing.state_dict()
    items = squirrel.open(folder).on_error("skip").iterator()
    items.load_state_dict(state)
    rest = [s["id"] for s in items]
    assert got + rest == ids(squirrel.open(folder).on_error("skip"))


@pytest.fixture(params=["cut", "gone", "noise"])
def unreadable(tmp_path, request):
    """Ten shards of 100 samples; the fifth, samples 400 to 499, is damaged once the data set is open."""
    folder = tmp_path / "shards"
    squirrel.pack(({"id": i, "x": bytes(50)} for i in range(N)), folder, samples_per_shard=100, block_bytes=600)
    stream = squirrel.open(folder)
    path = sorted(folder.glob("*.sqrl"))[4]
    size = path.stat().st_size
    if request.param == "gone":
        path.unlink()
    else:
        path.write_bytes(b"x" * size if request.param == "noise" else path.read_bytes()[: size // 2])
    return stream


BAD = range(400, 500)


def plans(stream, *windows):
    yield stream
    for window in (0, None, *windows):
        yield stream.shuffle_all(3, window)


def test_a_shard_that_cannot_be_opened(unreadable):
    for stream in plans(unreadable, "2 KiB"):
        with pytest.raises((squirrel.Error, OSError)):
            list(stream)
        assert sorted(ids(stream.on_error("skip"))) == sorted(set(range(N)) - set(BAD))
        with stream.on_error("substitute").iterator() as items:
            replaced = [s["id"] for s in items]
            (bad,) = items.quarantine()
        assert len(replaced) == N and set(replaced) == set(range(N)) - set(BAD)
        assert bad["samples"] == 100 and bad["block"] is bad["sample"] is None and "-000004" in bad["file"]
        batches = list(stream.on_error("substitute").batch(7))
        assert [b for batch in batches for b in batch["id"].tolist()] == replaced
        assert len(ids(stream.on_error("substitute").skip(5).take(450))) == 450


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_keep_equal_steps_without_a_shard(unreadable, ranks):
    for stream in plans(unreadable):
        got = []
        for rank in range(ranks):
            mine = stream.on_error("substitute").distribute(rank, ranks).iterator()
            first = [next(mine)["id"] for _ in range(40)]
            state = json.loads(json.dumps(mine.state_dict()))
            rest = [s["id"] for s in mine]
            again = stream.on_error("substitute").distribute(rank, ranks).iterator(state=state)
            more = [s["id"] for s in again]  # one that replaces may be another one, right behind the state
            assert len(more) == len(rest) and [a == b for a, b in zip(more, rest)].count(False) <= 100
            got.append(first + rest)
        assert {len(part) for part in got} == {-(-N // ranks)}
        assert set(sum(got, [])) == set(range(N)) - set(BAD)


def test_a_shard_is_one_failure(unreadable):
    """However many pieces of it are met: the budget counts shards."""
    policy = OnError("substitute", total=2, consecutive=2)
    assert len(list(unreadable.on_error(policy).shuffle_all(1, "2 KiB"))) == N
    with pytest.raises((squirrel.Error, OSError), match="1 bad samples or blocks in all"):
        list(unreadable.on_error(OnError("skip", total=1)))


def test_a_callable_decides(damaged, unreadable, tmp_path):
    asked = []

    def decide(error, bad):
        asked.append((type(error), bad["block"], bad["samples"]))
        assert isinstance(error, squirrel.Error) and bad["file"].endswith(".sqrl")
        return SKIP if bad["block"] is not None else SUBSTITUTE

    assert len(ids(squirrel.open(damaged[0]).on_error(decide))) == N - len(lost(*damaged))
    (one,) = asked
    assert one[0] is squirrel.CorruptError and one[1] > 0 and one[2] == len(lost(*damaged))
    for stream in plans(unreadable):
        with stream.on_error(decide).iterator() as items:
            assert len(list(items)) == N
            assert len(items.quarantine()) == 1

    def rows(error, bad):
        if bad["sample"] == 40:
            raise LookupError("forty")
        return SUBSTITUTE if bad["sample"] == 5 else SKIP

    lines = [{"id": i, "v": f"text {i}" if i in (5, 6, 40) else i} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stream = squirrel.open(tmp_path / "a.jsonl").on_error(rows).filter("v < 100")
    got = []
    with pytest.raises(squirrel.Error, match="LookupError: forty"):
        for sample in stream:
            got.append(sample["id"])
    assert got == [0, 1, 2, 3, 4, 4, *range(7, 40)]
    wrong = squirrel.open(tmp_path / "a.jsonl").on_error(lambda error, bad: "skip").filter("v < 100")
    with pytest.raises(squirrel.Error, match="returns SKIP or SUBSTITUTE"):
        list(wrong)
    with pytest.raises(squirrel.SampleTypeError, match="2 bad samples or blocks in all"):
        list(squirrel.open(tmp_path / "a.jsonl").on_error(OnError(rows, total=2)).filter("v < 100"))


def test_refusals(damaged):
    stream = squirrel.open(damaged[0])
    with pytest.raises(ValueError, match="value"):
        stream.on_error(OnError("substitute", value=1))
    with pytest.raises(ValueError, match="one of"):
        stream.on_error("ignore")
    with pytest.raises(ValueError, match="before batch"):
        stream.batch(3).on_error("skip")
    with pytest.raises(ValueError, match="length buckets"):
        list(stream.on_error("substitute").batch(3, length_by="x", boundaries=[10]))
    with pytest.raises(squirrel.CorruptError):
        list(stream.on_error("retry"))
    assert "on_error('skip')" in repr(stream.on_error("skip"))


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_shard_that_is_bad_before_opening(tmp_path, how):
    """Opening says so; with check=False it is on_error's."""
    folder = tmp_path / "shards"
    squirrel.pack(({"id": i, "x": bytes(50)} for i in range(N)), folder, samples_per_shard=100, block_bytes=600)
    path = sorted(folder.glob("*.sqrl"))[4]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises((squirrel.NotFoundError, squirrel.CorruptError), match="check=false"):
        squirrel.open(folder)
    stream = squirrel.open(folder, check=False)
    assert len(stream) == N
    with pytest.raises((squirrel.Error, OSError), match="-000004"):
        list(stream)
    for plan in plans(stream, "2 KiB"):
        assert sorted(ids(plan.on_error("skip"))) == sorted(set(range(N)) - set(BAD))
        parts = [ids(plan.on_error("substitute").distribute(rank, 3)) for rank in range(3)]
        assert {len(part) for part in parts} == {-(-N // 3)}
        assert set(sum(parts, [])) == set(range(N)) - set(BAD)
