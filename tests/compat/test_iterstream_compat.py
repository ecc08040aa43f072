"""Streams: what both packages do, and the faults of squirrel-core that are put right here.

Expected values are worked out by hand, or drawn from CPython's and NumPy's generators in the test; the tables of orders
are squirrel-core's own, and this program checks them there.
"""

from __future__ import annotations

import copy
import gc
import itertools
import multiprocessing
import pickle
import random
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from iterstream_work import (
    Counter,
    Every,
    Pairs,
    WithSource,
    add,
    collected,
    double,
    even,
    long_chain,
    slow_double,
)

from squirrel.iterstream import (
    Composable,
    FilePathGenerator,
    IterableSamplerSource,
    IterableSource,
    Multiplexer,
    MultiplexingStrategy,
)
from squirrel.iterstream import iterators as plain
from squirrel.iterstream.base import AsyncContent
from squirrel.iterstream.metrics import MetricsConf, metrics_iops, metrics_throughput

S = IterableSource


# --- sources and the plain stages ---


def test_sources() -> None:
    assert S([1, 2]).collect() == [1, 2]
    assert S().collect() == []
    assert S(lambda: iter("ab")).collect() == ["a", "b"]
    assert S(x for x in range(3)).collect() == [0, 1, 2]
    assert S([1]).source_([2]).collect() == [2]
    assert S(S([1, 2]).map(double)).collect() == [2, 4]
    stream = S([1, 2])
    assert (stream.collect(), stream.collect()) == ([1, 2], [1, 2])
    assert bool(S([])) and S([1, 2]).join() is None


def test_map_filter_flatten_take_batched() -> None:
    s = S(range(10))
    assert s.map(double).filter(lambda x: x > 10).collect() == [12, 14, 16, 18]
    assert s.map(add, by=3).take(2).collect() == [3, 4]
    assert S([[1], "", (2, 3)]).flatten().collect() == [1, 2, 3]
    assert s.take(0).collect() == [] and s.take(None).collect() == list(range(10)) == s.take(99).collect()
    assert s.batched(4).collect() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert s.batched(4, drop_last_if_not_full=False).collect()[-1] == [8, 9]
    assert s.batched(4, sum, False).collect() == [6, 22, 17]
    assert s.batched(5).collect() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_to_gives_an_iterator() -> None:
    s = S(range(4))
    assert s.to(itertools.pairwise).collect() == [(0, 1), (1, 2), (2, 3)]
    assert s.to(lambda it, n, k: (x + n + k for x in it), 1, k=2).collect() == [3, 4, 5, 6]
    # What the function gets can be passed through once.
    assert s.to(lambda it: iter([next(it), next(it)])).collect() == [0, 1]
    assert s.to(lambda it: iter(list(it) + list(it))).collect() == [0, 1, 2, 3]


def test_compose() -> None:
    s = S(range(6))
    assert s.compose(Pairs).collect() == [(0, 1), (2, 3), (4, 5)]
    assert s.compose(Every, 2, first=1).map(double).collect() == [2, 6, 10]
    with pytest.raises(ValueError):
        s.compose(WithSource)
    with pytest.raises(ValueError):
        s.compose(IterableSource)


def test_zip_index() -> None:
    assert S("ab").zip_index().collect() == [(0, "a"), (1, "b")]
    assert S(range(12)).zip_index(pad_length=2).collect()[9:] == [("09", 9), ("10", 10), ("11", 11)]
    assert S("a" * 11).zip_index(1).collect()[-1] == ("10", "a")
    assert S("a").zip_index(0).collect() == [("0", "a")]


WINDOWS = [
    ({}, 5, [[0, 1, 2], [1, 2, 3], [2, 3, 4]]),
    ({}, 2, []),
    ({"stride": 2}, 6, [[0, 1, 2], [2, 3, 4]]),
    ({"stride": 3}, 7, [[0, 1, 2], [3, 4, 5]]),
    ({"drop_last_if_not_full": False}, 4, [[0, 1, 2], [1, 2, 3], [2, 3], [3]]),
    ({"drop_last_if_not_full": False}, 2, [[0, 1]]),
    ({"drop_last_if_not_full": False, "min_window_size": 2}, 4, [[0, 1, 2], [1, 2, 3], [2, 3]]),
    ({"drop_last_if_not_full": False, "min_window_size": 2}, 1, [[0]]),
    ({"drop_last_if_not_full": False, "stride": 2}, 5, [[0, 1, 2], [2, 3, 4], [4]]),
    ({"drop_last_if_not_full": False, "stride": 3}, 3, [[0, 1, 2]]),
    ({"drop_last_if_not_full": False, "fill_nan_on_partial": True}, 3, [[0, 1, 2], [1, 2, None], [2, None, None]]),
    ({"drop_last_if_not_full": False, "fill_nan_on_partial": True, "min_window_size": 2, "stride": 2}, 3,
     [[0, 1, 2], [2, None, None]]),
]


@pytest.mark.parametrize(("options", "count", "windows"), WINDOWS)
@pytest.mark.parametrize("deep", [False, True])
def test_sliding(options: dict[str, Any], count: int, windows: list[list[int]], deep: bool) -> None:
    assert S(range(count)).sliding(3, deepcopy=deep, **options).collect() == windows


def test_sliding_copies_or_shares() -> None:
    items = [[0], [1], [2]]
    shared = S(items).sliding(2, deepcopy=False).collect()
    copied = S(items).sliding(2, deepcopy=True).collect()
    assert shared[0][1] is shared[1][0] is items[1]
    assert copied[0][1] == [1] and copied[0][1] is not copied[1][0] and copied[0][1] is not items[1]


@pytest.mark.parametrize("wrong", [{"window_size": 1}, {"min_window_size": 3}, {"min_window_size": 0},
                                   {"stride": 4}, {"stride": 0}])
def test_sliding_refuses(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        S([]).sliding(**{"window_size": 3, "deepcopy": False, **wrong})


@pytest.mark.fault("sliding-empty")
def test_sliding_over_nothing() -> None:
    assert S([]).sliding(3, deepcopy=False, drop_last_if_not_full=False).collect() == []


@pytest.mark.fault("silent-arguments")
@pytest.mark.parametrize("call", [lambda s: s.batched(0).collect(), lambda s: s.loop(-1).collect()])
def test_wrong_counts(call: Any) -> None:
    with pytest.raises(ValueError):
        call(S([1]))


def test_tqdm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    assert S(range(3)).tqdm(desc="counting").collect() == [0, 1, 2]
    assert "counting" in capsys.readouterr().err


# --- shuffle and loop ---


def by_hand(items: Any, size: int, initial: int, rng: random.Random) -> list[Any]:
    """The order that shuffle() documents, with CPython's own randint."""
    left, held, out = list(items), [], []
    initial = min(initial, size)

    def leave() -> None:
        k = rng.randint(0, len(held) - 1)
        held[k], held[-1] = held[-1], held[k]
        out.append(held.pop())

    while left:
        held.append(left.pop(0))
        if len(held) < size and left:
            held.append(left.pop(0))
        if len(held) >= initial:
            leave()
    while held:
        leave()
    return out


@pytest.mark.parametrize(("count", "size", "initial"), [(0, 5, 3), (1, 5, 3), (20, 8, 4), (20, 5, 9), (20, 50, 100),
                                                        (10, 5, 0), (10, 5, -3), (100, 2, 1), (3000, 1000, 100)])
@pytest.mark.parametrize("seed", [1, "text", b"bytes", 2.5, 2**70])
def test_shuffle_by_seed(count: int, size: int, initial: int, seed: Any) -> None:
    got = S(range(count)).shuffle(size, initial=initial, seed=seed).collect()
    assert got == by_hand(range(count), size, initial, random.Random(seed))


def test_shuffle_orders_of_squirrel_core() -> None:
    s = S(range(10))
    assert s.shuffle(5, initial=0, seed=1).collect() == [0, 3, 1, 4, 5, 6, 9, 2, 7, 8]
    assert s.shuffle(5, initial=9, seed=1).collect() == [1, 5, 0, 2, 6, 3, 9, 4, 7, 8]
    assert list(plain.shuffle_(range(8), 3, 2, seed=1)) == [0, 3, 1, 2, 4, 5, 7, 6]
    assert s.shuffle(5, rng=random.Random(3), seed=1).collect() == s.shuffle(5, seed=1).collect()
    assert s.shuffle(20, rng=random, seed=1).collect() == s.shuffle(20, seed=1).collect()
    assert s.shuffle(4.5, initial=0.0, seed=1).collect() == [0, 3, 1, 4, 5, 6, 9, 2, 7, 8]  # as 5
    assert sorted(s.shuffle(float("inf"), initial=1e9, seed=1)) == list(range(10))


def test_shuffle_keeps_small_buffers_in_order() -> None:
    s = S(range(5))
    assert s.shuffle(1).collect() == s.shuffle(0).collect() == [0, 1, 2, 3, 4]
    assert sorted(s.shuffle(None).collect()) == sorted(s.shuffle().collect()) == [0, 1, 2, 3, 4]


def test_shuffle_without_a_seed_differs() -> None:
    s = S(range(200)).shuffle(100)
    assert s.collect() != s.collect()


def test_shuffle_refuses_unknown_arguments() -> None:
    with pytest.raises(TypeError):
        S([1]).shuffle(5, buffer=3).collect()


@pytest.mark.fault("shuffle-rng")
def test_shuffle_goes_on_with_the_given_rng() -> None:
    got = S(range(30)).shuffle(10, rng=random.Random(3)).collect()
    assert got == by_hand(range(30), 10, 100, random.Random(3))
    rng, model = random.Random(4), random.Random(4)
    s = S(range(30)).shuffle(10, rng=rng)
    assert [s.collect(), s.collect()] == [by_hand(range(30), 10, 100, model) for _ in range(2)]
    assert plain.get_random_range(random.Random(5)).random() == random.Random(5).random()


def test_loop() -> None:
    s = S(range(3))
    assert s.loop(2).collect() == [0, 1, 2] * 2
    assert s.loop(0).collect() == []
    assert list(itertools.islice(s.loop(), 7)) == [0, 1, 2, 0, 1, 2, 0]
    assert s.map(double).loop(2).map(double).collect() == [0, 4, 8] * 2
    assert S([]).loop(3).collect() == []
    assert S(iter([1, 2])).loop(2).collect() == [1, 2, 1, 2]
    assert S(lambda: (x for x in range(2))).loop(2).collect() == [0, 1, 0, 1]
    assert s.loop(2).loop(2).collect() == [0, 1, 2] * 4


def test_loop_starts_callables_anew() -> None:
    counter = Counter()
    assert S("ab").map(counter).loop(2).collect() == [(1, "a"), (2, "b")] * 2
    assert counter.calls == 0


def test_first_pass_of_a_seeded_loop() -> None:
    s = S(range(20)).shuffle(10, seed=1)
    assert list(itertools.islice(s.loop(3), 20)) == s.collect()


@pytest.mark.fault("loop-same-order")
def test_each_pass_of_a_seeded_loop_has_its_order() -> None:
    s = S(range(20)).shuffle(10, seed=1)
    passes = S(s.loop(3)).batched(20).collect()
    assert [sorted(p) for p in passes] == [list(range(20))] * 3
    assert len({tuple(p) for p in passes}) == 3
    assert S(range(20)).shuffle(10, seed=1).loop(3).batched(20).collect() == passes


@pytest.mark.fault("loop-generator")
def test_loop_over_a_generator_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="callable"):
        S(x for x in range(3)).loop(2).collect()
    assert S(x for x in range(3)).loop(1).collect() == [0, 1, 2]


@pytest.mark.only("ours")  # it never comes back there
@pytest.mark.fault("loop-empty")
def test_an_endless_loop_over_nothing() -> None:
    with pytest.raises(ValueError):
        S([]).loop().collect()


@pytest.mark.fault("zip-index-restart")
def test_zip_index_restarts() -> None:
    s = S("ab").zip_index()
    assert s.collect() == s.collect() == [(0, "a"), (1, "b")]


# --- async_map ---


def test_async_map() -> None:
    s = S(range(30))
    for more in ({}, {"buffer": 1}, {"buffer": 3}, {"max_workers": 1}, {"buffer": 7, "max_workers": 3}):
        assert s.async_map(slow_double, **more).collect() == [2 * x for x in range(30)]
    assert s.async_map(add, by=4).take(2).collect() == [4, 5]
    assert s.async_map(double).filter(lambda x: x > 50).async_map(double).collect() == [104, 108, 112, 116]
    assert S([]).async_map(double).collect() == []


def test_async_map_with_executors() -> None:
    with ThreadPoolExecutor(2) as pool:
        s = S(range(20)).async_map(slow_double, executor=pool).async_map(add, by=1, executor=pool, buffer=2)
        assert s.collect() == s.collect() == [2 * x + 1 for x in range(20)]
        assert pool.submit(double, 1).result() == 2  # it is left open
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert S(range(5)).async_map(double, executor=processes).collect() == [0, 2, 4, 6, 8]


def test_async_map_runs_at_the_same_time() -> None:
    together = threading.Barrier(4)
    s = S(range(8)).async_map(lambda x: together.wait(timeout=60) * 0 + x, buffer=8, max_workers=4)
    assert s.collect() == list(range(8))


def test_async_map_reads_no_further_than_the_buffer() -> None:
    taken: list[int] = []
    items = iter(S(range(100)).map(lambda x: taken.append(x) or x).async_map(double, buffer=5))
    assert next(items) == 0
    assert len(taken) <= 6


def test_an_error_of_async_map_comes_in_its_turn() -> None:
    got = []
    with pytest.raises(ZeroDivisionError):
        for x in S([4, 2, 0, 1]).async_map(lambda x: 4 // x):
            got.append(x)
    assert got == [1, 2]


def test_stop_iteration_of_a_callback_is_an_error() -> None:
    def stop(x: object) -> None:
        raise StopIteration

    for stream in (S([1]).map(stop), S([1]).filter(stop), S([1]).batched(1, stop), S([1]).async_map(stop)):
        with pytest.raises(RuntimeError):
            stream.collect()


@pytest.mark.fault("async-buffer-0")
@pytest.mark.parametrize("buffer", [0, -1])
def test_a_buffer_holds_at_least_one(buffer: int) -> None:
    with pytest.raises(ValueError):
        S([1]).async_map(double, buffer=buffer)


@pytest.mark.fault("unknown-executor")
def test_an_unknown_executor() -> None:
    with pytest.raises(TypeError, match="executor"):
        S([1]).async_map(double, executor=3).collect()


@pytest.mark.fault("abandoned-pool")
def test_an_abandoned_iterator_ends_its_threads() -> None:
    calls: list[int] = []
    go_on = threading.Event()

    def slow(x: int) -> int:
        calls.append(x)
        assert x == 0 or go_on.wait(60)
        return x

    before = threading.active_count()
    items = iter(S(range(10_000)).async_map(slow, max_workers=2, buffer=50))
    next(items)
    assert threading.active_count() > before
    before += 1
    late = threading.Timer(5, go_on.set)  # for who waits for the threads here
    late.start()
    del items
    gc.collect()
    go_on.set()
    for _ in range(1200):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before
    late.cancel()
    # What waited in the buffer isn't worked through for nobody.
    assert len(calls) < 40


def test_async_content() -> None:
    with ThreadPoolExecutor(1) as pool:
        content = AsyncContent("item", str.upper, pool)
        assert content.value() == content.value(timeout=60) == "ITEM"
        assert content.stack == 1 and content.future.done()


def test_dask() -> None:
    pytest.importorskip("dask")
    delayed = S(range(3)).dask_map(add, by=1).collect()
    assert [d.compute() for d in delayed] == [1, 2, 3]
    assert S(range(3)).dask_map(double).materialize_dask().collect() == [0, 2, 4]
    twice = S(range(3)).dask_map(double).dask_map(add, by=1)
    assert twice.materialize_dask(buffer=1, max_workers=2).collect() == [1, 3, 5]
    assert S([1]).dask_map(lambda x: [x, x]).materialize_dask().collect() == [[1, 1]]


def test_dask_client() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        assert S(range(8)).async_map(slow_double, executor=client, buffer=3).collect() == [2 * x for x in range(8)]


@pytest.mark.fault("dask-repeats")
def test_dask_client_calls_for_each_item() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        drawn = S([1] * 10).async_map(lambda x: x + random.random(), executor=client, buffer=10).collect()
    assert len(set(drawn)) == 10


def test_numba() -> None:
    pytest.importorskip("numba")
    assert S(range(4)).numba_map(lambda x: x * x).collect() == [0, 1, 4, 9]
    assert S([1.5, 2.5]).numba_map(lambda x: x + 1).collect() == [2.5, 3.5]
    assert S([{"a": 1}]).numba_map(lambda x: x).collect() == [{"a": 1}]
    assert S([np.arange(3)]).numba_map(lambda a: a.sum()).collect() == [3]


# --- Multiplexer and IterableSamplerSource ---


def streams(*counts: int) -> list[Composable]:
    """a0 a1 ..., b0 b1 ..., ..."""
    return [S([f"{chr(97 + i)}{j}" for j in range(n)]) for i, n in enumerate(counts)]


def test_round_robin() -> None:
    mux = Multiplexer(streams(3, 0, 5), MultiplexingStrategy.ROUND_ROBIN)
    assert mux.collect() == ["a0", "a1", "c0", "a2", "c1", "c2", "c3", "c4"]
    assert mux.num_samples == [3, 0, 5] and mux.reinit_counts == []
    assert mux.collect()[:2] == ["a0", "a1"] and mux.num_samples == [6, 0, 10]
    assert Multiplexer([], MultiplexingStrategy.ROUND_ROBIN).collect() == []


def mux_by_hand(counts: list[int], rng: Any, p: list[float] | None, most: int | None) -> list[str]:
    """What Multiplexer documents, with NumPy's own choice."""
    at, reinits, out = [0] * len(counts), [0] * len(counts), []
    while True:
        i = int(rng.choice(len(counts), 1, replace=True, p=p)[0])
        if at[i] < counts[i]:
            out.append(f"{chr(97 + i)}{at[i]}")
            at[i] += 1
            continue
        at[i] = 0
        reinits[i] += 1
        if reinits[i] == most or all(reinits):
            return out


@pytest.mark.parametrize("counts", [[3, 5], [7], [3, 4, 5, 6, 7], [0, 5], [40, 50, 30], [300, 500]])
@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("most", [None, 1, 3])
def test_draws_of_the_multiplexer(counts: list[int], seed: int, most: int | None) -> None:
    mt = np.random.MT19937
    mux = Multiplexer(streams(*counts), MultiplexingStrategy.UNIFORM_WITH_REPLACEMENT, seed=seed, max_reinits=most)
    rng = np.random.RandomState(mt(seed))
    assert [mux.collect() for _ in range(2)] == [mux_by_hand(counts, rng, None, most) for _ in range(2)]
    weights = [1.5 / (i + 1) for i in range(len(counts))]
    mux = Multiplexer(streams(*counts), MultiplexingStrategy.SAMPLING, weights, seed=seed, max_reinits=most)
    p = np.array(weights)
    p /= p.sum()
    rng = np.random.RandomState(mt(seed))
    assert [mux.collect() for _ in range(2)] == [mux_by_hand(counts, rng, list(p), most) for _ in range(2)]


def test_counts_of_the_multiplexer() -> None:
    mux = Multiplexer(streams(3, 5), MultiplexingStrategy.SAMPLING, [0.9, 0.1], seed=1)
    expected = "a0 a1 a2 a0 b0 a1 a2 a0 a1 a2 a0 b1 a1 a2 a0 b2 a1 b3 a2 a0 a1 a2 a0 a1 b4"
    assert mux.collect() == expected.split()
    assert (mux.num_samples, mux.reinit_counts) == ([20, 5], [6, 1])
    items = iter(Multiplexer(streams(2, 3), MultiplexingStrategy.SAMPLING, [0.5, 0.5], seed=1))
    assert list(itertools.islice(items, 4)) == ["a0", "b0", "b1", "b2"]


def test_weights_of_the_multiplexer() -> None:
    kept = Multiplexer(streams(3, 5, 2), MultiplexingStrategy.SAMPLING, [0.5, 0.001, 0.499], seed=1)
    assert len(kept.composables) == 2 and kept.sampling_probas == pytest.approx([0.5 / 0.999, 0.499 / 0.999])
    assert not any(x.startswith("b") for x in kept)
    one = Multiplexer(streams(1, 1), MultiplexingStrategy.SAMPLING, [1.0, 0.1], proba_threshold=0.5)
    assert len(one.composables) == 1
    for strategy in ("SAMPLING", "UNIFORM_WITH_REPLACEMENT"):
        mux = Multiplexer(streams(3, 5), MultiplexingStrategy[strategy], [0.5, 0.5], seed=3)
        assert pickle.loads(pickle.dumps(mux)).collect() == copy.deepcopy(mux).collect() == mux.collect()


@pytest.mark.fault("multiplexer-weights")
def test_integer_weights() -> None:
    whole = Multiplexer(streams(9, 9), MultiplexingStrategy.SAMPLING, [3, 1], seed=1).collect()
    assert whole == Multiplexer(streams(9, 9), MultiplexingStrategy.SAMPLING, [0.75, 0.25], seed=1).collect()


def test_an_unknown_strategy() -> None:
    with pytest.raises(NotImplementedError):
        list(Multiplexer(streams(1), "sampling", [1.0]))
    assert [s.value for s in MultiplexingStrategy] == ["RoundRobin", "uniform_with_replacement", "sampling"]


def test_sampler() -> None:
    assert IterableSamplerSource([[1, 2, 3], [4, 5]], seed=1).collect() == [1, 4, 5, 2, 3]
    assert IterableSamplerSource([[1, 2, 3], [4, 5]], [0.9, 0.1], seed=1).collect() == [1, 2, 3, 4, 5]
    equal = IterableSamplerSource([range(5), S(range(5, 9))], seed=2)
    assert sorted(equal.collect()) == list(range(9)) and sorted(equal.collect()) == list(range(9))
    # Drawn as random.choices does.
    rng, left, model = random.Random(7), [list("abcdefgh"), list("uvwxyz")], []
    while left:
        i = rng.choices(range(len(left)), weights=[0.25, 0.75] if len(left) == 2 else [1.0])[0]
        if left[i]:
            model.append(left[i].pop(0))
        else:
            del left[i]
    assert IterableSamplerSource(["abcdefgh", "uvwxyz"], [0.25, 0.75], seed=7).collect() == model


@pytest.mark.fault("sampler-second-pass")
def test_sampler_can_be_iterated_again() -> None:
    sampler = IterableSamplerSource([range(5), range(5, 9)], [0.5, 0.5], seed=2)
    assert sorted(sampler.collect()) == sorted(sampler.collect()) == list(range(9))
    assert sampler.probs == [0.5, 0.5]


@pytest.mark.fault("sampler-empty")
def test_a_sampler_of_nothing() -> None:
    assert IterableSamplerSource([]).collect() == []


@pytest.mark.fault("multiplexer-strategy")
def test_an_unknown_strategy_is_said_at_once() -> None:
    with pytest.raises(NotImplementedError):
        Multiplexer([S([1])], "no strategy")


@pytest.mark.fault("sampler-rounding")
def test_probabilities_sum_to_one_but_for_rounding() -> None:
    assert IterableSamplerSource([[1]] * 10, [0.1] * 10, seed=1).collect() == [1] * 10


# --- monitor ---


class Clock:
    """A clock for the monitor of both packages: items come `seconds` apart."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def items(self, values: list[Any]) -> Any:
        for value in values:
            time.sleep(self.seconds)
            yield value


def rates(window: int, count: int = 12, seconds: float = 0.02, **more: Any) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    clock = Clock(seconds)
    S(lambda: clock.items([b"x" * 1000] * count)).monitor(found.append, window_size=window, **more).join()
    return found


def test_monitor_reports() -> None:
    out: list[Any] = []

    def log(metrics: dict[str, float], step: int, tag: str = "") -> None:
        out.append((set(metrics), step, tag))

    s = S(range(6)).monitor(log, prefix="in ", window_size=3, step=7, tag="t")
    assert s.collect() == list(range(6))
    assert out == [({"in IOPS number/s", "in throughput MB/s"}, 7, "t")] * 4
    assert len(rates(5, 4, 0)) == 0 and len(rates(2, 4, 0)) == 3
    seen: list[Any] = []
    for item in S("abc").monitor(lambda m: seen.append("report"), window_size=2):
        seen.append(item)
    assert seen == ["a", "report", "b", "report", "c"]


def test_monitor_of_parts() -> None:
    items = rates(2, 4, metrics_conf=MetricsConf(throughput=False))
    assert all(m["throughput MB/s"] == 0 < m["IOPS number/s"] for m in items)
    only = rates(2, 4, metrics_conf=MetricsConf(iops=False, throughput_unit="bytes"))
    assert all(m["IOPS number/s"] == 0 < m["throughput bytes/s"] for m in only)
    assert rates(2, 4, metrics_conf=MetricsConf(False, False)) == []


@pytest.mark.fault("monitor-bias")
def test_monitor_counts_intervals() -> None:
    # Not faster than the sleep between items allows: 50 items/s. Counting 2 items an interval gives up to 100.
    found = rates(2)
    assert all(0 < m["IOPS number/s"] <= 50 for m in found)
    kilobytes = rates(2, metrics_conf=MetricsConf(throughput_unit="KB"))
    assert all(0 < m["throughput KB/s"] <= 50 * plain.getsize(b"x" * 1000) / 1024 for m in kilobytes)


@pytest.mark.fault("monitor-window-1")
def test_monitor_of_single_intervals() -> None:
    found = rates(1, 6)
    assert len(found) == 5 and all(0 < m["IOPS number/s"] <= 50 for m in found)


def test_metrics() -> None:
    assert metrics_iops(10, 2) == 5 and metrics_throughput(2**20, 2) == 2**19
    assert [metrics_throughput(3 << 20, 2, unit) for unit in ("bytes", "KB", "MB")] == [1572864, 1536, 1.5]
    assert MetricsConf().asdict() == {"iops": True, "throughput": True, "throughput_unit": "MB"}
    assert MetricsConf() == MetricsConf(True, True, "MB") != MetricsConf(iops=False)
    assert repr(MetricsConf()) == "MetricsConf(iops=True, throughput=True, throughput_unit='MB')"


def test_getsize() -> None:
    for item in (1, 300, -5, 2**40, "abc", b"abc", 2.5, None, True, [1, 2], {"a": 1}, "ä" * 300):
        assert plain.getsize(item) == len(pickle.dumps(item))
    assert plain.getsize(np.zeros((3, 5), np.float32)) == 60


# --- plain functions, pickling, processes ---


def test_plain_functions() -> None:
    assert list(plain.take_(range(5), 2)) == [0, 1] and list(plain.flatten_([[1], "ab"])) == [1, "a", "b"]
    assert list(plain.map_([1], str)) == ["1"] and list(plain.filter_([0, 1], bool)) == [1]
    assert list(plain.batched_(range(25))) == [list(range(20))]
    assert list(plain.batched_(range(5), 2, sum, False)) == [1, 5, 4]
    assert sorted(plain.shuffle_(range(10))) == list(range(10))
    assert plain.get_random_range(None, 3).random() == random.Random(3).random()
    rng = random.Random()
    assert plain.get_random_range(rng, 3) is rng and rng.random() == random.Random(3).random()


def test_pickle_and_deepcopy() -> None:
    chain = long_chain(40)
    pickled, copied = pickle.loads(pickle.dumps(chain)), copy.deepcopy(chain)
    assert pickled.collect() == copied.collect() == chain.collect()
    assert len(chain.collect()) == 10


@pytest.mark.fault("pickle-after-run")
def test_pickle_behind_a_pass() -> None:
    stream = S(range(3)).async_map(double)
    assert stream.collect() == [0, 2, 4]
    assert pickle.loads(pickle.dumps(stream)).collect() == copy.deepcopy(stream).collect() == [0, 2, 4]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_other_processes(method: str) -> None:
    chain = long_chain(40)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(collected, (chain,)) == chain.collect()


def test_file_paths(tmp_path: Any) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", "deep/er/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    url = str(tmp_path)
    assert FilePathGenerator(url).collect() == [f"{url}/a.txt", f"{url}/b.txt", f"{url}/deep"]
    assert FilePathGenerator(f"file://{url}").collect()[0] == f"file://{url}/a.txt"
    nested = FilePathGenerator(url, nested=True, max_workers=2, max_dirs=1)
    assert sorted(nested.collect()) == sorted(nested.collect()) == [
        f"{url}/{name}" for name in ("a.txt", "b.txt", "deep/c.txt", "deep/er/d.txt")]
    assert FilePathGenerator(url, nested=True).collect()[:2] == [f"{url}/b.txt", f"{url}/a.txt"]
    assert FilePathGenerator(f"{url}/none").collect() == []


# --- checks and errors ---


@pytest.mark.fault("asserts")
@pytest.mark.parametrize("call", [
    lambda s: s.to(list, source=[1]),
    lambda s: s.compose(Pairs, source=[1]),
    lambda s: s.monitor(print, window_size=0).collect(),
    lambda s: Multiplexer([s, s], MultiplexingStrategy.SAMPLING),
    lambda s: Multiplexer([s, s], MultiplexingStrategy.SAMPLING, [1.0]),
    lambda s: IterableSamplerSource([s, s], [1.0]),
    lambda s: IterableSamplerSource([s, s], [0.5, 0.6]),
    lambda s: IterableSamplerSource([s, s], [1.5, -0.5]),
])
def test_wrong_arguments_are_value_errors(call: Any) -> None:
    with pytest.raises(ValueError):
        call(S([1, 2]))


@pytest.mark.fault("exception-stage")
def test_an_exception_names_its_stage() -> None:
    def broken(x: int) -> float:
        return 1 / x

    for stream in (S([1, 0]).map(double).map(broken).filter(even), S([1, 0]).async_map(broken).map(double)):
        with pytest.raises(ZeroDivisionError) as caught:
            stream.collect()
        assert any("broken" in note for note in caught.value.__notes__)
        assert caught.traceback[-1].name == "broken"


@pytest.mark.fault("on-error")
def test_a_policy_for_errors() -> None:
    s = S([1, 0, 2]).map(lambda x: 2 // x, on_error="skip")
    assert s.collect() == s.collect() == [2, 1]
