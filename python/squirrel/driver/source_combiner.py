"""Several sources of a catalog as one."""

from __future__ import annotations

from squirrel.driver.driver import MapDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from typing import Any

    from squirrel.catalog import Catalog, CatalogKey, Source
    from squirrel.iterstream.base import Composable
    from squirrel.store.store import AbstractStore

    DataFrame = Any

__all__ = ["SourceCombiner"]


class SourceCombiner(MapDriver):
    """Sources of one catalog under names of their own, read one by one, in turn, or at random.

    Args:
        subsets: names to (source, version) in the catalog.
        catalog: the catalog.
        **kwargs: of :class:`Driver`.
    """

    name = "source_combiner"

    def __init__(self, subsets: dict[str, CatalogKey], catalog: Catalog, **kwargs: Any) -> None:
        super().__init__(catalog=catalog, **kwargs)
        self._subsets = subsets

    @property
    def subsets(self) -> list[str]:
        """The names."""
        return list(self._subsets)

    def get_source(self, subset: str) -> Source:
        """The source of a name.

        Raises:
            KeyError: there is no such name.
        """
        if subset not in self._subsets:
            raise KeyError(f"there is no subset {subset!r}; there are {', '.join(map(repr, self._subsets))}")
        identifier, version = self._subsets[subset]
        return self._catalog[identifier][version]

    def _driver(self, subset: str) -> Any:
        source: Any = self.get_source(subset)
        return source.get_driver()

    def get_iter(self, subset: str | None = None, **kwargs: Any) -> Composable:
        """A stream of one source's samples or, by default, of all: one of each in turn, until all have ended.

        Args:
            subset: name of the source.
            **kwargs: of the drivers' ``get_iter``.
        """
        if subset is not None:
            return self._driver(subset).get_iter(**kwargs)  # type: ignore[no-any-return]
        from squirrel.iterstream.source import IterableSource

        return IterableSource([self._driver(name).get_iter(**kwargs) for name in self._subsets]).to(_in_turn)

    def get(self, subset: str, key: Any, **kwargs: Any) -> Iterable[Any]:
        """``get(key)`` of one source's driver."""
        return self._driver(subset).get(key, **kwargs)  # type: ignore[no-any-return]

    def keys(self, subset: str, **kwargs: Any) -> Iterable[Any]:
        """``keys()`` of one source's driver."""
        return self._driver(subset).keys(**kwargs)  # type: ignore[no-any-return]

    def get_df(self, subset: str, **kwargs: Any) -> DataFrame:
        """``get_df()`` of one source's driver."""
        return self._driver(subset).get_df(**kwargs)

    def get_store(self, subset: str) -> AbstractStore:
        """The store of one source's driver."""
        return self._driver(subset).store  # type: ignore[no-any-return]

    def get_iter_sampler(
        self,
        probs: list[float] | None = None,
        rng: random.Random | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> Composable:
        """A stream of samples of sources drawn at random, until all have ended.

        Args:
            probs: the sources' probabilities; by default all the same.
            rng: the random numbers to use.
            seed: of random numbers of its own.
            **kwargs: of the drivers' ``get_iter``.
        """
        from squirrel.iterstream.source import IterableSamplerSource

        streams = [self._driver(name).get_iter(**kwargs) for name in self._subsets]
        return IterableSamplerSource(streams, probs=probs, rng=rng, seed=seed)


def _in_turn(streams: Iterable[Iterable[Any]]) -> Iterator[Any]:
    left = [iter(stream) for stream in streams]
    while left:
        for items in list(left):
            try:
                yield next(items)
            except StopIteration:
                left.remove(items)
