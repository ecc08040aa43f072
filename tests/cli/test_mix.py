"""cat --mix: several URLs as one stream, as squirrel.mix gives it, with states that each takes from the other."""
from __future__ import annotations

import collections
import itertools
import json

import pytest

from command import Command, write_lines

MIX = ("--mix", "0.8,0.2", "--mix-seed", 7, "--shuffle", 5)


@pytest.fixture
def two(squirrel: Command) -> Command:
    write_lines(squirrel.folder / "a.jsonl", [{"x": i, "from": 0} for i in range(3000)])
    write_lines(squirrel.folder / "b.jsonl", [{"x": i, "from": 1} for i in range(300)])
    squirrel("pack", "a.jsonl", "a", "--samples-per-shard", 700)
    squirrel("pack", "b.jsonl", "b")
    return squirrel


def mixed(command: Command, rank: int | None = None, ranks: int = 1, **more: object):  # noqa: ANN201
    package = pytest.importorskip("squirrel")
    streams = [package.open(command.folder / name).shuffle_all(5) for name in "ab"]
    if rank is not None:
        streams = [stream.distribute(rank, ranks, 0, 1, tail="uneven") for stream in streams]
    return package.mix(streams, [0.8, 0.2], seed=7, **more)


def test_every_prefix_has_the_proportions(two: Command) -> None:
    rows = two.rows("cat", "a", "b", *MIX, "--stop", "all")
    rare = 0
    for n, row in enumerate(rows, 1):
        rare += row["from"]
        assert abs(10 * rare - 2 * n) <= 10
    assert {row["x"] for row in rows if not row["from"]} == set(range(3000))
    quota = two.rows("cat", "a", "b", *MIX, "--quota", 5, "-n", 500)
    assert all(sum(row["from"] for row in quota[i : i + 5]) == 1 for i in range(0, 500, 5))


@pytest.mark.parametrize("stop", ["first", "all"])
def test_goes_on_and_is_that_of_python(two: Command, stop: str) -> None:
    want = list(mixed(two, stop=stop))
    words = ("cat", "a", "b", *MIX, "--stop", stop)
    assert two.rows(*words) == want
    got: list = []
    for n in (1, 700, 5, 0, 900, 10_000):
        got += two.rows(*words, "--state", "s", "-n", n)
    assert got == want and two.rows(*words, "--state", "s") == []


def test_states_go_both_ways(two: Command) -> None:
    want = list(mixed(two, stop="all"))
    words = ("cat", "a", "b", *MIX, "--stop", "all", "--state", "s")
    first = two.rows(*words, "-n", 1234)
    state = json.loads((two.folder / "s").read_text())
    assert first + list(mixed(two, stop="all").iterator(state=state)) == want
    iterator = mixed(two, stop="all").iterator()
    first = list(itertools.islice(iterator, 2000))
    (two.folder / "s").write_text(json.dumps(iterator.state_dict()))
    assert first + two.rows(*words) == want


@pytest.mark.parametrize("counts", [(400, 400), (400, 900), (1200, 1900), (3, 1800)])
def test_other_numbers_of_ranks(two: Command, counts: tuple[int, int]) -> None:
    """Also where the ranks stand in different passes of the small one."""
    words = ("cat", "a", "b", *MIX, "--stop", "all")
    before = [two.rows(*words, "--rank", r, "--world-size", 2, "--state", f"s{r}", "-n", counts[r]) for r in (0, 1)]
    after = [two.rows(*words, "--rank", r, "--world-size", 3, "--from", "s0,s1") for r in range(3)]
    seen = collections.Counter((s["from"], s["x"]) for part in before + after for s in part)
    assert [seen[0, i] for i in range(3000)] == [1] * 3000
    times = {seen[1, i] for i in range(300)}
    assert max(times) - min(times) <= 1  # passes end everywhere before the next one does
    states = [json.loads((two.folder / f"s{r}").read_text()) for r in (0, 1)]
    assert after == [list(mixed(two, r, 3, stop="all").iterator(state=states)) for r in range(3)]


def test_words_that_are_no_mixture(two: Command) -> None:
    for weights in ("1", "1,2,3", "a,b", "1,,", "-1,1", "0,0"):
        assert two.error("cat", "a", "b", "--mix", weights, code=2)
    assert "--skip" in two.error("cat", "a", "b", "--mix", "1,1", "--skip", 3, code=2)
    assert "--stop" in two.error("cat", "a", "b", "--mix", "1,1", "--stop", "never", code=2)
    two("cat", "a", "b", *MIX, "--state", "s", "-n", 3)
    message = two.error("cat", "a", "b", "--mix", "0.8,0.2", "--mix-seed", 8, "--shuffle", 5, "--state", "s")
    assert "other seeds" in message


def test_a_state_that_cannot_be_written_is_told_first(two: Command) -> None:
    (two.folder / "file").write_text("")
    for words in (("cat", "a"), ("cat", "a", "b", "--mix", "1,1")):
        done = two(*words, "--state", "file/s", code=1)
        assert not done.stdout and "the state can't be written" in done.stderr
