"""Locks for arrays that threads share."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

from squirrel.zarr._version import ZARR_2

if ZARR_2:
    from zarr.sync import ThreadSynchronizer
else:

    class ThreadSynchronizer:  # type: ignore[no-redef]
        """zarr 3 locks for itself; this is what zarr 2 had."""

        def __init__(self) -> None:
            self.mutex = Lock()
            self.locks: dict[str, Lock] = defaultdict(Lock)


__all__ = ["SquirrelThreadSynchronizer"]


class SquirrelThreadSynchronizer(ThreadSynchronizer):  # type: ignore[misc]
    """zarr's locks, one a chunk, of which those that nobody holds are forgotten when there are many."""

    def __init__(self) -> None:
        super().__init__()
        self.max_len = 1000

    def __getitem__(self, item: str) -> Lock:
        """The lock of a chunk."""
        with self.mutex:
            if len(self.locks) >= self.max_len:
                self._remove_unlocked_locks()
            return self.locks[item]  # type: ignore[no-any-return]

    def _remove_unlocked_locks(self) -> None:
        for item in [item for item, lock in self.locks.items() if not lock.locked()]:
            del self.locks[item]
