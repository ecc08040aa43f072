"""What a split must know of what lies in front of it, and the hook skip_k, without torch.

Each rank and each worker iterates the whole stream in front of a split and keeps its share. If
that stream is shuffled differently in each of them, samples are lost and others come twice.
"""

from __future__ import annotations

import functools
import itertools

from squirrel.iterstream.trace import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from squirrel.iterstream.base import Composable, Run


def unseeded(source: Any, workers: bool = False, shared: bool = False) -> Composable | None:
    """The first stage of `source` whose order differs among those that split it.

    Those are ranks, or with `workers` the workers of one DataLoader, which are copies of one
    process. With `shared` a seed that all of them know reaches the stages (Run.shared): those that
    use it are fine, unless a stage of the user's own stands in between, which doesn't hand it on.
    """
    for node in walk(source):
        kind = node._unseeded()
        same = workers and kind == "rank"
        if kind is not None and not same and not (shared and kind == "pass" and _reached(source, node)):
            return node
    return None


def _reached(source: Any, wanted: Composable) -> bool:
    """Whether the run of `source` is the run of the stage `wanted` too."""
    from squirrel.iterstream.base import Composable

    node = source
    while isinstance(node, Composable) and node is not wanted:
        if type(node)._start is Composable._start or len(node._sources()) != 1:
            return False
        node = node._sources()[0]
    return node is wanted


def refusal(node: Composable, split: str) -> str:
    """The message of a split that can't go on, with the remedy."""
    return (
        f"{node._call} stands in front of {split} without a seed: each process would draw an order of its own, so "
        "that samples get lost and others come several times. Give it a seed, the same everywhere, as in "
        "shuffle(..., seed=7) or key_shuffle_kwargs={'seed': 7}, and call set_epoch(n) on the stream for another "
        f"order in each epoch; or shuffle behind {split}"
    )


def check_hook(f: Callable[..., Any], source: Any) -> None:
    """Refuses skip_k(...) behind what is shuffled without a seed."""
    if isinstance(f, functools.partial) and f.func is _skip_k and f.keywords.get("step", 1) > 1:
        node = unseeded(source)
        if node is not None:
            raise splitting_exception()(refusal(node, "skip_k()"))


def splitting_exception() -> type[Exception]:
    from squirrel.framework.exceptions import PyTorchSplittingException

    return PyTorchSplittingException


def share(run: Run, winfo: Any, passes: int) -> bool:
    """Sets the seed that the workers of a DataLoader share; False where there is none.

    torch seeds worker i with base + i; the base is drawn anew for each epoch, but for persistent
    workers, which count their passes instead: all of them begin each epoch together.
    """
    try:
        base = int(winfo.seed) - int(winfo.id)
    except (AttributeError, TypeError, ValueError):
        return False
    run.shared = (base, passes)
    return True


def _skip_k(it: Iterable[Any], start: int, step: int) -> Iterator[Any]:
    return itertools.islice(it, start, None, step) if step > 1 else iter(it)


def skip_k(rank: int, world_size: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A hook that keeps every `world_size`-th item, beginning with item `rank`.

    Args:
        rank: 0 to world_size - 1, this process's place.
        world_size: how many processes share the items; 1 keeps all.
    """
    return functools.partial(_skip_k, start=rank, step=world_size)
