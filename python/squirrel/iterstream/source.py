"""Sources of streams that are not files, and of the paths of files."""

from __future__ import annotations

from squirrel.iterstream.base import AsyncContent, Composable, Run, begin
from squirrel.iterstream.trace import callable_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

__all__ = ["FilePathGenerator", "IterableSamplerSource", "IterableSource"]


class IterableSource(Composable):
    """A stream of the items of an iterable, or of what a callable without arguments returns.

    A generator can be passed through once only; a callable that makes one starts anew each epoch.
    """

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]] | None = ()) -> None:
        super().__init__(source=source)

    def _functions(self) -> list[Any]:
        return [self.source] if callable(self.source) else []

    @property
    def _call(self) -> str:
        return repr(self)

    def _start(self, run: Run) -> Iterator[Any]:
        self._epoch_of(run)
        source = self.source
        if isinstance(source, Composable):
            return source._start(run)
        return iter(source() if callable(source) else source)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        source = self.source
        return f"IterableSource({callable_name(source) if callable(source) else type(source).__name__})"


class FilePathGenerator(Composable):
    """The paths of the files (and folders) under a URL that fsspec knows, as URLs.

    Args:
        url: a folder. One that isn't there has no paths.
        nested: whether the files of folders inside come instead of the folders, and so on.
        max_workers: threads that list folders, for `nested`.
        max_keys: no further folder is listed while so many paths are known.
        max_dirs: folders listed at a time.
        **storage_options: for the file system.
    """

    def __init__(
        self,
        url: str,
        nested: bool = False,
        max_workers: int | None = None,
        max_keys: int = 1_000_000,
        max_dirs: int = 10,
        **storage_options: Any,
    ) -> None:
        from squirrel.fsspec.fs import get_protocol  # type: ignore[import-not-found,unused-ignore]

        super().__init__()
        self.url = url
        self.protocol = get_protocol(self.url)
        self.nested = nested
        self.max_workers = max_workers
        self.max_keys = max_keys
        self.max_dirs = max_dirs
        self.storage_options = storage_options

    def _start(self, run: Run) -> Iterator[str]:
        from squirrel.fsspec.fs import get_fs_from_url  # type: ignore[import-not-found,unused-ignore]

        fs: Any = get_fs_from_url(self.url, **self.storage_options)
        paths = sorted(fs.ls(self.url, detail=False)) if fs.exists(self.url) else []
        found = self._walk(fs, paths) if self.nested else iter(paths)
        return (f"{self.protocol}{path}" for path in found)

    def _walk(self, fs: Any, paths: list[str]) -> Iterator[str]:
        """From the last path on; folders are listed in threads meanwhile, their paths come in order."""
        from concurrent.futures import ThreadPoolExecutor

        listings: list[AsyncContent] = []
        with ThreadPoolExecutor(self.max_workers, "squirrel-list") as pool:
            while paths or listings:
                if paths:
                    path = paths.pop()
                    if fs.isdir(path=path):
                        listings.append(AsyncContent(path, fs.ls, pool))
                    else:
                        yield path
                crowded = len(listings) >= self.max_dirs and len(paths) < self.max_keys
                if listings and (crowded or not paths):
                    paths.extend(_names(listings.pop(0).value()))


def _names(listing: list[Any]) -> list[str]:
    """Paths of a listing, with or without details."""
    return [entry["name"] if isinstance(entry, dict) else entry for entry in listing]


class IterableSamplerSource(Composable):
    """Items of several iterables, each taken from one that is drawn, until all are used up.

    Args:
        iterables: they may be streams.
        probs: a probability for each, above 0; they sum to 1 but for rounding. None: equal ones.
        rng: the random numbers to use, from the state they have; each pass continues them.
        seed: what they are seeded with here; None: not seeded.

    Raises:
        ValueError: the probabilities are not one for each, not above 0, or don't sum to 1.
    """

    _holds_items = True

    def __init__(
        self,
        iterables: list[Iterable[Any]],
        probs: list[float] | None = None,
        rng: random.Random | None = None,
        seed: int | None = None,
    ) -> None:
        from squirrel.iterstream.iterators import get_random_range

        super().__init__(source=())
        self._seeded = seed is not None or rng is not None
        self.rng = get_random_range(rng, seed)
        self.iterables = iterables
        if probs is not None:
            if len(probs) != len(iterables):
                raise ValueError(f"{len(iterables)} iterables need as many probabilities, not {len(probs)}")
            if not all(p > 0 for p in probs):
                raise ValueError(f"each probability must be above 0, not {probs}: leave out what is never drawn")
            if abs(sum(probs) - 1) > 1e-6:
                raise ValueError(f"the probabilities sum to {sum(probs)}, not to 1: divide each by the sum")
        self.probs = probs

    def _sources(self) -> list[Any]:
        return list(self.iterables)

    def _functions(self) -> list[Any]:
        return []

    def _unseeded(self) -> str | None:
        return None if self._seeded else "rank"

    def _start(self, run: Run) -> Iterator[Any]:
        return self._draw(self._epoch_of(run))

    def _draw(self, epoch: int) -> Iterator[Any]:
        running = [begin(iterable, epoch) for iterable in self.iterables]
        weights = None if self.probs is None else list(self.probs)
        choices = self.rng.choices
        while running:
            i = choices(range(len(running)), weights=weights)[0]
            try:
                item = next(running[i])
            except StopIteration:
                del running[i]
                if weights is not None:
                    del weights[i]
                    left = sum(weights)
                    weights = [w / left for w in weights]
                continue
            yield item
