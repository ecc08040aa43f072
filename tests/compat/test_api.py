"""Every public name, parameter and default of squirrel-core 0.20.2 is here, too.

api.json is what describe.py tells of squirrel-core in an environment with all that its modules import.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import describe
import pytest
from conftest import listed_faults

API: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "api.json").read_text())

# Modules that are still to come. The list only shrinks: one that is complete must be taken out.
PENDING: set[str] = set()


@pytest.mark.only("reference")
def test_the_description_is_that_of_squirrel_core() -> None:
    for name, described in API.items():
        found = describe.describe_module(name)
        if not isinstance(found, str):  # a module whose own imports aren't installed
            assert json.loads(json.dumps(found)) == described, name


@pytest.mark.only("ours")
def test_every_listed_fault_has_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [fault for fault in sorted(listed_faults()) if f'"{fault}"' not in tests] == []


@pytest.mark.only("ours")
@pytest.mark.parametrize("name", sorted(API))
def test_module(name: str) -> None:
    wrong = differences(name)
    if wrong and wrong[0].startswith("not installed"):
        pytest.skip(wrong[0])
    if name in PENDING:
        assert wrong, f"{name} is complete: take it out of PENDING"
        pytest.xfail(f"{len(wrong)} differences, the first: {wrong[0]}")
    assert wrong == []


def differences(name: str) -> list[str]:
    """What squirrel-core's module has and ours lacks or has otherwise."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        return [f"not installed: {missing}" if not missing.startswith("squirrel") else f"{name} is missing"]
    found = []
    for public, wanted in API[name].items():
        if not hasattr(module, public):
            found.append(f"{name}.{public} is missing")
        elif wanted["kind"] not in ("elsewhere", "alias"):
            found += compare(f"{name}.{public}", wanted, getattr(module, public))
    return found


def compare(where: str, wanted: dict[str, Any], value: Any) -> list[str]:
    if wanted["kind"] == "class":
        if not inspect.isclass(value):
            return [f"{where} is no class"]
        return compare_class(where, wanted, value)
    if wanted["kind"] == "function":
        if not callable(value):
            return [f"{where} can't be called"]
        return compare_parameters(where, wanted["parameters"], describe.parameters(value))
    given = describe.describe(value).get("value")
    if wanted.get("value") is not None and "version" not in where and not where.endswith("sq_ver"):
        return [] if given == wanted["value"] else [f"{where} is {given}, not {wanted['value']}"]
    return []


def compare_class(where: str, wanted: dict[str, Any], cls: type) -> list[str]:
    ours = describe.describe_class(cls, inherited=True)
    found = [f"{where} is no {base}" for base in wanted["bases"] if base not in ours["bases"]]
    found += compare_parameters(where, wanted["parameters"], ours["parameters"])
    for name, member in wanted["members"].items():
        path = f"{where}.{name}"
        have = ours["members"].get(name)
        if name == "__init__":
            continue  # the class's own parameters
        if have is None:
            if not hasattr(cls, name):
                found.append(f"{path} is missing")
        elif "parameters" in member:
            if "parameters" not in have:
                found.append(f"{path} is a {have['kind']}, not a {member['kind']}")
            else:
                found += compare_parameters(path, without_self(member), without_self(have))
        elif member["kind"] == "value" and member["value"] is not None and "version" not in name:
            if have.get("value") != member["value"]:
                found.append(f"{path} is {have.get('value')}, not {member['value']}")
    return found


def without_self(member: dict[str, Any]) -> list[list[Any]] | None:
    """A static method may have become a class method or an ordinary one, and the reverse."""
    listed = member["parameters"]
    return listed if listed is None or member["kind"] == "staticmethod" else listed[1:]


def compare_parameters(where: str, wanted: list[list[Any]] | None, given: list[list[Any]] | None) -> list[str]:
    """All that could be passed there can be passed here, with the same meaning and defaults."""
    if wanted is None:
        return []
    if given is None:
        return [f"{where} has no signature"]
    found, at = [], 0
    have = {name: (place, kind, default) for place, (name, kind, default) in enumerate(given)}
    for place, (name, kind, default) in enumerate(wanted):
        if kind.startswith("VAR_"):
            if not any(k == kind for _, k, _ in given):
                found.append(f"{where}: {'*' if kind == 'VAR_POSITIONAL' else '**'}{name} is missing")
        elif name not in have:
            found.append(f"{where}: parameter {name} is missing")
        else:
            at, our_kind, our_default = have[name]
            if default != our_default:
                found.append(f"{where}: {name}={our_default}, not {default}")
            if kind == "POSITIONAL_OR_KEYWORD" and (our_kind != kind or at != place):
                found.append(f"{where}: {name} is {our_kind} at place {at}, not {kind} at {place}")
    known = {name for name, _, _ in wanted}
    for name, kind, default in given:
        if name not in known and default is None and not kind.startswith("VAR_"):
            found.append(f"{where}: the new parameter {name} has no default")
    return found
