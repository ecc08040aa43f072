"""What every store offers: items are set and got under keys."""

import typing as t
from abc import ABC, abstractmethod

__all__ = ["AbstractStore"]


class AbstractStore(ABC):
    """Items under keys.

    What an item is, is the implementation's affair: a sample, a batch, or a shard of samples.
    """

    @abstractmethod
    def set(self, key: t.Any, value: t.Any, **kwargs: t.Any) -> None:
        """Keeps an item under a key."""

    @abstractmethod
    def get(self, key: t.Any, **kwargs: t.Any) -> t.Iterable[t.Any]:
        """The item or items under a key."""

    @abstractmethod
    def keys(self, **kwargs: t.Any) -> t.Iterable[t.Any]:
        """The keys of all items."""
