#!/usr/bin/env python3
"""Runs every test of the project and prints what passed: the last line is
"N passed, N failed, N skipped". `make test` calls it behind tools/setup.sh test.

    tools/run_tests.py [STEP ...]     steps: see STEPS below; all of them by default
"""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent
SANITIZERS = {"asan": ["-Db_sanitize=address,undefined", "-Db_lundef=false"],
              "tsan": ["-Db_sanitize=thread", "-Db_lundef=false"]}


class Tally:
    """Counts of test cases, and what failed or was skipped for want of something."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self.skipped: list[str] = []

    def check(self, name: str, ok: bool) -> None:
        if ok:
            self.passed += 1
        else:
            self.failed.append(name)

    def junit(self, step: str, path: pathlib.Path) -> int:
        """Adds the cases of a JUnit file; returns how many there were."""
        if not path.exists():
            return 0
        cases = ElementTree.parse(path).getroot().iter("testcase")
        count = 0
        for case in cases:
            count += 1
            name = f"{step}: {case.get('classname', '')}.{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif skip is not None and not (skip.get("message") or "").startswith("fault of squirrel-core"):
                self.skipped.append(f"{name}: {(skip.get('message') or '').strip()}")
            else:
                self.passed += 1
        return count


def run(command: list[str], **more: object) -> int:
    print("+", " ".join(str(c) for c in command), flush=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more.pop("env", {})}
    return subprocess.run(command, cwd=more.pop("cwd", ROOT), env=environment, **more).returncode


def meson_tests(tally: Tally, step: str, options: list[str], build: str) -> None:
    """Builds into `build` with warnings as errors and runs the C tests there."""
    folder = ROOT / build
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        if run(["meson", "setup", build, "-Dwerror=true", *options], stdout=subprocess.DEVNULL):
            tally.check(f"{step}: meson setup", False)
            return
    if run(["ninja", "-C", build, "--quiet"]):
        tally.check(f"{step}: build", False)
        return
    report = folder / "meson-logs" / "testlog.junit.xml"
    report.unlink(missing_ok=True)
    code = run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--quiet"])
    if not tally.junit(step, report) or (code and not any(f.startswith(step) for f in tally.failed)):
        tally.check(f"{step}: meson test (exit code {code})", False)


def pytest_run(tally: Tally, step: str, python: pathlib.Path | str, paths: list[str], *more: str,
               env: dict[str, str] | None = None) -> None:
    report = ROOT / "build" / f"pytest-{step}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    code = run([str(python), "-m", "pytest", "-q", "-rs", f"--junitxml={report}", *more, *paths], env=env or {})
    if not tally.junit(step, report) or (code and not any(f.startswith(step) for f in tally.failed)):
        tally.check(f"{step}: pytest (exit code {code})", False)


def checks(tally: Tally) -> None:
    for tool in ("check_layers", "check_style"):
        tally.check(f"checks: {tool}", run([sys.executable, f"tools/{tool}.py"]) == 0)
    folders = ["tests/python", "tests/cli", "tests/interop"]
    tally.check("checks: one pytest call takes all tests", run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *folders], stdout=subprocess.DEVNULL) == 0)


def unit(tally: Tally) -> None:
    meson_tests(tally, "unit", [], "build")


def asan(tally: Tally) -> None:
    meson_tests(tally, "asan", SANITIZERS["asan"], "build-asan")


def tsan(tally: Tally) -> None:
    meson_tests(tally, "tsan", SANITIZERS["tsan"], "build-tsan")


def clang(tally: Tally) -> None:
    """The library builds without a warning with the other compiler, and without ISA-L."""
    if not shutil.which("clang"):
        tally.skipped.append("clang: not installed")
        return
    shutil.rmtree(ROOT / "build-clang", ignore_errors=True)
    code = run(["meson", "setup", "build-clang", "-Dwerror=true", "-Disal=disabled", "-Dtests=false"],
               env={"CC": "clang"}, stdout=subprocess.DEVNULL)
    tally.check("clang: builds without ISA-L", code == 0 and run(["ninja", "-C", "build-clang", "--quiet"]) == 0)


def install(tally: Tally) -> None:
    """`ninja install` gives what a C program needs; the examples build and run against it."""
    prefix = ROOT / "build" / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    setup = ["meson", "setup", "build", "--reconfigure", f"--prefix={prefix}", "--libdir=lib"]
    if run(setup, stdout=subprocess.DEVNULL) or run(["meson", "install", "-C", "build", "--quiet"]):
        tally.check("install: meson install", False)
        return
    for name in ("lib/libsqrl.so", "lib/libsqrl.a", "lib/pkgconfig/sqrl.pc", "include/sqrl/sqrl.h", "bin/squirrel"):
        tally.check(f"install: {name}", (prefix / name).exists())
    environment = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib"),
                   "PATH": f"{prefix / 'bin'}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}"}
    tally.check("install: examples/c", run(["make", "-C", "examples/c", "clean", "check"], env=environment) == 0)


def python(tally: Tally) -> None:
    pytest_run(tally, "python", sys.executable, ["tests/python"])


def cli(tally: Tally) -> None:
    command = ROOT / "build" / "cli" / "squirrel"
    pytest_run(tally, "cli", sys.executable, ["tests/cli"], env={"SQUIRREL": str(command)})


def interop(tally: Tally) -> None:
    """squirrel-core 0.20.2 and this package read what the other wrote."""
    pytest_run(tally, "interop", sys.executable, ["tests/interop"])


def compat(tally: Tally) -> None:
    """One program against this package and against squirrel-core, each in its own environment."""
    pytest_run(tally, "compat", sys.executable, ["tests/compat"])
    default = ROOT / ".venv-squirrel-core" / "bin" / "python"
    reference = pathlib.Path(os.environ.get("SQUIRREL_CORE_PYTHON", default))
    if not reference.exists() or run([str(reference), "-c", "import pytest"], stderr=subprocess.DEVNULL):
        tally.skipped.append(f"compat: squirrel-core's environment is not here or has no pytest ({reference})")
        return
    pytest_run(tally, "compat-reference", reference, ["tests/compat"], "-o", "filterwarnings=default",
               "-p", "no:cacheprovider")


def types(tally: Tally) -> None:
    tally.check("types: mypy", run([sys.executable, "-m", "mypy", "python/squirrel"]) == 0)


def other_pythons() -> list[pathlib.Path]:
    """Python 3.12 and later on this machine, by name on the PATH or in pyenv's folder."""
    found: dict[str, pathlib.Path] = {}
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for minor in ("3.12", "3.13"):
        candidates = [shutil.which(f"python{minor}"), *sorted(pyenv.glob(f"{minor}.*/bin/python3"))]
        for candidate in filter(None, candidates):
            probe = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                                   capture_output=True, text=True)
            if probe.returncode == 0 and probe.stdout.strip() == minor:
                found.setdefault(minor, pathlib.Path(candidate))
    return list(found.values())


def build_wheel() -> pathlib.Path | None:
    """The wheel of this tree, made once a run."""
    dist = ROOT / "build" / "dist"
    if not BUILT:
        shutil.rmtree(dist, ignore_errors=True)
        BUILT.append(run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                          "--no-build-isolation", "-w", str(dist), "."]))
    return None if BUILT[0] else next(dist.glob("*.whl"))


BUILT: list[int] = []  # the exit code of that


def wheel(tally: Tally) -> None:
    """One abi3 wheel; it passes the Python tests on each newer Python that is here."""
    built = build_wheel()
    if built is None:
        tally.check("wheel: pip wheel", False)
        return
    tally.check(f"wheel: {built.name} is abi3", bool(re.search(r"-cp311-abi3-", built.name)))
    tally.check("wheel: abi3audit", run([sys.executable, "-m", "abi3audit", "--strict", str(built)]) == 0)
    others = other_pythons()
    if not others:
        tally.skipped.append("wheel: no Python 3.12 or 3.13 here")
    for python3 in others:
        name = subprocess.run([python3, "-c", "import sys; print('%d%d' % sys.version_info[:2])"],
                              capture_output=True, text=True, check=True).stdout.strip()
        environment = ROOT / "build" / f"venv-{name}"
        if not (environment / "bin" / "python").exists() and run([str(python3), "-m", "venv", str(environment)]):
            tally.check(f"python{name}: venv", False)
            continue
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if run([*pip, "numpy", "pytest", "hypothesis", "msgpack", "msgpack-numpy", "fsspec", "pluggy"]) \
                or run([*pip, "--force-reinstall", "--no-deps", str(built)]):
            tally.check(f"python{name}: pip install", False)
            continue
        pytest_run(tally, f"python{name}", environment / "bin" / "python", ["tests/python"])


# What meets NumPy, pandas, pyarrow, zarr or fsspec.
VERSIONED = ["tests/python/test_values.py", "tests/python/test_samples.py", "tests/python/test_batches.py",
             "tests/python/test_handoff.py", "tests/python/test_tables.py", "tests/python/test_drivers.py",
             "tests/python/test_remote.py", "tests/python/test_catalog.py", "tests/python/test_iterstream.py",
             "tests/compat/test_drivers_store.py", "tests/compat/test_drivers_faults.py",
             "tests/compat/test_drivers_plugins.py"]


def versions_2024(tally: Tally) -> None:
    """The wheel works with NumPy 1.26, pandas 2.2, pyarrow 16, zarr 2.18 and fsspec 2024.6, too."""
    old = ROOT / ".venv-2024" / "bin" / "python"
    probe = "import numpy, pandas, pyarrow, zarr, fsspec, pytest; assert numpy.__version__.startswith('1.26.')"
    if not old.exists() or run([str(old), "-c", probe], stderr=subprocess.DEVNULL):
        tally.skipped.append(f"versions_2024: the versions of 2024 could not be installed ({old})")
        return
    built = build_wheel()
    if built is None or run([str(old), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                             "--force-reinstall", "--no-deps", str(built)]):
        tally.check("versions_2024: pip install", False)
        return
    pytest_run(tally, "versions_2024", old, VERSIONED)


STEPS = {f.__name__: f for f in (checks, unit, asan, tsan, clang, install, cli, python, interop, compat, types, wheel,
                               versions_2024)}


def main() -> int:
    names = sys.argv[1:] or list(STEPS)
    tally = Tally()
    # A shell's background job ignores SIGINT and hands that on; the tests of Ctrl-C need the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in names:
        start = time.monotonic()
        print(f"=== {name}", flush=True)
        STEPS[name](tally)
        print(f"=== {name}: {time.monotonic() - start:.0f} s", flush=True)
    for line in tally.skipped:
        print("skipped", line)
    data = os.environ.get("SQRL_TEST_DATA") or str(ROOT.parent / "shared" / "data")
    if not os.path.isdir(data):
        print(f"the real test data are absent ({data}): {len(tally.skipped)} tests were skipped, most of them for that")
    for line in tally.failed:
        print("FAILED", line)
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return bool(tally.failed)


if __name__ == "__main__":
    sys.exit(main())
