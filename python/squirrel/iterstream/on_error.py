"""What a stage does when the user's callable fails: raise, skip, retry, substitute or ask."""

from __future__ import annotations

import copy
import enum
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final, Literal

__all__ = ["SKIP", "SUBSTITUTE", "OnError"]

_POLICIES = ("raise", "skip", "retry", "substitute")
_LOGGED = 5


class _Skip(enum.Enum):
    SKIP = "SKIP"

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = _Skip.SKIP
"""What an on_error callable returns to leave the item out."""


class _Substitute(enum.Enum):
    SUBSTITUTE = "SUBSTITUTE"

    def __repr__(self) -> str:
        return "SUBSTITUTE"


SUBSTITUTE: Final = _Substitute.SUBSTITUTE
"""What an on_error callable of a native stream returns to have the last good sample in its place."""

_NO_VALUE: Final = _Skip  # no user passes that as a value


class OnError:
    """A policy with its budgets, for the argument `on_error` of map(), filter(), async_map() and others.

    Args:
        policy: "raise", "skip" (the item is left out), "retry" (the callable is called again, and
            when it still fails the policy is `then`), "substitute" (`value` comes instead), or a
            callable: ``policy(error, item)`` returns what comes instead or :data:`SKIP`, or raises.
        consecutive: so many failed items in a row are one too many: the last error is raised.
        total: so many failed items in one pass are one too many; None: no such limit.
        retries: calls after the first one, for "retry".
        delay: seconds before the first retry; doubled for each further one.
        then: what follows when the retries are used up: "raise", "skip", "substitute" or a callable.
        value: what "substitute" puts in; without it a copy of the last good result.
    """

    def __init__(
        self,
        policy: str | Callable[[Exception, Any], Any],
        *,
        consecutive: int = 100,
        total: int | None = 10_000,
        retries: int = 3,
        delay: float = 0.0,
        then: str | Callable[[Exception, Any], Any] = "raise",
        value: Any = _NO_VALUE,
    ) -> None:
        for chosen in (policy, then):
            if not callable(chosen) and chosen not in _POLICIES:
                raise ValueError(
                    f"on_error must be one of {', '.join(map(repr, _POLICIES))} or a callable, not {chosen!r}"
                )
        if then == "retry":
            raise ValueError('then="retry" has no end: choose "raise", "skip", "substitute" or a callable')
        for name, number, least in (("consecutive", consecutive, 1), ("retries", retries, 0), ("delay", delay, 0)):
            if number < least:
                raise ValueError(f"{name} must be at least {least}, not {number}")
        if total is not None and total < 1:
            raise ValueError(f"total must be at least 1 or None, not {total}")
        self.policy = policy
        self.consecutive = consecutive
        self.total = total
        self.retries = retries if policy == "retry" else 0
        self.delay = delay
        self.last = then if policy == "retry" else policy
        self.value = value

    def attempt(self, function: Callable[[Any], Any]) -> Attempt:
        """The callable that gives a :class:`Failed` instead of raising."""
        return Attempt(function, self.retries, self.delay)


class NativeAsk:
    """How a native stream asks a callable about a bad sample: 0 raises, 1 leaves it out, 2 replaces it."""

    __slots__ = ("policy",)

    def __init__(self, policy: Callable[[Exception, Any], Any]) -> None:
        self.policy = policy

    def __call__(self, error: Exception, bad: dict[str, Any]) -> int:
        answer = self.policy(error, bad)
        if answer is SKIP:
            return 1
        if answer is SUBSTITUTE:
            return 2
        raise TypeError(
            f"the on_error callable of a native stream returned {type(answer).__name__}: it returns SKIP or "
            "SUBSTITUTE (of squirrel.iterstream), or raises"
        )


def policy_of(on_error: str | Callable[[Exception, Any], Any] | OnError) -> OnError | None:
    """None for "raise", which needs no policy."""
    if isinstance(on_error, OnError):
        return on_error
    return None if on_error == "raise" else OnError(on_error)


class Failed:
    """Stands for an item whose callable failed."""

    __slots__ = ("error", "item")

    def __init__(self, error: Exception, item: Any) -> None:
        self.error = error
        self.item = item


class Attempt:
    """Calls and calls again; pickles when the callable does."""

    __slots__ = ("delay", "function", "retries")

    def __init__(self, function: Callable[[Any], Any], retries: int, delay: float) -> None:
        self.function = function
        self.retries = retries
        self.delay = delay

    def __call__(self, item: Any) -> Any:
        try:
            return self.function(item)
        except Exception as error:
            return self._again(error, item)

    def _again(self, error: Exception, item: Any) -> Any:
        for n in range(self.retries):
            if self.delay:
                time.sleep(self.delay * 2**n)
            try:
                return self.function(item)
            except Exception as latest:
                error = latest
        return Failed(error, item)


class Settler:
    """Applies a policy to the failures of one pass, in the order of the items."""

    def __init__(self, policy: OnError, stage: str, note: Callable[[Exception], object]) -> None:
        self.policy = policy
        self.stage = stage
        self.note = note
        self.in_a_row = 0
        self.failed = 0
        self.good: Any = _NO_VALUE

    def settle(self, results: Iterable[Any]) -> Iterator[Any]:
        """The results, with failures left out, replaced or raised."""
        for result in results:
            if result.__class__ is Failed:
                result = self.one(result)
                if result is SKIP:
                    continue
            else:
                self.in_a_row = 0
                self.good = result
            yield result

    def one(self, failed: Failed) -> Any:
        """What comes instead of one failed item; raises when policy or budget say so."""
        error, policy = failed.error, self.policy
        self.note(error)
        self.in_a_row += 1
        self.failed += 1
        if policy.last == "raise":
            raise error
        self._spend(error)
        if self.failed <= _LOGGED:
            from logging import getLogger

            more = "; further ones are not logged" if self.failed == _LOGGED else ""
            where = "; ".join(getattr(error, "__notes__", ())) or f"in stage {self.stage}"
            getLogger("squirrel").warning("%s: %s (%s): on_error=%r%s", type(error).__name__, error, where,
                                          policy.last, more)
        if policy.last == "skip":
            return SKIP
        if policy.last == "substitute":
            return self._substitute(error)
        assert not isinstance(policy.last, str)
        return policy.last(error, failed.item)

    def _spend(self, error: Exception) -> None:
        policy = self.policy
        if self.in_a_row >= policy.consecutive:
            spent = f"{self.in_a_row} items in a row failed (consecutive={policy.consecutive})"
        elif policy.total is not None and self.failed >= policy.total:
            spent = f"{self.failed} items failed (total={policy.total})"
        else:
            return
        error.add_note(f"the error budget of stage {self.stage} is spent: {spent}; "
                       "repair the cause, or give on_error=OnError(..., consecutive=, total=)")
        raise error

    def _substitute(self, error: Exception) -> Any:
        if self.policy.value is not _NO_VALUE:
            return self.policy.value
        if self.good is _NO_VALUE:
            error.add_note('on_error="substitute" has no good result yet to put in: give OnError("substitute", value=)')
            raise error
        return copy.deepcopy(self.good)
