"""Sources of streams that are not files."""

from __future__ import annotations

from squirrel.iterstream.base import Composable, Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

__all__ = ["IterableSource"]


class IterableSource(Composable):
    """A stream of the items of an iterable, or of what a callable without arguments returns.

    A generator can be passed through once only; a callable that makes one starts anew each epoch.
    """

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]] | None = ()) -> None:
        super().__init__(source=source)

    def _start(self, run: Run) -> Iterator[Any]:
        source = self.source
        if isinstance(source, Composable):
            return source._start(run)
        return iter(source() if callable(source) else source)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"IterableSource({type(self.source).__name__})"
