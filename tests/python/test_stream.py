"""Plans: verbs, order, text, pickling, and exceptions that say where."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import squirrel
from squirrel.iterstream import Composable


def labels(stream: Composable) -> list[int]:
    return [sample["label"] for sample in stream]


def is_even(sample: dict) -> bool:
    return sample["label"] % 2 == 0


def add(sample: dict, n: int = 1) -> dict:
    return {**sample, "label": sample["label"] + n}


def twice(sample: dict) -> list[dict]:
    return [sample, sample]


def fail_at(sample: dict, label: int) -> dict:
    if sample["label"] == label:
        raise KeyError("no such key")
    return sample


def test_every_stream_is_a_composable(images: Path) -> None:
    stream = squirrel.open(images)
    assert isinstance(stream, squirrel.Stream) and isinstance(stream, Composable)
    assert isinstance(stream.map(add), Composable)


def test_filter_by_expression_and_by_callable_agree(images: Path) -> None:
    stream = squirrel.open(images)
    wanted = [n for n in range(2000) if n % 2 == 0]
    assert labels(stream.filter(is_even)) == wanted
    assert labels(stream.filter("label >= 10 and label < 13")) == [10, 11, 12]
    assert labels(stream.filter('text == "sample 7"')) == [7]
    assert labels(stream.filter("label in [3, 5]").filter(is_even)) == []
    with pytest.raises(ValueError):
        stream.filter("label >=")
    with pytest.raises(TypeError, match="in front"):
        stream.map(add).filter("label == 1")


def test_a_filter_on_a_field_that_no_sample_has(images: Path) -> None:
    stream = squirrel.open(images)
    wrong = stream.filter("lable == 3")
    for plan in (wrong, wrong.batch(5), wrong.shuffle_all(1), wrong.select("label")):
        with pytest.raises(squirrel.NotFoundError, match='"lable"; did you mean "label"?'):
            list(plan)
    with pytest.raises(squirrel.NotFoundError, match='"text" is removed by select'):
        list(stream.select("label").filter("text == 'x'"))
    renamed = stream.rename(label="klass")
    with pytest.raises(squirrel.NotFoundError, match='"clazz"; did you mean "klass"?'):
        list(renamed.filter("clazz == 3"))
    with pytest.raises(squirrel.NotFoundError, match='"label" is removed by .* rename'):
        list(renamed.filter("label == 3"))
    # Who tests for null knows that it may be missing.
    assert len(list(stream.filter("lable is null"))) == 2000
    assert len(list(stream.filter("lable == null"))) == 2000
    assert list(stream.filter("lable is not null and lable > 3")) == []


def test_a_field_that_only_some_samples_have(tmp_path: Path, caplog) -> None:
    samples = [{"x": i} for i in range(500)] + [{"x": 500, "rare": {"y": 1}}]
    squirrel.pack(samples, tmp_path / "shards", samples_per_shard=100)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    for name in ("shards", "a.jsonl"):
        stream = squirrel.open(tmp_path / name)
        assert [s["x"] for s in stream.filter("rare.y == 1")] == [500]
        assert [s["x"] for s in stream.filter("rare is not null")] == [500]
        assert [b["x"].tolist() for b in stream.filter("rare.y == 1").select("x").batch(3)] == [[500]]
    assert caplog.text == ""


@pytest.mark.parametrize("batched", [False, True])
def test_a_warning_where_fields_are_not_known(tmp_path: Path, caplog, batched: bool) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"label": i, "m": {"n": i}}) + "\n" for i in range(50)))
    stream = squirrel.open(path)

    def run(plan: squirrel.Stream) -> int:
        caplog.clear()
        return len(list(plan.batch(5) if batched else plan))

    assert run(stream.filter("lable == 3")) == 0
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.name == "squirrel"
    assert '"lable"; did you mean "label"?' in record.getMessage()
    assert run(stream.filter("m.k != 3")) == 0 and '"m.k"' in caplog.text
    for fine in ("lable is null", "label == 900", "m.n == 900 or m is null"):
        run(stream.filter(fine))
        assert caplog.text == "", fine
    run(stream.filter("lable == 3").take(0))  # nothing was read
    assert caplog.text == ""


def test_select_drop_rename(images: Path) -> None:
    stream = squirrel.open(images).take(2)
    for chain in (stream, stream.map(dict)):
        assert [list(s) for s in chain.select("label", "text")] == [["label", "text"]] * 2
        assert list(next(iter(chain.select(["text"])))) == ["text"]
        assert list(next(iter(chain.drop("image", "score")))) == ["label", "text"]
        renamed = next(iter(chain.rename({"label": "y"}, image="x")))
        assert list(renamed) == ["x", "y", "text", "score"]
    with pytest.raises(TypeError):
        stream.select(3)  # type: ignore[arg-type]


def test_rename_onto_a_field_that_is_there(tmp_path: Path) -> None:
    squirrel.pack([{"x": 1}, {"x": 2, "im": 3}], tmp_path / "data")
    stream = squirrel.open(tmp_path / "data")
    for chain in (stream.rename(x="im"), stream.rename(x="im").select("im")):
        with pytest.raises(squirrel.SampleTypeError) as caught:
            list(chain)
        text = str(caught.value)
        assert "sample 1" in text and '"x" and "im"' in text and "drop()" in text
        assert list(chain.take(1)) == [{"im": 1}]
    with pytest.raises(TypeError, match='"x" and "im"'):
        list(stream.map(dict).rename(x="im"))
    assert list(stream.drop("im").rename(x="im")) == [{"im": 1}, {"im": 2}]
    assert list(stream.filter("x == 1").rename(x="im")) == [{"im": 1}]
    assert list(stream.rename(x="im", im="x").skip(1)) == [{"im": 2, "x": 3}]


def test_take_skip(images: Path) -> None:
    stream = squirrel.open(images)
    assert labels(stream.skip(5).take(3)) == [5, 6, 7]
    assert labels(stream.take(0)) == [] and labels(stream.take(None).skip(1998)) == [1998, 1999]
    assert labels(stream.map(add).skip(5).take(3)) == [6, 7, 8]
    assert [len(b["label"]) for b in stream.batch(100).skip(1).take(2)] == [100, 100]
    for chain in (stream, stream.map(add)):
        with pytest.raises(ValueError):
            chain.take(-1)
        with pytest.raises((TypeError, AttributeError)):
            chain.skip("3")  # type: ignore[arg-type]


def test_shuffle_all(images: Path) -> None:
    stream = squirrel.open(images)
    one, again = labels(stream.shuffle_all(seed=1)), labels(stream.shuffle_all(seed=1))
    two = labels(stream.shuffle_all(seed=2))
    assert one == again != two != list(range(2000))
    assert sorted(one) == sorted(two) == list(range(2000))
    assert labels(stream.shuffle_all(1, window="20 KiB")) != one
    batches = stream.shuffle_all(1).batch(300)
    assert np.concatenate([b["label"] for b in batches]).tolist() == one
    with pytest.raises(ValueError):
        stream.shuffle_all(1, window="3 potatoes")


def test_results_do_not_depend_on_threads(images: Path, script) -> None:
    code = """
        import sys, squirrel
        squirrel.configure(threads=int(sys.argv[2]))
        stream = squirrel.open(sys.argv[1]).filter("label < 1500").shuffle_all(5)
        print([s["label"] for s in stream])
    """
    one, four = (script(code, str(images), n) for n in ("1", "4"))
    assert one.returncode == 0, one.stderr
    assert one.stdout == four.stdout and len(one.stdout) > 5000


def test_one_compressed_file_of_lines(tmp_path: Path, script) -> None:
    """Its pieces are parsed in parallel: nothing is lost, repeated or out of order."""
    lines = [json.dumps({"i": i, "pad": "x" * (i * 37 % 500)}) for i in range(40_000)]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))  # 10 MB; the last has no end
    code = """
    import sys, squirrel
    squirrel.configure(threads=int(sys.argv[2]))
    stream = squirrel.open(sys.argv[1])
    assert [s["i"] for s in stream.select("i")] == list(range(40_000))
    batches = list(stream.filter("i >= 20000").batch(300))
    assert [i for b in batches for i in b["i"].tolist()] == list(range(20_000, 40_000))
    assert batches[0].places.tolist()[:2] == [[0, 20_000], [0, 20_001]]
    print([s["i"] for s in stream.shuffle_all(3, window="2 MiB")] [:2000])
    try:
        for count, sample in enumerate(squirrel.open(sys.argv[1].replace("a.", "bad."))):
            assert sample["i"] == count
    except squirrel.Error as e:
        print(count + 1, e)
    try:
        for count, sample in enumerate(squirrel.open(sys.argv[1].replace("a.", "cut."))):
            assert sample["i"] == count
    except squirrel.Error as e:
        print(count + 1, e)
    for n in (1, 5, 30_000):
        with stream.iterator() as items:  # closed in the middle of it
            for _ in range(n):
                next(items)
    """
    lines[30_000] = lines[30_000][:-1]
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    (tmp_path / "cut.jsonl.gz").write_bytes(path.read_bytes()[:-2000])
    one, two, eight = (script(code, str(path), n) for n in ("1", "2", "8"))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout == eight.stdout
    order, bad, cut = one.stdout.splitlines()
    assert order != str(list(range(2000)))
    assert bad.startswith("30000 ") and "bad.jsonl.gz: block " in bad and "line 30001" in bad
    count = int(cut.split()[0])
    assert 30_000 < count < 40_000 and "cut.jsonl.gz: block " in cut


def test_map_and_flat_map(images: Path) -> None:
    stream = squirrel.open(images).take(3)
    assert labels(stream.map(add)) == [1, 2, 3]
    assert labels(stream.map(add, n=10).map(add)) == [11, 12, 13]
    assert labels(stream.flat_map(twice)) == [0, 0, 1, 1, 2, 2]
    assert labels(stream.map(twice).flatten()) == [0, 0, 1, 1, 2, 2]


def test_loop_keeps_nothing_of_past_passes(images: Path) -> None:
    from squirrel.iterstream.base import Run

    chain = squirrel.open(images).take(2).loop(30)
    run = Run()
    assert [s["label"] for s in chain._start(run)] == [0, 1] * 30
    assert run.closers == [] and len(chain) == 60
    with pytest.raises(KeyError) as caught:
        list(squirrel.open(images).take(3).loop(2).map(fail_at, label=1))
    assert "sample 1 " in caught.value.__notes__[0]


def test_repr_shows_the_plan(images: Path) -> None:
    stream = squirrel.open(images).filter("label > 3").batch(10)
    text = repr(stream)
    assert "label > 3" in text and "batch" in text and str(images) in text
    assert repr(squirrel.open(images).map(add).take(2)).endswith("-> map(add) -> take(2)")


def test_native_verbs_behind_a_callable_are_explained(images: Path) -> None:
    with pytest.raises(AttributeError, match="shuffle\\(size\\)"):
        squirrel.open(images).map(add).shuffle_all(1)
    with pytest.raises(AttributeError, match="nonsense"):
        squirrel.open(images).nonsense


def test_len(images: Path) -> None:
    stream = squirrel.open(images)
    assert len(stream) == 2000 and len(stream.take(5)) == 5 and len(stream.map(add)) == 2000
    assert len(stream.map(add).skip(10).take(3000)) == 1990
    with pytest.raises(TypeError, match="not known"):
        len(stream.filter("label > 3"))
    with pytest.raises(TypeError):
        len(stream.filter(is_even))
    assert stream.filter("label > 3")  # true, without counting


def test_streams_pickle_and_copy(images: Path) -> None:
    stream = squirrel.open(images).filter("label >= 4").select("label").shuffle_all(3).take(40)
    wanted = labels(stream)
    for again in (pickle.loads(pickle.dumps(stream)), copy.deepcopy(stream), copy.copy(stream)):
        assert labels(again) == wanted and repr(again) == repr(stream)
    chain = stream.map(add, n=2).filter(is_even).batched(3, drop_last_if_not_full=False)
    again = pickle.loads(pickle.dumps(chain))
    assert list(again) == list(chain) == list(copy.deepcopy(chain))


def test_exceptions_name_stage_shard_and_sample(images: Path) -> None:
    chain = squirrel.open(images).map(add).filter(is_even).map(fail_at, label=402)
    got = []
    with pytest.raises(KeyError) as caught:
        for sample in chain:
            got.append(sample["label"])
    assert got == list(range(2, 402, 2))
    (note,) = caught.value.__notes__
    assert "map(fail_at)" in note and "sample 101 " in note and ".sqrl" in note
    assert caught.traceback[-1].name == "fail_at"


def test_exceptions_in_batch_stages(images: Path) -> None:
    def fail(batch: squirrel.Batch) -> None:
        raise RuntimeError("bad batch")

    with pytest.raises(RuntimeError) as caught:
        next(iter(squirrel.open(images).batch(10).skip(3).map(fail)))
    assert "sample 30 " in caught.value.__notes__[0]


def test_an_exception_without_attributes_passes(images: Path) -> None:
    class Closed(Exception):
        __slots__ = ()

        def add_note(self, note: str) -> None:
            raise TypeError("no notes")

    def fail(sample: dict) -> None:
        raise Closed

    with pytest.raises(Closed):
        list(squirrel.open(images).map(fail))


def test_iterators_close(images: Path) -> None:
    stream = squirrel.open(images)
    with stream.iterator() as iterator:
        assert next(iterator)["label"] == 0 and iterator.place()[1] == 0
        assert iterator.delivered == 1
    assert list(iterator) == []
    iterator.close()
    with stream.map(add).iterator() as chain:
        assert next(chain)["label"] == 1
    assert list(chain) == []
    with stream.batch(10).iterator() as batches:
        assert len(next(batches)["label"]) == 10
        assert {s["name"] for s in batches.stats()}
    assert list(batches) == []


def test_stats_tell_where_time_went(images: Path) -> None:
    with squirrel.open(images).iterator() as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats()
    assert stats and all(0 <= s["wait_share"] <= 1 for s in stats)
    assert sum(s["wait_share"] for s in stats) == pytest.approx(1, abs=0.01)


def test_a_file_is_a_stream_too(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1, "t": "x\\ty"}\n{"a": 2.5, "t": "\\u00e9"}\n\n{"a": null}\n')
    stream = squirrel.open(path)
    assert stream.driver == "jsonl"
    assert list(stream) == [{"a": 1, "t": "x\ty"}, {"a": 2.5, "t": "é"}, {"a": None}]
    assert list(stream.filter("a is null")) == [{"a": None}]


def test_schema_and_shards(images: Path) -> None:
    stream = squirrel.open(images)
    assert [f["type"] for f in stream.schema] == ["uint8[8,8,3]", "int64", "string", "float64"]
    assert [s["samples"] for s in stream.shards] == [300] * 6 + [200]


def test_partial_callables_have_names(images: Path) -> None:
    chain = squirrel.open(images).map(functools.partial(add, n=3))
    assert "map(add)" in repr(chain)


def test_numbers_of_plain_json_lines(tmp_path: Path) -> None:
    """Blocks of plain lines are loaded in any order, yet their samples have numbers."""
    path = tmp_path / "data.jsonl"
    squirrel.pack(({"n": i, "text": "x" * 500} for i in range(10_000)), path)  # 5 blocks
    stream = squirrel.open(path)
    with stream.iterator() as it:
        for k, _ in enumerate(it):
            assert it.place() == (str(path), k)
    rows = [n for batch in stream.batch(999) for n in batch.places[:, 1].tolist()]
    assert rows == list(range(10_000))
    with pytest.raises(ZeroDivisionError) as caught:
        list(stream.map(lambda sample: 1 // (sample["n"] - 7000)))
    assert "sample 7000 of shard" in caught.value.__notes__[0]
    with stream.shuffle_all(seed=1, window=1).iterator() as it:
        for sample in it:
            assert it.place()[1] in (None, sample["n"])


def test_clash_in_plain_json_lines_names_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [b'{"n": %d, "text": "%s"}\n' % (i, b"x" * 500) for i in range(10_000)]
    lines[6000] = b'{"n": "six thousand", "text": ""}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(squirrel.SampleTypeError, match=r"sample 6000: field \"n\".* sample 0 of"):
        list(squirrel.open(path).batch(100))
    lines[3] = b'{"n": "three", "text": ""}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(squirrel.SampleTypeError, match=r"sample 3: field \"n\""):
        list(squirrel.open(path).batch(100))


def test_wrong_arguments_say_so(images: Path) -> None:
    stream = squirrel.open(images)
    with pytest.raises(ValueError, match="null character"):
        stream.filter("label == 3\0 or true")
    for size in ("-5", "inf", "nan", "5 parsec"):
        with pytest.raises(ValueError, match="is no size"):
            stream.prefetch(size)
    with pytest.raises(TypeError, match="seed must be an int"):
        stream.shuffle_all(seed="one")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"take\('3'\)"):
        stream.take("3")  # type: ignore[arg-type]
