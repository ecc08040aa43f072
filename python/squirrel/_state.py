"""States of streams: finding them in what a program saved, in any nesting."""

from __future__ import annotations



from squirrel import _errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["find", "loads", "texts"]

_MAX_DEPTH = 100


def loads(text: str) -> Any:
    """A state's text as a dict."""
    import json

    return json.loads(text)


def find(saved: Any, key: str, without: str | None = None, depth: int = 0) -> list[dict[str, Any]]:
    """All dicts with this key in a nesting of dicts, lists and tuples, and JSON texts of them.

    Args:
        saved: what a program saved.
        key: of the dicts; what lies within one of them is not looked through.
        without: what lies in a dict with this key is not looked through either.
        depth: how deep `saved` lies.

    Raises:
        StateError: the nesting is deeper than any checkpoint's.
    """
    if depth > _MAX_DEPTH:
        raise _errors.StateError(f"a state nested more than {_MAX_DEPTH} deep: give what state_dict() gave")
    if isinstance(saved, (str, bytes)):
        if key not in (saved if isinstance(saved, str) else saved.decode("utf-8", "replace")):
            return []
        try:
            saved = loads(saved)  # type: ignore[arg-type]
        except ValueError:
            return []
        except RecursionError:
            raise _errors.StateError("a state's text is nested too deeply: give what state_dict() gave") from None
    if isinstance(saved, dict):
        if key in saved:
            return [saved]
        if without is not None and without in saved:
            return []
        saved = list(saved.values())
    if not isinstance(saved, (list, tuple)):
        return []
    return [state for part in saved for state in find(part, key, without, depth + 1)]


def texts(saved: Any) -> tuple[str, ...]:
    """The states of native iterators as JSON texts, at least one."""
    states = find(saved, "squirrel_state")
    if not states:
        raise _errors.StateError(
            f"there is no state of a stream in this {type(saved).__name__}: "
            "give what state_dict() gave, or a list of those"
        )
    import json

    try:
        return tuple(json.dumps(state) for state in states)
    except (RecursionError, TypeError, ValueError) as error:  # ValueError: of an int of too many digits
        raise _errors.StateError(f"the state is damaged: {error}") from None
