"""Drivers: what a catalog's source names, and what opens it."""

from __future__ import annotations

from squirrel.stream import Stream, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Driver", "IterDriver", "NativeDriver", "driver_class"]


class Driver:
    """Base class: something that a source in a catalog can name.

    Attributes:
        name: what ``driver_name`` in a catalog says.
    """

    name: str = ""

    def __init__(self, catalog: object = None, **kwargs: object) -> None:
        self._catalog = catalog


class IterDriver(Driver):
    """A driver whose samples can be iterated."""

    def get_iter(self, **kwargs: Any) -> Any:
        """A stream of samples."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to iterate: define get_iter")


class NativeDriver(IterDriver):
    """A driver of the C library: opens files of one format.

    Args:
        url: file or directory.
        **options: of the driver and its format, see :func:`squirrel.drivers`.
    """

    def __init__(self, url: str, catalog: object = None, **options: Any) -> None:
        super().__init__(catalog=catalog)
        self.url = url
        self.options = options

    def get_iter(self, **kwargs: Any) -> Stream:
        """The samples as a :class:`squirrel.Stream`; arguments add to the options given before.

        Raises:
            NotFoundError: nothing is at the URL. FormatError: it is of another format.
        """
        return open(self.url, driver=self.name, **{**self.options, **kwargs})


def driver_class(name: str) -> type[NativeDriver]:
    """The class of a built-in driver by its name, e.g. ``"sqrl"`` or ``"jsonl"``.

    Raises:
        KeyError: there is none of that name; the message lists those there are.
    """
    import squirrel

    names = [str(driver["name"]) for driver in squirrel.drivers()]
    if name not in names:
        raise KeyError(f"there is no driver {name!r}; there are {', '.join(names)}")
    return type(f"{name.capitalize()}Driver", (NativeDriver,), {"name": name, "__module__": __name__})
