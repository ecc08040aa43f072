"""Multiplexer: one stream out of several, in turn or at random, again and again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum

from squirrel import _native
from squirrel.iterstream.base import Composable, Run, begin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.random import RandomState

__all__ = ["Multiplexer", "MultiplexingStrategy", "MuxIterator"]


class MultiplexingStrategy(Enum):
    """How the next stream is chosen: in turn, equally likely, or with given probabilities."""

    ROUND_ROBIN = "RoundRobin"
    UNIFORM_WITH_REPLACEMENT = "uniform_with_replacement"
    SAMPLING = "sampling"


@dataclass
class MuxIterator:
    """A pass through one of the streams: which stream, the iterator, how often it began anew."""

    index: int
    it: Iterator[Any]
    reinits: int


class Multiplexer(Composable):
    """One stream out of several.

    The lengths of the streams aren't known, so what can be fixed is the ratio at the output: each
    item is taken from a stream that is drawn for it. A stream that ends begins anew, until each of
    them came to its end once or one of them did `max_reinits` times. In turn (ROUND_ROBIN) none
    begins anew: one that ended is left out.

    Args:
        composables: the streams. In ranks or workers they should be split already.
        mux_strategy: how the next one is chosen.
        sampling_probas: a weight for each stream, for SAMPLING; scaled so that they sum to 1.
        max_reinits: how often one stream begins anew at most.
        seed: of the draws (NumPy's MT19937); each pass continues them. None: from the system.
        proba_threshold: streams whose weight isn't above it are left out.

    Raises:
        ValueError: SAMPLING without a weight for each stream.
        NotImplementedError: the strategy is none of MultiplexingStrategy.
    """

    def __init__(
        self,
        composables: list[Composable],
        mux_strategy: MultiplexingStrategy,
        sampling_probas: list[float] | None = None,
        max_reinits: int | None = None,
        seed: int | None = None,
        proba_threshold: float = 0.001,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=composables)
        if not isinstance(mux_strategy, MultiplexingStrategy):
            raise NotImplementedError(
                f"{mux_strategy!r} is no strategy: choose one of {', '.join(map(str, MultiplexingStrategy))}"
            )
        self.mux_strategy = mux_strategy
        self.composables = list(composables)
        self.sampling_probas: list[float] | None = None
        if mux_strategy is MultiplexingStrategy.SAMPLING:
            self._choose(sampling_probas, proba_threshold)
        self.seed = seed
        self.max_reinits = sys.maxsize if max_reinits is None else max_reinits
        self._draws = None if mux_strategy is MultiplexingStrategy.ROUND_ROBIN else _twister(seed)
        self._reinits: list[int] = []
        self._samples = [0] * len(self.composables)

    def _choose(self, weights: list[float] | None, threshold: float) -> None:
        """Leaves out what is hardly ever drawn."""
        import numpy as np

        if weights is None or len(weights) != len(self.composables):
            raise ValueError(
                f"SAMPLING needs one weight for each of the {len(self.composables)} streams in sampling_probas, "
                f"not {weights!r}"
            )
        kept = [i for i, weight in enumerate(weights) if weight > threshold]
        chosen = np.array([weights[i] for i in kept], np.float64)
        self.composables = [self.composables[i] for i in kept]
        self.sampling_probas = (chosen / chosen.sum()).tolist()

    @property
    def rng(self) -> RandomState:
        """The generator in its present state, as a copy."""
        from numpy.random import MT19937, RandomState

        rng = RandomState(MT19937(self.seed))
        if self._draws is not None:
            key, position = self._draws.state()
            rng.set_state(("MT19937", _words(key), position, 0, 0.0))
        return rng

    @property
    def reinit_counts(self) -> list[int]:
        """How often each stream began anew in the present or the last pass."""
        return self._reinits

    @property
    def num_samples(self) -> list[int]:
        """How many items each stream gave, in all passes."""
        return self._samples

    @property
    def _call(self) -> str:
        return f"Multiplexer({self.mux_strategy.name})"

    def _sources(self) -> list[Any]:
        return list(self.composables)

    def _functions(self) -> list[Any]:
        return []

    def _unseeded(self) -> str | None:
        return "rank" if self._draws is not None and self.seed is None else None

    _holds_items = True

    def _start(self, run: Run) -> Iterator[Any]:
        epoch = self._epoch_of(run)
        return self._in_turn(epoch) if self._draws is None else self._at_random(self._draws, epoch)

    def _in_turn(self, epoch: int) -> Iterator[Any]:
        running = [(i, begin(stream, epoch)) for i, stream in enumerate(self.composables)]
        samples = self._samples
        while running:
            for i, items in running:
                try:
                    item = next(items)
                except StopIteration:
                    break  # the next turn begins with the first one that is left
                samples[i] += 1
                yield item
            else:
                continue
            running = [(k, items) for k, items in running if k != i]

    def _at_random(self, draws: _native.MersenneTwister, epoch: int) -> Iterator[Any]:
        streams, samples = self.composables, self._samples
        if not streams:
            return
        running = [begin(stream, epoch) for stream in streams]
        reinits = [0] * len(streams)
        for i in _native.Choices(draws, len(streams), _cumulative(self.sampling_probas)):
            try:
                item = next(running[i])
            except StopIteration:
                reinits[i] += 1
                self._reinits = list(reinits)
                running[i] = begin(streams[i], epoch)
                if reinits[i] == self.max_reinits or all(reinits):
                    return
                continue
            samples[i] += 1
            yield item


def _twister(seed: int | None) -> _native.MersenneTwister:
    """The state that NumPy gives MT19937 for a seed."""
    from numpy.random import MT19937

    state: Any = MT19937(seed).state["state"]
    return _native.MersenneTwister(state["key"].astype("uint32").tobytes(), int(state["pos"]))


def _words(key: bytes) -> Any:
    import numpy as np

    return np.frombuffer(key, np.uint32)


def _cumulative(probabilities: list[float] | None) -> list[float] | None:
    """As RandomState.choice sums them."""
    if probabilities is None:
        return None
    import numpy as np

    sums = np.array(probabilities, np.float64).cumsum()
    return (sums / sums[-1]).tolist()  # type: ignore[no-any-return]
