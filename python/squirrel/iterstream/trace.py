"""Which stage an exception came from: what the messages of failing callbacks say.

Between two stages stand only built-in iterators, which leave no frame in a traceback. So the
stage is found from the frames that are there: the deepest one that runs the code of a stage's
callable. Callables without Python code (``int``, a class of an extension module) leave none;
such a stage gets a native Guard of its own.
"""

from __future__ import annotations

import functools

from squirrel import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType
    from typing import Any

    from squirrel.iterstream.base import Composable, Run


def callable_name(function: object) -> str:
    """A short name for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


def code_of(function: Any) -> CodeType | None:
    """The code that a call of `function` runs, where it is Python."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)
    return code


def walk(stream: Any) -> Iterator[Composable]:
    """A stream and all streams below it, from the last stage to the sources."""
    from squirrel.iterstream.base import Composable

    pending, seen = [stream], set()
    while pending:
        node = pending.pop()
        if isinstance(node, Composable) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += reversed(node._sources())


def note_failure(error: BaseException, stage: str, place: tuple[str, int | None] | None) -> None:
    """Adds where to an exception, once: the innermost stage knows best."""
    if not isinstance(error, Exception) or hasattr(error, "__squirrel_stage__"):
        return
    text = f"in stage {stage}"
    if place is not None:
        text += f", at {'a sample' if place[1] is None else f'sample {place[1]}'} of shard {place[0]}"
    try:
        error.__squirrel_stage__ = stage  # type: ignore[attr-defined]
        error.add_note(text)
    except (AttributeError, TypeError):  # an exception class that takes no attributes
        pass


def opaque_guards(
    stage: Composable, function: object, items: Iterator[Any], run: Run
) -> tuple[Iterator[Any], Callable[[Iterator[Any]], Iterator[Any]]]:
    """For a stage whose callable leaves no frame: its items, and what to put around it.

    The Guard below marks what comes from above the stage, so that the one around it knows what is
    the callable's. Both are left out for callables that are Python code.
    """
    if code_of(function) is not None:
        return items, _as_it_is
    around = functools.partial(_guard_own, stage, run)
    return _native.Guard(items, functools.partial(_mark, stage, run)), around


def _as_it_is(iterator: Iterator[Any]) -> Iterator[Any]:
    return iterator


def _guard_own(stage: Composable, run: Run, iterator: Iterator[Any]) -> Iterator[Any]:
    return _native.Guard(iterator, functools.partial(_note_own, stage, run))


def _mark(stage: Composable, run: Run, error: BaseException) -> BaseException | None:
    replaced = _note(stage, run, error)
    if replaced is None:
        try:
            error.__squirrel_above__ = True  # type: ignore[attr-defined]
        except AttributeError:
            pass
    return replaced


def _note_own(stage: Composable, run: Run, error: BaseException) -> BaseException | None:
    if hasattr(error, "__squirrel_above__"):
        return None
    if isinstance(error, StopIteration):
        return stopped(stage, error)
    note_failure(error, stage._call, place_of(stage, run))
    return None


def _note(stage: Composable, run: Run, error: BaseException) -> BaseException | None:
    """Names the stage; gives the exception that a StopIteration of a callback becomes."""
    if hasattr(error, "__squirrel_stage__"):
        return None
    found = _find(stage, error)
    if isinstance(error, StopIteration):
        return stopped(found, error) if found is not None and found._calls_user else None
    if found is not None:
        note_failure(error, found._call, place_of(found, run))
    return None


def stopped(stage: Composable, error: StopIteration) -> RuntimeError:
    """What a callable's StopIteration becomes: as it is it would end the stream silently."""
    replacement = RuntimeError(f"the callable of stage {stage._call} raised StopIteration")
    replacement.__cause__ = error
    return replacement


def _find(top: Composable, error: BaseException) -> Composable | None:
    """The stage whose code runs in the deepest frame of the exception's traceback."""
    stages: dict[CodeType, Composable] = {}
    for node in walk(top):
        for function in node._functions():
            for code in _codes(code_of(function)):
                stages.setdefault(code, node)
    found, traceback = None, error.__traceback__
    while traceback is not None:
        found = stages.get(traceback.tb_frame.f_code, found)
        traceback = traceback.tb_next
    return found


def _codes(code: CodeType | None) -> Iterator[CodeType]:
    """A function's code and that of the functions and generators inside it."""
    if code is not None:
        yield code
        for constant in code.co_consts:
            if type(constant) is type(code):
                yield from _codes(constant)


def placed(stage: Composable) -> bool:
    """Whether the item in hand is the last one read: no stage below keeps items back."""
    from squirrel.iterstream.base import Composable

    pending: list[Any] = [stage]
    while pending:
        node = pending.pop()
        if not isinstance(node, Composable):
            continue
        if node is not stage and node._holds_items:
            return False
        if not node._sets_place:
            pending += node._sources()
    return True


def place_of(stage: Composable, run: Run) -> tuple[str, int | None] | None:
    """Shard and sample that a stage is at, where that is known."""
    return run.place() if placed(stage) else None
