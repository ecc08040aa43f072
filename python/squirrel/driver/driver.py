"""What a driver offers: samples one after another and, where it has keys, by key."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from inspect import isclass

from squirrel.iterstream.base import Composable
from squirrel.iterstream.source import IterableSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from squirrel.catalog.catalog import Catalog

__all__ = ["Driver", "IterDriver", "MapDriver"]

_MOST_WORKERS = 32


class Driver(ABC):
    """Base class: what a source in a catalog names, and what opens its data.

    Args:
        catalog: the catalog that the source stands in; an empty one by default.
        **kwargs: accepted and forgotten.

    Attributes:
        name: what ``driver_name`` in a catalog says.
    """

    name: str

    def __init__(self, catalog: Catalog | None = None, **kwargs: Any) -> None:
        if catalog is None:
            from squirrel.catalog import Catalog

            catalog = Catalog()
        self._catalog = catalog


class IterDriver(Driver):
    """A driver whose samples can be iterated."""

    @abstractmethod
    def get_iter(self, **kwargs: Any) -> Composable:
        """A stream of the samples."""


class MapDriver(IterDriver):
    """A driver whose items have keys."""

    @abstractmethod
    def get(self, key: Any, **kwargs: Any) -> Any:
        """The item under a key: a sample, or an iterable of samples (a shard)."""

    @abstractmethod
    def keys(self, **kwargs: Any) -> Iterable[Any]:
        """The keys of all items."""

    def get_iter(
        self,
        keys_iterable: Iterable[Any] | None = None,
        shuffle_key_buffer: int = 1,
        key_hooks: Iterable[Callable[..., Any] | type[Composable] | functools.partial[Any]] | None = None,
        max_workers: int | None = None,
        prefetch_buffer: int = 10,
        shuffle_item_buffer: int = 1,
        flatten: bool = False,
        keys_kwargs: dict[str, Any] | None = None,
        get_kwargs: dict[str, Any] | None = None,
        key_shuffle_kwargs: dict[str, Any] | None = None,
        item_shuffle_kwargs: dict[str, Any] | None = None,
    ) -> Composable:
        """A stream of the items, in the order of their keys. Keys are shuffled and pass the hooks before any is read.

        Args:
            keys_iterable: the keys to get; by default all of :meth:`keys`.
            shuffle_key_buffer: keys are shuffled in a buffer of this size; below 2 they are not.
            key_hooks: what the keys pass, in turn: a subclass of ``Composable`` (``keys.compose(hook)``), a
                callable (``keys.to(hook)``), or a ``functools.partial`` of one of them.
            max_workers: threads that call :meth:`get`; below 2: none, items are got one by one when they are
                asked for. By default as many as `prefetch_buffer`, at most 32.
            prefetch_buffer: items that are got ahead of the one in use, at least 1.
            shuffle_item_buffer: items (samples, with `flatten`) are shuffled in a buffer of this size.
            flatten: each item is an iterable of samples: the stream is one of samples.
            keys_kwargs: arguments of :meth:`keys`.
            get_kwargs: arguments of :meth:`get`.
            key_shuffle_kwargs: arguments of ``shuffle`` for the keys: ``seed``, ``initial``, ``rng``.
            item_shuffle_kwargs: the same for the items.

        With a seed, ``set_epoch(n)`` of the stream gives each epoch an order of its own. Without one, the
        keys come in another order in each pass; in front of `key_hooks`, which may give each worker its part,
        the workers of a PyTorch DataLoader share that order. Ranks can't agree on one: there an unseeded
        shuffle in front of hooks is refused.
        """
        keys: Any = keys_iterable
        if keys is None:  # asked for anew in each pass
            keys = functools.partial(self.keys, **(keys_kwargs or {}))
        stream: Composable = keys if isinstance(keys, Composable) else IterableSource(keys)
        hooks = list(_hook_list(key_hooks))
        if shuffle_key_buffer > 1:
            from squirrel.driver._keys import HookedShuffle, own_hooks

            shuffling = {"size": shuffle_key_buffer, **(key_shuffle_kwargs or {})}
            stream = HookedShuffle(stream, **shuffling) if own_hooks(hooks) else stream.shuffle(**shuffling)
        for hook in hooks:
            stream = _apply(hook, stream)
        stream = self._fetch(stream, max_workers, prefetch_buffer, get_kwargs or {})
        if flatten:
            from squirrel.driver._keys import Shards

            stream = Shards(stream)
        if shuffle_item_buffer > 1:
            stream = stream.shuffle(size=shuffle_item_buffer, **(item_shuffle_kwargs or {}))
        return stream

    def _fetch(self, keys: Composable, max_workers: int | None, ahead: int, get_kwargs: dict[str, Any]) -> Composable:
        if max_workers is not None and max_workers <= 1:
            return keys.map(self.get, **get_kwargs)
        if ahead < 1:
            raise ValueError(f"prefetch_buffer must be at least 1, not {ahead}; max_workers=1 gets nothing ahead")
        workers = min(ahead, _MOST_WORKERS) if max_workers is None else max_workers
        return keys.async_map(self.get, ahead, workers, **get_kwargs)


def _hook_list(hooks: Any) -> Iterable[Any]:
    if hooks is None:
        return ()
    if isclass(hooks) or callable(hooks):
        raise TypeError(f"key_hooks is a list of hooks: write key_hooks=[{getattr(hooks, '__name__', 'hook')}]")
    return hooks  # type: ignore[no-any-return]


def _apply(hook: Any, stream: Composable) -> Composable:
    args, kw = (), {}
    function = hook
    if isinstance(hook, functools.partial):
        function, args, kw = hook.func, hook.args, hook.keywords
    if isclass(function) and issubclass(function, Composable):
        return stream.compose(function, *args, **kw)
    if callable(function):
        return stream.to(function, *args, **kw)
    raise ValueError(f"a key hook is a Composable's class or a callable, or a partial of one; not {hook!r}")
