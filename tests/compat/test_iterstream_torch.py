"""Streams and PyTorch: DataLoader workers, ranks mocked and real (gloo, two processes)."""

from __future__ import annotations

import itertools
import json
import pickle
import types
from pathlib import Path
from typing import Any

import pytest
from iterstream_work import double, shuffled_keys

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from squirrel.framework.exceptions import PyTorchSplittingException  # noqa: E402
from squirrel.iterstream import (  # noqa: E402
    IterableSamplerSource,
    IterableSource,
    Multiplexer,
    MultiplexingStrategy,
)
from squirrel.iterstream.torch_composables import SplitByRank, SplitByWorker, TorchIterable, skip_k  # noqa: E402

S = IterableSource
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """ranks(rank, size): this process seems to be one of a group."""

    def be(rank: int, size: int) -> None:
        monkeypatch.setattr(torch.distributed, "is_available", lambda: True)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: size)

    return be


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """workers(id, count, seed): this process seems to be a worker of a DataLoader."""

    def be(number: int, count: int, seed: int = 5) -> None:
        info = types.SimpleNamespace(id=number, num_workers=count, seed=seed + number, dataset=None)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)

    return be


def loaded(stream: Any, **more: Any) -> list[int]:
    loader = DataLoader(stream, **{"batch_size": 4, "num_workers": 2, **more})
    return [x for batch in loader for x in batch.tolist()]


def test_torch_iterable() -> None:
    stream = S(range(10)).map(double).to_torch_iterable()
    assert isinstance(stream, TorchIterable) and isinstance(stream, IterableDataset)
    assert list(stream) == list(stream) == [2 * x for x in range(10)]
    assert loaded(stream, num_workers=0) == list(stream)
    assert pickle.loads(pickle.dumps(stream)).collect() == list(stream)
    assert stream.map(double).take(2).collect() == [0, 4]


def test_in_one_process_a_split_keeps_all() -> None:
    assert S(range(5)).split_by_worker_pytorch().split_by_rank_pytorch().collect() == list(range(5))
    assert S(range(5)).compose(SplitByRank).compose(SplitByWorker).to_torch_iterable().collect() == list(range(5))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_the_samples(method: str) -> None:
    stream = S(range(23)).split_by_worker_pytorch().map(double).to_torch_iterable()
    got = loaded(stream, multiprocessing_context=method)
    assert sorted(got) == [2 * x for x in range(23)]
    seeded = S(range(23)).shuffle(50, seed=3).split_by_worker_pytorch().to_torch_iterable()
    assert sorted(loaded(seeded, multiprocessing_context=method)) == list(range(23))


def test_workers_must_be_split() -> None:
    with pytest.raises(PyTorchSplittingException):
        loaded(S(range(9)).to_torch_iterable())
    assert sorted(loaded(S(range(9)).to_torch_iterable(enforce_worker_check=False))) == sorted([*range(9)] * 2)


def test_each_worker_has_its_share(workers: Any) -> None:
    for number in range(3):
        workers(number, 3)
        stream = S(range(10)).split_by_worker_pytorch()
        assert stream.collect() == list(range(number, 10, 3))
        assert stream.map(double).to_torch_iterable().collect() == [2 * x for x in range(number, 10, 3)]


def test_each_rank_has_its_share(ranks: Any) -> None:
    for rank in range(3):
        ranks(rank, 3)
        stream = S(range(10)).split_by_rank_pytorch()
        assert stream.collect() == list(range(rank, 10, 3))
        assert stream.map(double).to_torch_iterable().collect() == [2 * x for x in range(rank, 10, 3)]


def test_ranks_must_be_split(ranks: Any) -> None:
    ranks(0, 2)
    with pytest.raises(PyTorchSplittingException):
        S([1]).to_torch_iterable().collect()
    assert S([1]).to_torch_iterable(enforce_rank_check=False).collect() == [1]


def test_both_must_be_split(ranks: Any, workers: Any) -> None:
    shares = []
    for rank, number in itertools.product(range(2), range(3)):
        ranks(rank, 2)
        workers(number, 3)
        shares.append(S(range(50)).split_by_rank_pytorch().split_by_worker_pytorch().to_torch_iterable().collect())
        with pytest.raises(PyTorchSplittingException):
            S([1]).split_by_rank_pytorch().to_torch_iterable().collect()
        with pytest.raises(PyTorchSplittingException):
            S([1]).split_by_worker_pytorch().to_torch_iterable().collect()
    assert sorted(itertools.chain.from_iterable(shares)) == list(range(50))


def test_a_multiplexer_is_split_when_all_its_streams_are(workers: Any) -> None:
    workers(0, 2)

    def mux(*streams: Any) -> Any:
        return Multiplexer(list(streams), MultiplexingStrategy.ROUND_ROBIN).map(double).to_torch_iterable()

    split, whole = S(range(4)).split_by_worker_pytorch(), S(range(4))
    assert mux(split, split).collect() == [0, 0, 4, 4]
    with pytest.raises(PyTorchSplittingException):
        mux(split, whole).collect()


@pytest.mark.fault("sampler-split-check")
def test_a_sampler_is_split_when_all_its_streams_are(workers: Any) -> None:
    workers(0, 2)
    split = S(range(4)).split_by_worker_pytorch()
    assert sorted(IterableSamplerSource([split, split], seed=1).to_torch_iterable()) == [0, 0, 2, 2]
    with pytest.raises(PyTorchSplittingException):
        IterableSamplerSource([split, [1]], seed=1).to_torch_iterable().collect()


def test_skip_k() -> None:
    assert list(skip_k(1, 3)(range(10))) == [1, 4, 7]
    assert list(skip_k(0, 1)(range(3))) == [0, 1, 2]
    assert S(range(10)).to(skip_k(2, 4)).collect() == [2, 6]
    assert pickle.loads(pickle.dumps(S(range(10)).to(skip_k(2, 4)))).collect() == [2, 6]


# --- without a seed in front of a split ---


@pytest.mark.fault("unseeded-split")
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_share_the_seed_of_an_unseeded_shuffle(persistent: bool) -> None:
    stream = shuffled_keys(60, "worker").map(double).shuffle(5).to_torch_iterable()
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=persistent)
    epochs = [[int(x) for x in loader] for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [[2 * x for x in range(60)]] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.fault("unseeded-split")
def test_ranks_refuse_an_unseeded_shuffle(ranks: Any, workers: Any) -> None:
    ranks(0, 2)
    stream = shuffled_keys(9, "rank")
    with pytest.raises(PyTorchSplittingException, match="seed"):
        stream.collect()
    workers(0, 2)
    for more in (stream.map(double).split_by_worker_pytorch(), stream.to_torch_iterable(False, False)):
        with pytest.raises(PyTorchSplittingException, match="seed"):
            more.collect()
    assert len(S(range(9)).shuffle(5, seed=1).split_by_rank_pytorch().collect()) == 5


@pytest.mark.fault("unseeded-split")
def test_skip_k_refuses_an_unseeded_shuffle() -> None:
    with pytest.raises(PyTorchSplittingException, match="seed"):
        S(range(9)).shuffle(5).map(double).to(skip_k(0, 2)).collect()
    assert len(S(range(9)).shuffle(5, seed=1).to(skip_k(0, 2)).collect()) == 5
    assert len(S(range(9)).shuffle(5).to(skip_k(0, 1)).collect()) == 9


# --- real ranks ---


def train(rank: int, folder: str) -> None:
    """One rank: two workers, two epochs; what it saw goes to a file."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    seen = []
    for epoch in range(2):
        stream = S(range(101)).shuffle(1000, seed=epoch).split_by_rank_pytorch().split_by_worker_pytorch()
        stream = stream.map(double).async_map(double, buffer=5).shuffle(10).batched(4, drop_last_if_not_full=False)
        loader = DataLoader(stream.to_torch_iterable(), batch_size=None, num_workers=2, multiprocessing_context="fork")
        seen.append([x for batch in loader for x in batch])
    (Path(folder) / f"{rank}.json").write_text(json.dumps([[int(x) for x in epoch] for epoch in seen]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_gloo_ranks_with_two_workers(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train, (str(tmp_path),), nprocs=2)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for epoch in range(2):
        assert sorted(first[epoch] + second[epoch]) == [4 * x for x in range(101)]
        assert len(first[epoch]) == 51 and len(second[epoch]) == 50
