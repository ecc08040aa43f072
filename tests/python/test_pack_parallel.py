"""squirrel.pack with worker processes: the same data set, no input lost or repeated."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import squirrel
from squirrel.iterstream.parallel import usable_cores

import pack_jobs


def content(folder: Path) -> list[tuple[int, int]]:
    return [(s["n"], s["part"]) for s in squirrel.open(folder)]


def leftovers(folder: Path) -> list[str]:
    """Files that belong to nothing."""
    names = {p.name for p in folder.glob("*.sqrl")}
    shards = {os.path.basename(s["path"]) for s in squirrel.open(folder).shards}
    return sorted(names - shards) + [p.name for p in folder.glob("_sqrl/*") if "journal" in p.name]


def test_the_data_set_does_not_depend_on_the_workers(tmp_path: Path) -> None:
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        report = squirrel.pack(
            range(100), folder, map=pack_jobs.make, workers=workers, inputs_per_task=7
        )
        assert content(folder) == pack_jobs.wanted(100)
        assert report.samples == len(pack_jobs.wanted(100)) and report.failed == []
        assert leftovers(folder) == []


def test_inputs_may_be_any_iterable(tmp_path: Path) -> None:
    squirrel.pack((n for n in range(20)), tmp_path / "a", map=pack_jobs.make, workers=2)
    assert content(tmp_path / "a") == pack_jobs.wanted(20)
    report = squirrel.pack([], tmp_path / "b", map=pack_jobs.make, workers=2)
    assert report.samples == 0


def test_a_failing_input_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seven") as caught:
        squirrel.pack(range(20), tmp_path / "d", map=pack_jobs.fail_at_seven, workers=2, inputs_per_task=3)
    notes = "\n".join(caught.value.__notes__)
    assert "input 7" in notes and "fail_at_seven" in notes
    assert not list((tmp_path / "d").glob("**/*.sqrl"))
    assert not list((tmp_path / "d").glob("**/*.journal"))


def test_failing_inputs_are_skipped_by_choice(tmp_path: Path) -> None:
    report = squirrel.pack(
        range(20), tmp_path / "d", map=pack_jobs.fail_at_seven, workers=2, on_error="skip", inputs_per_task=3
    )
    assert report.failed == [(7, "ValueError: seven")]
    assert [s["n"] for s in squirrel.open(tmp_path / "d")] == [n for n in range(20) if n != 7]


def test_an_input_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    report = squirrel.pack(range(6), tmp_path / "d", map=pack_jobs.half_bad, workers=2, on_error="skip")
    assert [s["n"] for s in squirrel.open(tmp_path / "d")] == [0, 0, 1, 1, 2, 2, 4, 4, 5, 5]
    assert [index for index, _ in report.failed] == [3]


def test_a_worker_that_dies_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="signal 9.*inputs 6 to 8"):
        squirrel.pack(range(20), tmp_path / "d", map=pack_jobs.die_at_seven, workers=2, inputs_per_task=3)


def test_a_local_function_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="top of a module"):
        squirrel.pack(range(3), tmp_path / "d", map=lambda n: None, workers=1)


def test_existing_data(tmp_path: Path) -> None:
    squirrel.pack([{"n": -1, "part": 0}], tmp_path / "d")
    with pytest.raises(FileExistsError):
        squirrel.pack(range(3), tmp_path / "d", map=pack_jobs.make, workers=1)
    squirrel.pack(range(3), tmp_path / "d", map=pack_jobs.make, workers=1, append=True)
    assert content(tmp_path / "d") == [(-1, 0), *pack_jobs.wanted(3)]
    squirrel.pack(range(4), tmp_path / "d", map=pack_jobs.make, workers=1, overwrite=True)
    assert content(tmp_path / "d") == pack_jobs.wanted(4)


KILLED = """
import sys
sys.path.insert(0, {tests!r})
import squirrel, pack_jobs
if __name__ == "__main__":
    squirrel.pack(range(200), sys.argv[1], map=pack_jobs.make_slowly, workers=2, resume=True,
                  inputs_per_task=10)
    print("finished")
"""


def tasks_noted(folder: Path) -> int:
    """In the journals; -1 where there is none."""
    noted = 0
    for journal in folder.glob("_sqrl/*.journal"):
        with contextlib.suppress(FileNotFoundError):  # its pack has just ended
            noted += journal.read_text().count('"task"')
    return noted or -1


def gated(first: int, gate: Path) -> dict[str, str]:
    """The environment in which inputs from `first` on wait until the file is there."""
    return {**os.environ, "PACK_GATE": f"{first}:{gate}"}


def wait_until(holds: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def unlocked(journal: Path) -> bool:
    with open(journal, "rb") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


Started = Callable[..., "subprocess.Popen[str]"]  # the fixture `started`


def start_and_kill(started: Started, script: Path, folder: Path, tasks: int, stop: int = 100) -> int:
    """Kills the parent when the journal holds so many tasks; returns how many. Inputs from `stop` on wait,
    so that the pack can't come to its end before."""
    gate = script.with_name(f"gate-{tasks}-{stop}")
    process = started([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True,
                      env=gated(stop, gate))
    wait_until(lambda: tasks_noted(folder) >= tasks or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    gate.touch()
    (journal,) = folder.glob("_sqrl/*.journal")
    wait_until(lambda: unlocked(journal))  # its workers have noticed
    return tasks_noted(folder)


def test_killed_and_started_again_it_continues(tmp_path: Path, started: Started) -> None:
    script = tmp_path / "job.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent)))
    folder = tmp_path / "d"
    first = start_and_kill(started, script, folder, 3)
    assert 3 <= first < 20
    assert not list(folder.glob("_sqrl/*.idx"))  # nothing is committed
    second = start_and_kill(started, script, folder, first + 3, 180)
    assert first < second < 20
    (path,) = folder.glob("_sqrl/*.journal")
    with open(path, "a") as journal:
        journal.write('{"task": 99, "inp')  # torn by the kill
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "finished\n", done.stderr
    assert content(folder) == pack_jobs.wanted(200)
    wait_until(lambda: leftovers(folder) == [])  # workers of the killed parents notice and end


def test_packs_at_the_same_time_leave_each_other_alone(tmp_path: Path, started: Started) -> None:
    """Each begins in the middle of the others; one of them twice, by the same call."""
    folder = tmp_path / "d"
    code = """
    import sys
    sys.path.insert(0, {tests!r})
    import squirrel, pack_jobs
    if __name__ == "__main__":
        first = int(sys.argv[2])
        inputs = range(first, first + (600 if len(sys.argv) > 3 else 200))
        squirrel.pack(inputs, sys.argv[1], map=pack_jobs.make_slowly, workers=1, append=True, inputs_per_task=10,
                      resume=len(sys.argv) > 3)
    """
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(code).format(tests=str(Path(__file__).parent)))
    packs: list[subprocess.Popen[str]] = []
    for number, more in ((0, ()), (200, ()), (400, ("resume",)), (400, ("resume",))):
        words = [sys.executable, str(script), str(folder), str(number), *more]
        wanted = max(tasks_noted(folder), 0) + 2
        packs.append(started(words, stderr=subprocess.PIPE, text=True,
                             env=gated(number + 100, tmp_path / "go")))  # none ends before the others
        wait_until(lambda: tasks_noted(folder) >= wanted or any(p.poll() is not None for p in packs))
    packs[3].wait(timeout=300)
    (tmp_path / "go").touch()
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in packs]
    assert [code for _, code in ended] == [0, 0, 0, 1], ended
    assert "another process runs this pack" in ended[3][0]
    found = content(folder)
    assert sorted(found) == sorted(pack_jobs.wanted(1000))
    assert leftovers(folder) == []


def test_shards_that_vanish_before_the_commit(tmp_path: Path) -> None:
    folder = tmp_path / "d"

    def inputs() -> Iterator[int]:
        for n in range(40):
            if n == 39:
                for shard in list(folder.glob("*.sqrl"))[:1]:
                    shard.unlink()
            yield n

    with pytest.raises(RuntimeError, match="of 1 shards .* 0 are there"):
        squirrel.pack(inputs(), folder, map=pack_jobs.count_up, workers=1, inputs_per_task=2)
    assert list(folder.glob("_sqrl/*")) == []


def test_other_inputs_are_not_mixed_in(tmp_path: Path, started: Started) -> None:
    script = tmp_path / "job.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent)))
    start_and_kill(started, script, tmp_path / "d", 2)
    with pytest.raises(RuntimeError, match="start over"):
        squirrel.pack(range(100), tmp_path / "d", map=pack_jobs.make_slowly, workers=2, resume=True)
    with pytest.raises(RuntimeError, match="not those"):
        squirrel.pack(
            list(range(1, 201)), tmp_path / "d", map=pack_jobs.make_slowly, workers=2, resume=True, inputs_per_task=10
        )
    squirrel.pack(range(10), tmp_path / "d", map=pack_jobs.make, workers=2)
    assert content(tmp_path / "d") == pack_jobs.wanted(10)


def test_a_kill_between_commit_and_end_commits_once(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    squirrel.pack(range(30), folder, map=pack_jobs.make, workers=1, inputs_per_task=10)
    prefixes = sorted({p.name.rsplit("-", 1)[0] for p in folder.glob("*.sqrl")})
    from squirrel._pack_journal import fingerprint

    first = fingerprint(list(range(16)))
    layout = {"options": None, "format": None, "samples_per_shard": 0, "shard_bytes": 0, "block_bytes": 0}
    lines: list[dict[str, object]] = [
        {"squirrel_pack": 1, "run": prefixes[0].split("-")[0], "inputs": 30, "per_task": 10, "map": "make",
         "layout": layout, "first": first}
    ]
    lines += [
        {"task": i, "inputs": 10, "fingerprint": fingerprint(list(range(10 * i, 10 * i + 10))), "prefix": prefix,
         "failed": [], "samples": 1, "shards": 1, "raw_bytes": 1, "file_bytes": 1}
        for i, prefix in enumerate(prefixes)
    ]
    lines.append({"commit": True})
    journal = folder / "_sqrl" / f"pack-{lines[0]['run']}.journal"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    squirrel.pack(range(30), folder, map=pack_jobs.make, workers=1, resume=True)
    assert content(folder) == pack_jobs.wanted(30)
    assert leftovers(folder) == []


def test_a_finished_pack_is_not_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "d"

    def again(inputs: object, **options: object) -> squirrel.PackReport:
        return squirrel.pack(
            inputs, folder, map=pack_jobs.fail_at_seven, workers=1, resume=True, on_error="skip", inputs_per_task=4,
            **options,
        )

    first = again(range(10))
    assert first.samples == 9 and first.failed == [(7, "ValueError: seven")]
    files = sorted((p.name, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file())
    assert again(range(10)) == first and again(list(range(10)), append=True) == first
    assert files == sorted((p.name, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file())
    for other in (range(1, 11), range(9), range(11)):
        with pytest.raises(FileExistsError):
            again(other)
    assert again(range(20, 22), append=True).samples == 2
    assert again(range(10)) == first and again(range(20, 22)).samples == 2
    squirrel.pack([{"n": 1}], folder, overwrite=True)  # what the records tell of is gone
    with pytest.raises(FileExistsError):
        again(range(10))
    assert [s["n"] for s in squirrel.open(folder)] == [1] and leftovers(folder) == []


def test_a_finished_pack_of_a_generator_or_of_objects(tmp_path: Path) -> None:
    def pack(inputs: object, **options: object) -> squirrel.PackReport:
        return squirrel.pack(inputs, tmp_path / "d", map=pack_jobs.count_of, workers=1, resume=True, **options)

    first = pack(str(n) for n in range(5))
    assert first == pack(str(n) for n in range(5))
    with pytest.raises(FileExistsError):
        pack(str(n) for n in range(6))
    squirrel.pack([{"n": 0}], tmp_path / "d", overwrite=True)
    pack([{1, 2}, {3}], append=True)
    with pytest.raises(FileExistsError):  # sets are not told from others
        pack([{1, 2}, {3}])


def test_a_finished_pack_of_dicts_and_arrays(tmp_path: Path) -> None:
    import numpy as np

    def inputs(last: object = 2.5) -> list[object]:
        image = np.arange(6, dtype=np.uint8).reshape(2, 3)
        return [{"path": "a", "box": (1, 2)}, {"path": "b", "more": {"x": image, "y": last}}]

    def pack(inputs: object) -> squirrel.PackReport:
        return squirrel.pack(inputs, tmp_path / "d", map=pack_jobs.count_of, workers=1, resume=True)

    first = pack(inputs())
    assert first.samples == 2 and pack(inputs()) == first
    for other in (inputs(2), inputs("2.5"), inputs(np.float32(2.5)), inputs()[::-1], inputs()[:1]):
        with pytest.raises(FileExistsError):
            pack(other)
    changed = inputs()
    changed[1]["more"]["x"] = changed[1]["more"]["x"].T  # the same bytes in another shape
    with pytest.raises(FileExistsError):
        pack(changed)
    assert [s["n"] for s in squirrel.open(tmp_path / "d")] == [2, 2]


@pytest.mark.parametrize("workers", [None, 1])
def test_a_failed_pack_leaves_no_empty_folder(tmp_path: Path, workers: int | None) -> None:
    with pytest.raises(ValueError, match="seven"):
        squirrel.pack(range(10), tmp_path / "d", map=pack_jobs.fail_at_seven, workers=workers)
    assert list((tmp_path / "d").glob("*")) == []


def test_ctrl_c_ends_quickly_and_leaves_nothing(tmp_path: Path, started: Started) -> None:
    script = tmp_path / "job.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent)).replace("resume=True", "resume=False"))
    process = started(
        [sys.executable, str(script), str(tmp_path / "d")], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=gated(100, tmp_path / "never"),  # its workers have work without end
    )
    wait_until(lambda: tasks_noted(tmp_path / "d") >= 1 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert [p for p in (tmp_path / "d").rglob("*") if p.is_file()] == []


@pytest.mark.soak
def test_two_workers_are_faster(tmp_path: Path) -> None:
    """1.6 times on two free cores; of what bare processes gain here, where others use them."""
    count = 1500

    def packed(workers: int) -> float:
        start = time.monotonic()
        squirrel.pack(
            range(count), tmp_path / "d", map=pack_jobs.compute, workers=workers, overwrite=True
        )
        return time.monotonic() - start

    def bare(workers: int) -> float:
        start = time.monotonic()
        share = count // workers
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", f"import pack_jobs\nfor n in range({share}): pack_jobs.compute(n)"],
                cwd=Path(__file__).parent,
            )
            for _ in range(workers)
        ]
        assert [p.wait() for p in processes] == [0] * workers
        return time.monotonic() - start

    if usable_cores() < 2:
        pytest.skip("two workers need two cores")
    gained = []  # of two bare processes, and of two workers, over one: side by side in time
    for _ in range(5):
        one, two = bare(1), bare(2)
        ours_two, ours_one = packed(2), packed(1)
        gained.append((ours_one / ours_two) / min(one / two, 2))
    assert max(gained) > 0.8, gained  # 1.6 of 2
