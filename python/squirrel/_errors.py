"""Exceptions of the library: one class for each stable code, each also a built-in one."""

from __future__ import annotations


class Error(Exception):
    """Base of everything that the library reports.

    Attributes:
        code: stable name, e.g. ``"corrupt"``.
        message: what is wrong and what to do.
        where: the place, outermost first, e.g. ``"train/0.sqrl: block 4"``; may be empty.
        os_errno: errno of the failing system call, or 0.
        retryable: whether the same call may succeed later.
    """

    code = "error"

    def __init__(
        self, message: str = "", *, where: str = "", os_errno: int = 0, retryable: bool = False
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where
        self.os_errno = os_errno
        self.retryable = retryable
        if os_errno and isinstance(self, OSError):
            setattr(self, "errno", os_errno)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.message, self.where, self.os_errno, self.retryable)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def _restore(cls: type[Error], message: str, where: str, os_errno: int, retryable: bool) -> Error:
    return cls(message, where=where, os_errno=os_errno, retryable=retryable)


class ArgumentError(Error, ValueError):
    """An argument or option is wrong."""

    code = "invalid"


class OutOfMemoryError(Error, MemoryError):
    """The system refused memory, or the budget can't hold one item."""

    code = "no_memory"


class StorageError(Error, OSError):
    """The operating system failed a read or write."""

    code = "io"


class NotFoundError(Error, FileNotFoundError):
    """There is no such file, field, source or driver."""

    code = "not_found"


class AccessError(Error, PermissionError):
    """The operating system refuses access."""

    code = "permission"


class ExistsError(Error, FileExistsError):
    """The destination is there already."""

    code = "exists"


class DataError(Error, ValueError):
    """The data are damaged, cut short or of an unknown format."""

    code = "data"


class CorruptError(DataError):
    """The data contradict their format or checksum."""

    code = "corrupt"


class TruncatedError(DataError):
    """The data end before they are complete."""

    code = "truncated"


class FormatError(DataError):
    """The format is not known, or not the one asked for."""

    code = "format"


class LimitError(Error, ValueError):
    """A limit on depth, size, count or ratio is exceeded."""

    code = "limit"


class UnsupportedError(Error, NotImplementedError):
    """Valid, but not built in or refused on purpose."""

    code = "unsupported"


class SampleTypeError(Error, TypeError):
    """Types, shapes or dtypes clash, or can't be stored."""

    code = "type"


class StateError(Error, RuntimeError):
    """Called at the wrong time: closed, forked, finished."""

    code = "state"


class CancelledError(Error):
    """Closed or interrupted while the call ran."""

    code = "cancelled"


class NoSpaceError(Error, OSError):
    """Disk or quota is full."""

    code = "no_space"


class CallbackError(Error):
    """A callback failed."""

    code = "user"


# By the library's code: the extension module looks classes up here.
BY_CODE: tuple[type[Error], ...] = (
    Error,
    ArgumentError,
    OutOfMemoryError,
    StorageError,
    NotFoundError,
    AccessError,
    ExistsError,
    CorruptError,
    TruncatedError,
    FormatError,
    LimitError,
    UnsupportedError,
    SampleTypeError,
    StateError,
    CancelledError,
    NoSpaceError,
    CallbackError,
)
