"""Stages for PyTorch: shares of ranks and DataLoader workers, and an IterableDataset. Needs torch."""

from __future__ import annotations

import itertools

import torch
from torch.utils.data import IterableDataset

from squirrel.framework.exceptions import PyTorchSplittingException
from squirrel.iterstream.base import Composable, Run
from squirrel.iterstream.split import _skip_k, refusal, share, skip_k, unseeded
from squirrel.iterstream.stages import Stage
from squirrel.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["SplitByRank", "SplitByWorker", "TorchIterable", "_skip_k", "skip_k"]


class SplitByRank(Stage):
    """The share of this rank: every `size`-th item, beginning with item `rank`.

    Rank and size are those of ``torch.distributed`` when the stage is made, so that DataLoader
    workers, which have no process group, know them.

    Raises:
        PyTorchSplittingException: (when iterated) what lies in front is shuffled without a seed.
    """

    def __init__(self, torch_dist_group: str | None = None) -> None:
        super().__init__()
        self.rank = 0
        self.size = 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            group: Any = torch_dist_group or torch.distributed.group.WORLD
            self.rank = torch.distributed.get_rank(group=group)
            self.size = torch.distributed.get_world_size(group=group)

    @property
    def _call(self) -> str:
        return f"split_by_rank_pytorch(): rank {self.rank} of {self.size}"

    def _start(self, run: Run) -> Iterator[Any]:
        if self.size <= 1 or not torch.distributed.is_available():
            return self._upstream(run)
        node = unseeded(self.source)
        if node is not None:
            raise PyTorchSplittingException(refusal(node, "split_by_rank_pytorch()"))
        return itertools.islice(self._upstream(run), self.rank, None, self.size)


class SplitByWorker(Stage):
    """The share of this DataLoader worker: every n-th item of n workers; all items outside of one.

    What is shuffled without a seed in front of it gets one that the workers share, another one in
    each epoch.

    Raises:
        PyTorchSplittingException: (when iterated) such a shuffle can't be given the shared seed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.winfo: Any = None  # known in the worker only
        self.passes = 0

    @property
    def _call(self) -> str:
        return "split_by_worker_pytorch()"

    def _start(self, run: Run) -> Iterator[Any]:
        self.winfo = torch.utils.data.get_worker_info()
        if self.winfo is None:
            return self._upstream(run)
        if self.winfo.num_workers > 1:
            shared = share(run, self.winfo, self.passes)
            node = unseeded(self.source, workers=True, shared=shared)
            if node is not None:
                raise PyTorchSplittingException(refusal(node, "split_by_worker_pytorch()"))
            self.passes += 1
        return itertools.islice(self._upstream(run), self.winfo.id, None, self.winfo.num_workers)


class TorchIterable(Composable, IterableDataset):  # type: ignore[type-arg]
    """A stream that is an ``IterableDataset``.

    Args:
        enforce_rank_check: refuses to run in several ranks when no SplitByRank is in the stream.
        enforce_worker_check: refuses to run in several workers when no SplitByWorker is.

    Raises:
        PyTorchSplittingException: (when iterated) each rank or worker would get all samples.
    """

    def __init__(self, enforce_rank_check: bool = True, enforce_worker_check: bool = True) -> None:
        super().__init__()
        self.enforce_rank_check = enforce_rank_check
        self.enforce_worker_check = enforce_worker_check

    @property
    def _call(self) -> str:
        return "to_torch_iterable()"

    def _functions(self) -> list[Any]:
        return []

    def _start(self, run: Run) -> Iterator[Any]:
        if self.enforce_rank_check and _in_multi_rank_env():
            self._check(self._contains_rank_split, "ranks", "split_by_rank_pytorch()")
        if self.enforce_worker_check and _in_multi_worker_env():
            self._check(self._contains_worker_split, "workers", "split_by_worker_pytorch()")
        self._epoch_of(run)
        source = self.source
        return source._start(run) if isinstance(source, Composable) else iter(source)

    def _check(self, contains: Callable[[Any], bool], who: str, remedy: str) -> None:
        if not contains(self.source):
            raise PyTorchSplittingException(
                f"the stream isn't split by {who}: each of the {who} would get all samples. "
                f"Put distribute() into the native stream, or {remedy} in front of to_torch_iterable()"
            )

    def _contains_rank_split(self, source: Any) -> bool:
        return _contains(source, SplitByRank)

    def _contains_worker_split(self, source: Any) -> bool:
        return _contains(source, SplitByWorker)


def _contains(source: Any, split: type[Composable]) -> bool:
    """Whether all ways from `source` down lead through a split."""
    if isinstance(source, split):
        return True
    if isinstance(source, Stream):
        return source.distributed
    if not isinstance(source, Composable):
        return False
    sources = source._sources()
    return bool(sources) and all(_contains(inner, split) for inner in sources)


def _in_multi_worker_env() -> bool:
    """Whether this is a worker of a DataLoader."""
    return torch.utils.data.get_worker_info() is not None


def _in_multi_rank_env() -> bool:
    """Whether there are several ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    return bool(torch.distributed.get_world_size(group=torch.distributed.group.WORLD) > 1)
