"""Fields in groups of shards, and fields that are added later."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squirrel

COUNT = 1200


def sample(i: int) -> dict[str, Any]:
    return {
        "image": np.full((12, 10), i % 251, np.uint8),
        "label": i % 7,
        "meta": {"patient": i // 20, "site": f"s{i % 3}"},
        "id": f"k{i}",
        "tags": [f"t{i % 4}"] * (i % 3),
    }


SAMPLES = [sample(i) for i in range(COUNT)]
GROUPS = {"images": ["image"], "labels": ["label", "meta"]}
HOW: dict[str, Any] = {"samples_per_shard": 500, "block_bytes": "8 KiB", "key": "id", "index": ["label"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same samples in groups, and whole."""
    folder = tmp_path_factory.mktemp("groups")
    squirrel.pack(SAMPLES, folder / "groups", groups=GROUPS, **HOW)
    squirrel.pack(SAMPLES, folder / "whole", **HOW)
    return folder / "groups", folder / "whole"


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    squirrel.pack(SAMPLES, tmp_path / "d", groups=GROUPS, **HOW)
    return tmp_path / "d"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


def check(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted)):
        assert same(a, b), (i, a, b)


def by_id(samples: list[Any]) -> list[Any]:
    return sorted(samples, key=lambda s: int(s["id"][1:]))


def test_samples_are_those_of_the_whole_data(pair) -> None:
    groups, whole = (squirrel.open(d) for d in pair)
    check(list(groups), SAMPLES)
    check(by_id(list(groups.shuffle_all(seed=5))), SAMPLES)
    check(by_id(list(groups.shuffle_all(seed=5, window=None))), SAMPLES)
    for fields in (["label"], ["image"], ["meta.site", "tags"], ["id", "image", "label"]):
        check(list(groups.select(*fields)), list(whole.select(*fields)))
    check(list(groups.drop("image", "meta.patient")), list(whole.drop("image", "meta.patient")))
    check(list(groups.rename(label="y").select("y")), list(whole.rename(label="y").select("y")))
    query = "label == 3 and meta.site == 's1'"
    check(list(groups.filter(query).select("id")), list(whole.filter(query).select("id")))
    check(list(groups.where("label == 3")), [s for s in SAMPLES if s["label"] == 3])
    check(list(groups.where("label == 3").select("id")), [{"id": s["id"]} for s in SAMPLES if s["label"] == 3])
    check(groups[300:320], SAMPLES[300:320])
    picks = np.random.default_rng(1).integers(0, COUNT, 400)
    check(groups.get_many(picks), [SAMPLES[i] for i in picks])
    check([groups["k777"]], [SAMPLES[777]])
    check(list(pickle.loads(pickle.dumps(groups.select("label")))), [{"label": s["label"]} for s in SAMPLES])
    assert {f["name"]: f["type"] for f in groups.schema} == {f["name"]: f["type"] for f in whole.schema}
    with pytest.raises(squirrel.NotFoundError, match='did you mean "label"'):
        list(groups.filter("lable == 3").select("id"))


def test_batches(pair) -> None:
    groups, whole = (squirrel.open(d) for d in pair)
    for plan in (lambda s: s, lambda s: s.select("label", "image"), lambda s: s.filter("label < 3").drop("image")):
        for a, b in zip(plan(groups).drop("tags").batch(64), plan(whole).drop("tags").batch(64), strict=True):
            assert set(a) == set(b)
            for name in a:
                assert same(np.asarray(a[name]), np.asarray(b[name])) or a[name].tolist() == b[name].tolist()


def test_what_there_is(pair) -> None:
    groups = squirrel.open(pair[0]).groups
    assert [(g["name"], g["base"], g["shards"], g["samples"]) for g in groups] == [
        ("images", True, 3, COUNT),
        ("labels", False, 3, COUNT),
        ("rest", False, 3, COUNT),
    ]
    assert groups[1]["fields"] == ["label", "meta"] and set(groups[2]["fields"]) == {"id", "tags"}
    assert squirrel.open(pair[1]).groups == []


def test_only_the_files_of_a_group_are_needed(pair, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(pair[0], tmp_path / "d")
    stream = squirrel.open(tmp_path / "d").select("label")
    counted = squirrel.open(tmp_path / "d").where("label == 2").select("label")
    whole = squirrel.open(tmp_path / "d")
    for file in (tmp_path / "d").glob("*.sqrl"):
        if ".labels." not in file.name:
            file.unlink()
    check(list(stream), [{"label": s["label"]} for s in SAMPLES])
    check(list(counted), [{"label": 2} for s in SAMPLES if s["label"] == 2])
    with pytest.raises(squirrel.NotFoundError):
        list(whole)


def test_options_that_can_not_be(tmp_path: Path) -> None:
    def pack(groups: Any, samples: Any = SAMPLES[:3], to: str = "d") -> None:
        squirrel.pack(samples, tmp_path / to, groups=groups)

    for groups, words in (
        ({"a": ["label"], "b": ["label"]}, "in two groups"),
        ({"rest": ["label"]}, "rest"),
        ({"no way": ["label"]}, "letters, digits"),
        ({"a": ["meta.site"]}, 'a part of "meta"'),
        ({"a": []}, "no fields"),
    ):
        with pytest.raises(squirrel.ArgumentError, match=words):
            pack(groups)
    with pytest.raises(squirrel.ArgumentError, match="directory of native shards"):
        pack({"a": ["label"]}, to="d.jsonl")
    with pytest.raises(squirrel.SampleTypeError, match="no map of named fields"):
        pack({"a": ["label"]}, samples=[1, 2])
    assert not (tmp_path / "d").exists()


def test_parallel_packs_and_appended_shards(tmp_path: Path) -> None:
    import pack_jobs

    squirrel.pack(
        range(40), tmp_path / "d", map=pack_jobs.make, workers=2, groups={"n": ["n"]}, progress=False
    )
    squirrel.pack(range(40), tmp_path / "e", map=pack_jobs.make, workers=2, progress=False)
    check(list(squirrel.open(tmp_path / "d")), list(squirrel.open(tmp_path / "e")))
    assert squirrel.open(tmp_path / "d").groups
    before = len(squirrel.open(tmp_path / "d"))
    squirrel.pack([{"n": -1, "part": 1}], tmp_path / "d", append=True)
    stream = squirrel.open(tmp_path / "d").select("n")
    assert len(stream) == before + 1 and list(stream)[-1] == {"n": -1}
    squirrel.pack(SAMPLES[:5], tmp_path / "d", overwrite=True)
    check(list(squirrel.open(tmp_path / "d")), SAMPLES[:5])
    assert len(list((tmp_path / "d").glob("*.sqrl"))) == 1  # those of groups went, too


# --- fields that are added ---


def scores(n: int = COUNT) -> list[dict[str, Any]]:
    return [{"score": i / 4, "emb": np.full(3, i, np.float32)} for i in range(n)]


def test_added_fields(grouped: Path) -> None:
    before = {f.name: f.read_bytes() for f in grouped.rglob("*") if f.is_file() and f.name != "list"}
    report = squirrel.add_fields(grouped, scores(), group="emb")
    assert (report.samples, report.shards) == (COUNT, 3)
    stream = squirrel.open(grouped)
    check(list(stream), [{**s, **t} for s, t in zip(SAMPLES, scores())])
    check(list(stream.select("score").filter("score < 20")), [{"score": i / 4} for i in range(80)])
    for name, data in before.items():  # nothing was written anew
        assert next(grouped.rglob(name)).read_bytes() == data
    squirrel.add_fields(grouped, map=lambda s: {"double": 2 * s["label"]}, read=["label"], group="more")
    check(list(squirrel.open(grouped).select("double")), [{"double": 2 * s["label"]} for s in SAMPLES])
    squirrel.add_fields(
        grouped, ({"who": s["id"], "back": int(s["id"][1:])} for s in SAMPLES[::-1]), group="back", by="who"
    )
    check(list(squirrel.open(grouped).select("back")), [{"back": i} for i in range(COUNT)])
    assert [g["added"] for g in squirrel.open(grouped).groups] == [False] * 3 + [True] * 3


def test_added_to_whole_samples_with_columns(tmp_path: Path) -> None:
    squirrel.pack(SAMPLES, tmp_path / "d", **HOW)
    squirrel.add_fields(tmp_path / "d", scores(), group="emb", index=["score"], fields=["score", "emb"])
    stream = squirrel.open(tmp_path / "d")
    check(list(stream), [{**s, **t} for s, t in zip(SAMPLES, scores())])
    assert [s["id"] for s in stream.where("score < 1")] == ["k0", "k1", "k2", "k3"]
    squirrel.index(tmp_path / "d")  # one commit in place of two
    assert len(list((tmp_path / "d" / "_sqrl").glob("*.idx"))) == 1
    check(list(squirrel.open(tmp_path / "d")), [{**s, **t} for s, t in zip(SAMPLES, scores())])


def test_what_can_not_be_added(grouped: Path) -> None:
    def refuse(error: type, words: str, samples: Any, **kw: Any) -> None:
        with pytest.raises(error, match=words):
            squirrel.add_fields(grouped, samples, **{"group": "emb", **kw})
        assert not squirrel.open(grouped).groups[3:]

    files = sorted(grouped.rglob("*"))
    refuse(squirrel.ArgumentError, r"1190 samples.*sample 190 of shard.*000002.*position 1190", scores(1190))
    refuse(squirrel.ArgumentError, "more samples were given than the 1200", scores(1201))
    refuse(squirrel.ArgumentError, '"emb", which is none of the group', scores(), fields=["score"])
    refuse(squirrel.ExistsError, 'field "label" already', [{"label": 1}] * COUNT)
    refuse(squirrel.ExistsError, 'group "labels" already', scores(), group="labels")
    refuse(squirrel.SampleTypeError, "no map", [1] * COUNT)
    by = [{"id": s["id"], "x": 1} for s in SAMPLES]
    refuse(squirrel.ArgumentError, "first that is missing is sample 0", by[1:], by="id")
    refuse(squirrel.ArgumentError, "keys must be given once", [*by[:5], by[3]], by="id")
    refuse(squirrel.NotFoundError, "no sample with the key", [{"id": "nobody", "x": 1}], by="id")
    refuse(squirrel.SampleTypeError, 'has no key "id"', [{"x": 1}], by="id")
    assert sorted(grouped.rglob("*")) == files
    with pytest.raises(squirrel.NotFoundError):
        squirrel.add_fields(grouped.parent / "nowhere", scores())


def test_shards_that_lack_a_group(grouped: Path) -> None:
    squirrel.add_fields(grouped, scores(), group="emb")
    squirrel.pack([sample(i) for i in range(COUNT, COUNT + 30)], grouped, append=True, **HOW)
    stream = squirrel.open(grouped)
    assert list(stream.select("score"))[-31:] == [{"score": (COUNT - 1) / 4}] + [{}] * 30
    column = stream.select("score", "label").batch(COUNT + 30).collect()[0]
    assert column["label"].tolist() == [i % 7 for i in range(COUNT + 30)]
    assert next(f for f in stream.schema if f["name"] == "score")["nullable"]
    with pytest.raises(squirrel.ExistsError, match="3 of 4 shards have the group"):
        squirrel.add_fields(grouped, scores(), group="emb")
    with pytest.raises(squirrel.ArgumentError, match="more samples were given than the 30"):
        squirrel.add_fields(grouped, scores(), group="emb", missing=True)
    squirrel.add_fields(
        grouped, map=lambda s: {"score": -1.0, "emb": np.zeros(3, np.float32)}, group="emb", missing=True
    )
    assert [s["score"] for s in squirrel.open(grouped).select("score")][-31:] == [(COUNT - 1) / 4] + [-1.0] * 30


@pytest.mark.parametrize("shape", ["plain", "shuffled", "dealt", "batches"])
def test_states_stay_good(grouped: Path, shape: str) -> None:
    def build() -> Any:
        stream = squirrel.open(grouped)
        if shape == "shuffled":
            stream = stream.shuffle_all(seed=3, window="64 KiB")
        if shape == "dealt":
            stream = stream.shuffle_all(seed=3, window="64 KiB").distribute(0, 2)
        return stream.select("id").batch(50) if shape == "batches" else stream

    def ids(items: list[Any]) -> list[str]:
        return [i for item in items for i in (item["id"].tolist() if shape == "batches" else [item["id"]])]

    whole = ids(list(build()))
    iterator = iter(build())
    begun = ids([next(iterator) for _ in range(7)])
    state = json.loads(json.dumps(iterator.state_dict()))
    # fields larger than all that was there
    squirrel.add_fields(grouped, ({"big": np.full(700, i, np.int16)} for i in range(COUNT)), group="big")
    again = iter(build())
    again.load_state_dict(state)
    assert begun + ids(list(again)) == whole


def test_two_at_once(grouped: Path) -> None:
    barrier, outcomes = threading.Barrier(2), []

    def slow() -> Any:
        for i, s in enumerate(scores()):
            if i == 5:
                barrier.wait(60)  # both have begun
            yield s

    def run() -> None:
        try:
            outcomes.append(squirrel.add_fields(grouped, slow(), group="emb").samples)
        except squirrel.ExistsError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([o for o in outcomes if o == COUNT]) == 1, outcomes
    assert len([o for o in outcomes if "meanwhile" in str(o) or "same moment" in str(o)]) == 1, outcomes
    check(list(squirrel.open(grouped)), [{**s, **t} for s, t in zip(SAMPLES, scores())])
    assert len(list(grouped.glob("*.emb.sqrl"))) == 3


def test_appended_while_fields_are_added(grouped: Path) -> None:
    def slow() -> Any:
        for i, s in enumerate(scores()):
            if i == 700:
                squirrel.pack([sample(i) for i in range(COUNT, COUNT + 5)], grouped, append=True, **HOW)
            yield s

    squirrel.add_fields(grouped, slow(), group="emb")
    got = list(squirrel.open(grouped))
    check(got[:COUNT], [{**s, **t} for s, t in zip(SAMPLES, scores())])
    check(got[COUNT:], [sample(i) for i in range(COUNT, COUNT + 5)])


def test_replaced_while_fields_are_added(grouped: Path) -> None:
    def slow() -> Any:
        for i, s in enumerate(scores()):
            if i == 1100:
                squirrel.pack(SAMPLES[:10], grouped, overwrite=True, **HOW)
            yield s

    with pytest.raises(squirrel.Error):
        squirrel.add_fields(grouped, slow(), group="emb")
    check(list(squirrel.open(grouped)), SAMPLES[:10])


KILLED = """
import sys, squirrel
def rows():
    for i in range(1200):
        if i == int(sys.argv[2]):
            print("there", flush=True)
            sys.stdin.read()
        yield {"score": i / 4}
squirrel.add_fields(sys.argv[1], rows(), group="emb")
"""


@pytest.mark.parametrize("at", [3, 700])
def test_killed_in_the_middle(grouped: Path, at: int, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = started(
        [sys.executable, "-c", KILLED, str(grouped), str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"there\n"
    if at > 500:  # the first shard is on its way: wait until it has its name
        end = time.monotonic() + 60
        while not list(grouped.glob("*.emb.sqrl")) and time.monotonic() < end:
            time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stream = squirrel.open(grouped)
    assert len(stream.groups) == 3
    check(list(stream), SAMPLES)
    squirrel.add_fields(grouped, ({"score": i / 4} for i in range(COUNT)), group="emb")
    hidden = [f.name for f in grouped.iterdir() if f.name.startswith(".")]
    assert not hidden  # the dead writer's temporaries were swept
    check(list(squirrel.open(grouped).select("score")), [{"score": i / 4} for i in range(COUNT)])


def test_random_groups_and_plans(tmp_path: Path) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies
    names = ["a", "b", "c.d", "m", "e"]
    numbers = iter(range(10**6))

    def make(rng: random.Random, i: int) -> dict[str, Any]:
        out: dict[str, Any] = {"i": i}
        for name in names:
            if rng.random() < 0.8:
                kinds = [rng.randrange(99), "x" * rng.randrange(40), None, rng.random()]
                size = rng.choice([1, 1, 300])
                out[name] = (
                    {"p": rng.randrange(5), "q": "y" * size} if name == "m"
                    else np.full(rng.randrange(1, 9) * size, i % 99, np.uint8) if name == "e"
                    else kinds[names.index(name)]
                )  # fmt: skip
        return out

    @hypothesis.settings(max_examples=60, deadline=None)
    @hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(0, 120))
    def run(seed: int, count: int) -> None:
        rng = random.Random(seed)
        samples = [make(rng, i) for i in range(count)]
        where: dict[str, list[str]] = {}
        for name in [*names, "i"]:
            number = rng.randrange(4)
            if number:
                where.setdefault(f"g{number}", []).append(name.replace(".", "\\."))
        declared = {f.replace("\\.", ".") for fields in where.values() for f in fields}
        late = [n for n in names if n not in declared][: rng.randrange(2)]
        folder = tmp_path / f"d{next(numbers)}"
        how: dict[str, Any] = {
            "samples_per_shard": rng.choice([None, 1, 7, 50]),
            "block_bytes": rng.choice([1, 200, 5000]),
        }
        early = [{k: v for k, v in s.items() if k not in late} for s in samples]
        squirrel.pack(early, folder, groups=where or None, **how)
        if late and count and any(late[0] in s for s in samples):
            added = [{k: s[k] for k in late if k in s} for s in samples]
            squirrel.add_fields(folder, added, group="late", block_bytes=rng.choice([1, 300, 5000]))
        elif late:
            samples = early
        stream = squirrel.open(folder)
        plan, rows = stream, samples
        known = {name for sample in samples for name in sample}  # a field that is nowhere is an error
        for _ in range(rng.randrange(4)):
            kind = rng.choice(["select", "drop", "filter", "skip", "take"])
            picks = [n.replace(".", "\\.") for n in rng.sample([*names, "i"], rng.randrange(1, 4))]
            plain = [n.replace("\\.", ".") for n in picks]
            if kind == "select":
                if not known.issuperset(plain):
                    continue
                plan, known = plan.select(*picks), set(plain)
                rows = [{k: r[k] for k in plain if k in r} for r in rows]
            elif kind == "drop":
                plan, known = plan.drop(*picks), known - set(plain)
                rows = [{k: v for k, v in r.items() if k not in plain} for r in rows]
            elif kind == "filter":
                if not all("i" in r for r in rows) or not rows:
                    continue
                plan, rows = plan.filter("i >= 10"), [r for r in rows if r["i"] >= 10]
            else:
                n = rng.randrange(30)
                plan = getattr(plan, kind)(n)
                rows = rows[n:] if kind == "skip" else rows[:n]
        check(list(plan), rows)
        check(sorted(stream.select("i").shuffle_all(seed), key=lambda s: s["i"]), [{"i": i} for i in range(count)])
        if count:
            index = rng.randrange(count)
            check([stream[index]], [samples[index]])

    run()


def test_forked_readers(grouped: Path) -> None:
    stream = squirrel.open(grouped)
    assert next(iter(stream))["id"] == "k0"
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = [s["id"] for s in squirrel.open(grouped)] == [s["id"] for s in SAMPLES]
            ok = ok and same(stream[601], SAMPLES[601]) and len(list(stream.select("label"))) == COUNT
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
