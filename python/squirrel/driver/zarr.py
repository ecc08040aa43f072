"""Samples out of a zarr group."""

from __future__ import annotations

import typing as t

from squirrel.driver.driver import MapDriver

if t.TYPE_CHECKING:
    from zarr import Group

    from squirrel.iterstream.base import Composable
    from squirrel.zarr.group import SquirrelGroup

__all__ = ["ZarrDriver"]


def fetch(group: Group, key: str) -> t.Any:
    """What the group holds under the key: an array, or a group."""
    return group[key]


class ZarrDriver(MapDriver):
    """The members of a zarr group: a key for each, and a function that makes a sample of it.

    Args:
        url: of the group.
        **kwargs: of :class:`squirrel.driver.Driver`.
    """

    name = "zarr"

    def __init__(self, url: str, **kwargs: t.Any) -> None:
        super().__init__(**kwargs)
        self.url = url
        self._root_group: SquirrelGroup | None = None
        self._root_group_args: tuple[str, dict[str, t.Any]] | None = None

    def get_iter(
        self,
        fetcher_func: t.Callable[[Group, str], t.Any] = fetch,
        storage_options: t.Optional[t.Dict[str, t.Any]] = None,
        flatten: bool = True,
        **kwargs: t.Any,
    ) -> Composable:
        """A stream of samples.

        Args:
            fetcher_func: makes the sample of ``(group, key)``.
            storage_options: of fsspec's file system.
            flatten: the stream is of samples; otherwise of iterators of one sample each.
            **kwargs: see :meth:`MapDriver.get_iter`.
        """
        get_kwargs = {"fetcher_func": fetcher_func, **(storage_options or {})}
        return super().get_iter(get_kwargs=get_kwargs, flatten=flatten, **kwargs)

    def get_root_group(self, mode: str = "r", **storage_options: t.Any) -> SquirrelGroup:
        """The group.

        Args:
            mode: "r" for reading only, "w" or "a".
            **storage_options: of fsspec's file system.
        """
        wanted = (mode, storage_options)
        if self._root_group is None or self._root_group_args != wanted:
            from squirrel.zarr.group import get_group

            self._root_group = get_group(self.url, mode=mode, **storage_options)
            self._root_group_args = wanted
        return self._root_group

    def keys(self) -> t.Iterator[str]:
        """The names of the group's members, sorted."""
        return self.get_root_group().keys()

    def get(
        self, key: str, fetcher_func: t.Callable[[Group, str], t.Any], **storage_options: t.Any
    ) -> t.Iterator[t.Any]:
        """An iterator of one sample: what `fetcher_func` makes of the key."""
        group = self.get_root_group(**storage_options)
        yield fetcher_func(group, key)
