"""The stages behind the methods of Composable, but for those that run callables in parallel."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import types

from squirrel import _native
from squirrel.iterstream.base import Composable, Run, _count
from squirrel.iterstream.on_error import SKIP, Failed, Settler, policy_of
from squirrel.iterstream.trace import callable_name, note_failure, opaque_guards, place_of, placed, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from typing import Any

    from squirrel.iterstream.base import Policy
    from squirrel.iterstream.metrics import MetricsConf
    from squirrel.iterstream.on_error import OnError


class Stage(Composable):
    """A stage over `self.source`."""

    def __repr__(self) -> str:
        return f"{self.source!r} -> {self._call}"

    def _functions(self) -> list[Any]:
        return []

    def _upstream(self, run: Run) -> Iterator[Any]:
        self._epoch_of(run)
        source = self.source
        if isinstance(source, Composable):
            return source._start(run)
        return iter(source() if callable(source) else source)

    def _settler(self, policy: OnError, run: Run) -> Settler:
        def note(error: Exception) -> None:
            note_failure(error, self._call, place_of(self, run))

        return Settler(policy, self._call, note)


class CallStage(Stage):
    """A stage that calls the user's callable for each item."""

    _calls_user = True

    def __init__(self, source: Any, callback: Callable[..., Any], kw: dict[str, Any], verb: str, on_error: Policy):
        super().__init__(source)
        if not callable(callback):
            raise TypeError(f"{verb}() needs a callable, not {callback!r}")
        self.callback = callback
        self.kw = kw
        self.verb = verb
        self.on_error = policy_of(on_error)

    @property
    def _call(self) -> str:
        return f"{self.verb}({callable_name(self.callback)})"

    def _functions(self) -> list[Any]:
        return [self.callback]

    def _function(self) -> Callable[[Any], Any]:
        return functools.partial(self.callback, **self.kw) if self.kw else self.callback


class Map(CallStage):
    def __init__(
        self,
        source: Any,
        callback: Callable[..., Any],
        kw: dict[str, Any],
        verb: str = "map",
        on_error: Policy = "raise",
    ) -> None:
        super().__init__(source, callback, kw, verb, on_error)

    def _start(self, run: Run) -> Iterator[Any]:
        items = self._upstream(run)
        if self.on_error is not None:
            attempts = map(self.on_error.attempt(self._function()), items)
            return self._settler(self.on_error, run).settle(attempts)
        items, guarded = opaque_guards(self, self.callback, items, run)
        return guarded(map(self._function(), items))

    def __len__(self) -> int:
        if self.on_error is not None:
            raise TypeError("how many items on_error leaves is not known before they are read")
        return len(self.source)


class Augment(Map):
    """Calls with random numbers that belong to the sample."""

    def __init__(self, source: Any, callback: Callable[..., Any], seed: int, kw: dict[str, Any], on_error: Policy):
        super().__init__(source, callback, kw, "augment", on_error)
        self.seed = _count(seed, "augment: seed") % (1 << 64)

    @property
    def _call(self) -> str:
        return f"augment({callable_name(self.callback)}, {self.seed})"

    def _start(self, run: Run) -> Iterator[Any]:
        if not placed(self):
            raise TypeError(
                f"{self._call}: which sample an item is of is not known behind stages that hold items (shuffle, "
                "mixes and the like): put augment() in front of them, into each stream of a mix"
            )
        items = self._upstream(run)
        call = _Augmented(super()._function(), self.seed, run)
        if self.on_error is not None:
            return self._settler(self.on_error, run).settle(map(self.on_error.attempt(call), items))
        items, guarded = opaque_guards(self, self.callback, items, run)
        return guarded(map(call, items))


class _Augmented:
    """The callable of one pass: counts the results of one sample."""

    __slots__ = ("failed", "function", "repeat", "run", "seed", "seen")

    def __init__(self, function: Callable[..., Any], seed: int, run: Run) -> None:
        self.function = function
        self.seed = seed
        self.run = run
        self.failed: Any = self  # the item, so that it is known when it is tried again
        self.seen: Any = None
        self.repeat = 0

    def __call__(self, item: Any) -> Any:
        from squirrel.access import generator

        native, place = self.run.native, self.run.place()
        if native is None or place is None or place[1] is None:
            raise TypeError(
                "augment() needs to know which sample an item is of: it stands behind native samples that are "
                "counted (`squirrel index` counts others)"
            )
        seen = (id(native), native.delivered)
        if item is not self.failed or seen != self.seen:
            self.repeat = self.repeat + 1 if seen == self.seen else 0
        self.seen = seen
        self.failed = item
        result = self.function(item, generator(self.seed, self.run.epoch or 0, place[0], place[1], self.repeat))
        self.failed = self
        return result


class NumbaMap(Map):
    """Compiles in the process and the pass that runs it."""

    def _function(self) -> Callable[[Any], Any]:
        import numba  # type: ignore[import-untyped,import-not-found,unused-ignore]

        if not isinstance(self.callback, types.FunctionType):  # a class, a partial, a method of C
            return self.callback
        compiled, plain = numba.jit(self.callback), self.callback
        errors = numba.core.errors

        def call(item: Any) -> Any:
            nonlocal compiled
            try:
                return compiled(item)
            except (errors.TypingError, errors.UnsupportedError, errors.LoweringError):
                compiled = plain
                return plain(item)

        return call


class Filter(CallStage):
    def __init__(self, source: Any, predicate: Callable[[Any], Any], on_error: Policy = "raise") -> None:
        if isinstance(predicate, str):
            raise TypeError(
                "a filter expression works on native samples: put it in front of the first "
                "Python callable, or give a callable here"
            )
        super().__init__(source, predicate, {}, "filter", on_error)

    def _start(self, run: Run) -> Iterator[Any]:
        items = self._upstream(run)
        if self.on_error is not None:
            return self._tolerant(items, self.on_error, run)
        items, guarded = opaque_guards(self, self.callback, items, run)
        return guarded(filter(self.callback, items))

    def _tolerant(self, items: Iterator[Any], policy: OnError, run: Run) -> Iterator[Any]:
        attempt, settler = policy.attempt(self.callback), self._settler(policy, run)
        for item in items:
            keep = attempt(item)
            if keep.__class__ is Failed:
                keep = settler.one(keep)
            else:
                settler.in_a_row, settler.good = 0, keep
            if keep and keep is not SKIP:
                yield item


class Flatten(Stage):
    _call = "flatten()"

    def _start(self, run: Run) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._upstream(run))


class Applied(Stage):
    """The user's own iterable over the items."""

    _holds_items = True  # who knows

    def __init__(self, source: Any, f: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        super().__init__(source)
        self.f = f
        self.args = args
        self.kw = kw

    @property
    def _call(self) -> str:
        return f"to({callable_name(self.f)})"

    def _functions(self) -> list[Any]:
        return [self.f]

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.split import check_hook

        check_hook(self.f, self.source)
        return iter(self.f(self._upstream(run), *self.args, **self.kw))


class Slice(Stage):
    def __init__(self, source: Any, start: int, count: int | None) -> None:
        super().__init__(source)
        self.first = start
        self.count = count

    @property
    def _call(self) -> str:
        return f"skip({self.first})" if self.count is None else f"take({self.count})"

    def _start(self, run: Run) -> Iterator[Any]:
        stop = None if self.count is None else self.first + self.count
        return itertools.islice(self._upstream(run), self.first, stop)

    def __len__(self) -> int:
        left = max(len(self.source) - self.first, 0)
        return left if self.count is None else min(left, self.count)


class Batched(Stage):
    _calls_user = True

    def __init__(
        self,
        source: Any,
        size: int,
        collate: Callable[[list[Any]], Any] | None,
        drop: bool,
        verb: str = "batched",
    ) -> None:
        super().__init__(source)
        if size < 1:
            raise ValueError(f"a batch has at least 1 item, not {size}")
        self.size = size
        self.collate: Any = collate
        self.drop_remainder = drop
        self.positions = verb == "batch"  # Collate names samples by where they are
        self.verb = verb

    @property
    def _call(self) -> str:
        return f"{self.verb}({self.size})"

    def _functions(self) -> list[Any]:
        return [] if self.collate is None else [self.collate]

    def _start(self, run: Run) -> Iterator[Any]:
        lists: Iterator[Any] = _native.Batched(self._upstream(run), self.size, self.drop_remainder)
        if self.collate is None:
            return lists
        if self.positions:
            return map(self.collate, lists, itertools.count(0, self.size))
        lists, guarded = opaque_guards(self, self.collate, lists, run)
        return guarded(map(self.collate, lists))


class Sliding(Stage):
    _holds_items = True

    def __init__(
        self,
        source: Any,
        window_size: int,
        deepcopy: bool,
        stride: int,
        drop_last_if_not_full: bool,
        min_window_size: int,
        fill_nan_on_partial: bool,
    ) -> None:
        super().__init__(source)
        if not window_size > 1:
            raise ValueError(f"window_size must be at least 2, not {window_size}")
        if not 1 <= min_window_size < window_size:
            raise ValueError(f"min_window_size must be at least 1 and below window_size, not {min_window_size}")
        if not 1 <= stride <= window_size:
            raise ValueError(f"stride must be 1 to window_size ({window_size}), not {stride}")
        self.window_size = window_size
        self.deepcopy = deepcopy
        self.stride = stride
        self.drop_last_if_not_full = drop_last_if_not_full
        self.min_window_size = min_window_size
        self.fill_nan_on_partial = fill_nan_on_partial

    @property
    def _call(self) -> str:
        return f"sliding({self.window_size})"

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.iterators import sliding_

        return sliding_(
            self._upstream(run),
            self.window_size,
            self.deepcopy,
            self.stride,
            self.drop_last_if_not_full,
            self.min_window_size,
            self.fill_nan_on_partial,
        )


class ZipIndex(Stage):
    _call = "zip_index()"

    def __init__(self, source: Any, pad_length: int | None) -> None:
        super().__init__(source)
        self.pad_length = pad_length

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.iterators import zip_index_

        return zip_index_(self._upstream(run), self.pad_length)


class Monitor(Stage):
    _calls_user = True

    def __init__(
        self,
        source: Any,
        callback: Callable[..., Any],
        prefix: str | None,
        metrics_conf: MetricsConf | type[MetricsConf],
        window_size: int,
        kw: dict[str, Any],
    ) -> None:
        super().__init__(source)
        if window_size < 1:
            raise ValueError(f"window_size must be at least 1, not {window_size}")
        self.callback = callback
        self.prefix = prefix
        self.metrics_conf = metrics_conf
        self.window_size = window_size
        self.kw = kw

    @property
    def _call(self) -> str:
        return f"monitor({callable_name(self.callback)})"

    def _functions(self) -> list[Any]:
        return [self.callback]

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.iterators import monitor_

        items, guarded = opaque_guards(self, self.callback, self._upstream(run), run)
        monitored = monitor_(
            items, self.callback, self.prefix, self.metrics_conf, window_size=self.window_size, **self.kw
        )
        return guarded(monitored)


class Shuffle(Stage):
    _holds_items = True

    def __init__(self, source: Any, size: int, initial: int, rng: random.Random | None, seed: Any) -> None:
        super().__init__(source)
        self.size = size
        self.initial = initial
        self.rng = rng
        self.seed = seed

    @property
    def _call(self) -> str:
        return f"shuffle({self.size})"

    def _unseeded(self) -> str | None:
        if self.seed is not None:
            return None
        if self.rng is None:
            return "pass"
        return None if hasattr(self.rng, "getstate") and not hasattr(self.rng, "__file__") else "process"

    def _start(self, run: Run) -> Iterator[Any]:
        from squirrel.iterstream.iterators import shuffle_

        seed, epoch = self.seed, self._epoch_of(run)
        if seed is None and self.rng is None:
            seed = run.shared_seed()
        elif seed is not None and epoch > 0:
            seed = repr((seed, epoch))
        items = self._upstream(run)
        if self.rng is not None or run.root is None:
            return shuffle_(items, self.size, self.initial, self.rng, seed)
        from squirrel.iterstream.resume import Buffer

        return Buffer(self, items, seed, run).start()


class Loop(Stage):
    def __init__(self, source: Any, n: int | None) -> None:
        super().__init__(source)
        self.n = None if n is None else _count(n, "loop")

    @property
    def _call(self) -> str:
        return f"loop({'' if self.n is None else self.n})"

    def _start(self, run: Run) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._passes(run))

    def _passes(self, run: Run) -> Iterator[Iterator[Any]]:
        """Each pass has a run and an epoch of its own; it ends before the next one begins."""
        first = self._epoch_of(run) * (self.n or 1)
        behind = run.following * self.n if run.following and self.n else False
        for epoch in itertools.count(first) if self.n is None else range(first, first + self.n):
            inner = Run(epoch, run.shared)
            inner.following = behind if self.n and epoch == first + self.n - 1 else epoch + 1
            stage = Flatten(_copy_for_a_pass(self.source, once=self.n == 1))
            items = stage._upstream(inner)
            run.native = inner.native
            run.closers.append(inner.close)
            if self.n is None:
                items = _not_empty(items)
            yield items
            if inner.close in run.closers:
                run.closers.remove(inner.close)
            inner.close()

    def __len__(self) -> int:
        if self.n is None:
            raise TypeError("loop() without a number has no end")
        return self.n * len(self.source)


def _not_empty(items: Iterator[Any]) -> Iterator[Any]:
    first = list(itertools.islice(items, 1))
    if not first:
        raise ValueError("loop() without a number over an empty stream would run for ever: give loop(n)")
    return itertools.chain(first, items)


def _copy_for_a_pass(source: Any, once: bool) -> Any:
    """The stages with their callables, copied; random numbers, executors and data are shared, but for items
    in lists that could be changed in place: each pass has copies of its own.

    A callable that can't be copied is shared, too. An iterator as the source is copied where that
    goes, since it would be at its end in the second pass.
    """
    memo: dict[int, Any] = {}
    iterators: list[Any] = []
    for node in walk(source):
        shared = [value for name, value in vars(node).items() if name in _SHARED]
        for inner in node._sources():
            if not isinstance(inner, Composable):
                one_shot = hasattr(inner, "__next__")
                (iterators if one_shot else shared).append(inner)
        memo.update((id(value), _Items.of(value)) for value in shared)
    if once and iterators:
        return source
    try:
        return copy.deepcopy(source, memo)
    except Exception as error:
        if iterators:
            raise TypeError(
                f"loop() can't start {type(iterators[0]).__name__!r} anew for a second pass: give the source as a "
                "list, or as a callable that makes a new generator for each pass: "
                "IterableSource(lambda: generate())"
            ) from error
        return source


class _Items:
    """The items of a list, copied as they are asked for, so that a pass can change them in place."""

    __slots__ = ("items",)

    def __init__(self, items: Any) -> None:
        self.items = items

    @classmethod
    def of(cls, value: Any) -> Any:
        """`value` itself where its items can't be changed."""
        if type(value) not in (list, tuple, collections.deque) or set(map(type, value)) <= _FIXED:
            return value
        return cls(value)

    def __iter__(self) -> Iterator[Any]:
        return map(_copied, self.items)

    def __len__(self) -> int:
        return len(self.items)


def _copied(item: Any) -> Any:
    try:
        return copy.deepcopy(item)
    except Exception:  # a file, a lock: shared, as what can't be copied is elsewhere
        return item


_FIXED = {int, float, complex, bool, str, bytes, type(None)}

# Attributes whose values aren't copied for a pass: what draws goes on, pools are shared.
_SHARED = frozenset({"rng", "_draws", "pool", "executor"})


# --- what stages call ---


def select(sample: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: sample[name] for name in names if name in sample}


def drop(sample: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name not in names}


def rename(sample: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    renamed = {names.get(name, name): value for name, value in sample.items()}
    if len(renamed) < len(sample):
        sources: dict[str, str] = {}
        for name in sample:
            first = sources.setdefault(out := names.get(name, name), name)
            if first != name:
                raise TypeError(f'two fields would be named "{out}": "{first}" and "{name}"; '
                                "rename() or drop() one of them")
    return renamed
