"""Describes the public API of the package `squirrel` of this environment, as JSON on standard output.

    python tests/compat/describe.py > tests/compat/api.json     # in squirrel-core's environment

For each module: its public names; of callables the parameters, of classes the members and bases.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from typing import Any

# A module of a folder without __init__.py. (Its neighbour msgpack_caching is a script: importing runs it.)
UNLISTED = ("squirrel.benchmark.quantify_randomness",)
SPECIAL = ("__init__", "__iter__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__call__",
           "__enter__", "__exit__")


def modules() -> list[str]:
    """All modules of the package, imported or not."""
    import squirrel

    found = pkgutil.walk_packages(squirrel.__path__, "squirrel.", lambda name: None)
    return ["squirrel", *sorted({*(m.name for m in found), *UNLISTED})]


def describe_module(name: str) -> dict[str, Any] | str:
    """{public name: description}, or why the module can't be imported."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    listed = getattr(module, "__all__", ())
    names = {n for n in vars(module) if not n.startswith("_")} | set(listed)
    described = {}
    for public in sorted(names):
        value = getattr(module, public)
        owner = getattr(value, "__module__", None)
        if inspect.ismodule(value) or public in ("annotations", "TYPE_CHECKING"):
            continue
        if public in listed or owner == name or (owner is None and not callable(value)) or is_constant(value):
            if public in listed or not is_foreign(value):
                described[public] = describe(value) if owner in (name, None) else {"kind": "elsewhere"}
        elif name == "squirrel.constants" and typing.get_origin(value) and getattr(typing, public, None) is not value:
            described[public] = {"kind": "alias"}
    return described


def is_constant(value: object) -> bool:
    return isinstance(value, (str, int, float, bytes)) and not isinstance(value, enum.Enum)


def is_foreign(value: object) -> bool:
    """Typing's own names, that a module imported, are no API of its own."""
    return isinstance(value, (typing.TypeVar, types.GenericAlias)) or getattr(value, "__module__", "") == "typing"


def describe(value: Any) -> dict[str, Any]:
    if inspect.isclass(value):
        return describe_class(value)
    if callable(value):
        return {"kind": "function", "parameters": parameters(value)}
    return {"kind": "value", "value": repr(value) if is_constant(value) else None}


def describe_class(cls: type, inherited: bool = False) -> dict[str, Any]:
    """Members of public bases are described there, unless `inherited`."""
    ours = [c.__name__ for c in cls.__mro__[1:] if c.__module__.startswith("squirrel")]
    bases = [name for name in ours if not name.startswith("_")]
    members: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        own = owner is cls or inherited or owner.__name__.startswith("_")
        if not owner.__module__.startswith("squirrel") or not own:
            continue
        for name, member in vars(owner).items():
            if not name.startswith("_") or name in SPECIAL:
                members[name] = describe_member(member)
    if issubclass(cls, enum.Enum):
        members.update({name: {"kind": "value", "value": repr(m.value)} for name, m in cls.__members__.items()})
    return {"kind": "class", "bases": bases, "members": members, "parameters": parameters(cls)}


def describe_member(member: Any) -> dict[str, Any]:
    for wrapper in ("staticmethod", "classmethod"):
        if isinstance(member, getattr(__import__("builtins"), wrapper)):
            return {"kind": wrapper, "parameters": parameters(member.__func__)}
    if inspect.isfunction(member):
        return {"kind": "method", "parameters": parameters(member)}
    if isinstance(member, property) or inspect.isdatadescriptor(member):
        return {"kind": "property"}
    return {"kind": "value", "value": repr(member) if is_constant(member) else None}


def parameters(function: Any) -> list[list[Any]] | None:
    """[name, kind, default] of each; None where there is no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [[p.name, p.kind.name, default(p.default)] for p in signature.parameters.values()]


def default(value: Any) -> str | None:
    """A text that is the same in both packages; None: there is no default."""
    if value is inspect.Parameter.empty:
        return None
    if inspect.isclass(value) or inspect.isfunction(value):
        return str(value.__qualname__)
    text = repr(value)
    return type(value).__name__ if " at 0x" in text or text.startswith("<") else text


if __name__ == "__main__":
    api = {name: describe_module(name) for name in sys.argv[1:] or modules()}
    lines = []
    for name, described in api.items():
        inner = described if isinstance(described, str) else None
        names = [f" {json.dumps(n)}: {json.dumps(d, sort_keys=True)}" for n, d in ({} if inner else described).items()]
        lines.append(f"{json.dumps(name)}: " + (json.dumps(inner) if inner else "{\n" + ",\n".join(names) + "}"))
    print("{\n" + ",\n".join(lines) + "\n}")
