#!/usr/bin/env python3
"""Runs every test of the project and prints what passed: the last line is
"N passed, N failed, N skipped". `make test` calls it behind tools/setup.sh test.

    tools/run_tests.py [STEP ...]     steps: see STEPS below; all of them by default

Two steps run at a time: many wait for servers, signals and processes, others compute. The output of each is shown
whole when it ends; that of a step asked for alone is shown as it comes.
"""
from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent
WORK = ROOT / "build-tests"  # reports, the wheel, environments: what is no build of meson's
AT_ONCE = 2
# Warnings are errors in `unit` and `clang`. Instrumented, a build of -O2 and -g takes twice as long as this one.
SANITIZED = ["-Db_lundef=false", "-Doptimization=1", "-Ddebug=false", "-Dc_args=-g1"]


class Step:
    """One step: its test cases by how they ended, what it took, and its output."""

    def __init__(self, name: str, shown_at_once: bool) -> None:
        self.name = name
        self.passed = 0
        self.failed: list[str] = []
        self.skipped: list[str] = []
        self.seconds = self.cpu_seconds = 0.0
        self._output = None if shown_at_once else tempfile.TemporaryFile()

    def check(self, name: str, ok: bool) -> None:
        if ok:
            self.passed += 1
        else:
            self.failed.append(f"{self.name}: {name}")

    def skip(self, why: str) -> None:
        self.skipped.append(f"{self.name}: {why}")

    def run(self, command: Sequence[str | pathlib.Path], quiet: bool = False, env: dict[str, str] | None = None) -> int:
        """Runs it in the project's folder; returns its exit code. Standard output is dropped where it is `quiet`."""
        words = [str(word) for word in command]
        line = f"+ {' '.join(words)}\n"
        if self._output is None:
            print(line, end="", flush=True)
        else:
            os.write(self._output.fileno(), line.encode())
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **(env or {})}
        with subprocess.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stderr=self._output,
                              stdout=subprocess.DEVNULL if quiet else self._output) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        return process.returncode

    def junit(self, path: pathlib.Path, part: str = "") -> int:
        """Adds the cases of a JUnit file; returns how many there were."""
        if not path.exists():
            return 0
        count = 0
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            count += 1
            name = f"{part or self.name}: {case.get('classname', '')}.{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            elif skip is not None and not (skip.get("message") or "").startswith("fault of squirrel-core"):
                self.skipped.append(f"{name}: {(skip.get('message') or '').strip()}")
            else:
                self.passed += 1
        return count

    def show(self) -> None:
        """Prints its output, where that was kept."""
        print(f"=== {self.name}", flush=True)
        if self._output is not None:
            self._output.seek(0)
            shutil.copyfileobj(self._output, sys.stdout.buffer)
            self._output.close()
        print(f"=== {self.name}: {self.seconds:.0f} s", flush=True)


def meson_tests(step: Step, options: list[str], build: str, *selection: str) -> None:
    """Builds into `build` and runs the C tests there, all or those selected."""
    folder = ROOT / build
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        if step.run(["meson", "setup", build, *options], quiet=True):
            step.check("meson setup", False)
            return
    if step.run(["ninja", "-C", build, "--quiet"]):
        step.check("build", False)
        return
    report = folder / "meson-logs" / "testlog.junit.xml"
    report.unlink(missing_ok=True)
    code = step.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--quiet", *selection])
    if not step.junit(report) or (code and not step.failed):
        step.check(f"meson test (exit code {code})", False)


def pytest_run(step: Step, python: pathlib.Path | str, *words: str, part: str = "",
               env: dict[str, str] | None = None) -> None:
    """Runs pytest with these words; `part` names the cases where a step has several runs."""
    part = part or step.name
    report = WORK / f"pytest-{part}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    code = step.run([python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--junitxml={report}", *words],
                    env=env)
    if not step.junit(report, part) or (code and not any(f.startswith(f"{part}:") for f in step.failed)):
        step.failed.append(f"{part}: pytest (exit code {code})")


def checks(step: Step) -> None:
    for tool in ("check_layers", "check_style"):
        step.check(tool, step.run([sys.executable, f"tools/{tool}.py"]) == 0)
    folders = ["tests/python", "tests/cli", "tests/interop"]
    step.check("one pytest call takes all tests", step.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *folders], quiet=True) == 0)


def unit(step: Step) -> None:
    meson_tests(step, ["-Dwerror=true"], "build")


def asan(step: Step) -> None:
    meson_tests(step, ["-Db_sanitize=address,undefined", *SANITIZED], "build-asan")


def tsan(step: Step) -> None:
    """Without the floors that know nothing of threads: their tests run on one, where nothing can race."""
    alone = [word for suite in ("value", "codec", "fuzz") for word in ("--no-suite", suite)]
    meson_tests(step, ["-Db_sanitize=thread", *SANITIZED], "build-tsan", *alone)


def clang(step: Step) -> None:
    """The library builds without a warning with the other compiler, and without ISA-L."""
    if not shutil.which("clang"):
        step.skip("not installed")
        return
    shutil.rmtree(ROOT / "build-clang", ignore_errors=True)
    code = step.run(["meson", "setup", "build-clang", "-Dwerror=true", "-Disal=disabled", "-Dtests=false",
                     "-Doptimization=0", "-Ddebug=false"],
                    env={"CC": "clang"}, quiet=True)
    step.check("builds without ISA-L", code == 0 and step.run(["ninja", "-C", "build-clang", "--quiet"]) == 0)


def install(step: Step) -> None:
    """`ninja install` gives what a C program needs; the examples build and run against it."""
    prefix = WORK / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    setup = ["meson", "setup", "build", "--reconfigure", f"--prefix={prefix}", "--libdir=lib"]
    if step.run(setup, quiet=True) or step.run(["meson", "install", "-C", "build", "--quiet"]):
        step.check("meson install", False)
        return
    for name in ("lib/libsqrl.so", "lib/libsqrl.a", "lib/pkgconfig/sqrl.pc", "include/sqrl/sqrl.h", "bin/squirrel"):
        step.check(name, (prefix / name).exists())
    environment = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib"),
                   "PATH": f"{prefix / 'bin'}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}"}
    step.check("examples/c", step.run(["make", "-C", "examples/c", "clean", "check"], env=environment) == 0)


def python(step: Step) -> None:
    pytest_run(step, sys.executable, "tests/python")


def cli(step: Step) -> None:
    command = ROOT / "build" / "cli" / "squirrel"
    pytest_run(step, sys.executable, "tests/cli", env={"SQUIRREL": str(command)})


def interop(step: Step) -> None:
    """squirrel-core 0.20.2 and this package read what the other wrote."""
    pytest_run(step, sys.executable, "tests/interop")


def compat(step: Step) -> None:
    """One program against this package and against squirrel-core, each in its own environment."""
    pytest_run(step, sys.executable, "tests/compat")
    default = ROOT / ".venv-squirrel-core" / "bin" / "python"
    reference = pathlib.Path(os.environ.get("SQUIRREL_CORE_PYTHON", default))
    if not reference.exists() or step.run([reference, "-c", "import pytest"]):
        step.skip(f"squirrel-core's environment is not here or has no pytest ({reference})")
        return
    pytest_run(step, reference, "tests/compat", "-o", "filterwarnings=default", part="compat-reference")


def types(step: Step) -> None:
    step.check("mypy", step.run([sys.executable, "-m", "mypy", "python/squirrel"]) == 0)


def version_of(python3: pathlib.Path) -> str:
    """Like "3.12"; empty where it does not run."""
    probe = subprocess.run([python3, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                           capture_output=True, text=True)
    return probe.stdout.strip() if probe.returncode == 0 else ""


def other_pythons() -> dict[str, pathlib.Path]:
    """Python 3.12 and later on this machine, by name on the PATH or in pyenv's folder."""
    found: dict[str, pathlib.Path] = {}
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for minor in ("3.12", "3.13"):
        named = shutil.which(f"python{minor}")
        for candidate in [*([pathlib.Path(named)] if named else []), *sorted(pyenv.glob(f"{minor}.*/bin/python3"))]:
            if version_of(candidate) == minor:
                found.setdefault(minor, candidate)
    return found


BUILDING = threading.Lock()  # both steps that need the wheel may begin at once


def build_wheel(step: Step) -> pathlib.Path | None:
    """The wheel of this tree, made once; tools/setup.sh makes it, too, whenever a source changes."""
    dist = WORK / "dist"
    with BUILDING:
        if not list(dist.glob("*.whl")) and step.run([
                sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                "--no-build-isolation", "-w", dist, "."]):
            step.check("pip wheel", False)
            return None
    return next(dist.glob("*.whl"))


def wheel(step: Step) -> None:
    """One abi3 wheel; it passes the Python tests on each newer Python that is here, without those marked `once`:
    they test compiled code, which is the very same."""
    built = build_wheel(step)
    if built is None:
        return
    step.check(f"{built.name} is abi3", bool(re.search(r"-cp311-abi3-", built.name)))
    step.check("abi3audit", step.run([sys.executable, "-m", "abi3audit", "--strict", built]) == 0)
    others = other_pythons()
    if not others:
        step.skip("no Python 3.12 or 3.13 here")
    for version, python3 in others.items():
        name = f"python{version.replace('.', '')}"
        environment = WORK / f"venv-{version}"
        if not (environment / "bin" / "python").exists() and step.run([python3, "-m", "venv", environment]):
            step.check(f"{name}: venv", False)
            continue
        pip: list[str | pathlib.Path] = [
            environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if step.run([*pip, "numpy", "pytest", "hypothesis", "msgpack", "msgpack-numpy", "fsspec", "pluggy"]) \
                or step.run([*pip, "--force-reinstall", "--no-deps", built]):
            step.check(f"{name}: pip install", False)
            continue
        pytest_run(step, environment / "bin" / "python", "-m", "not once", "tests/python", part=name)


# What meets NumPy, pandas, pyarrow, zarr or fsspec.
VERSIONED = ["tests/python/test_values.py", "tests/python/test_samples.py", "tests/python/test_batches.py",
             "tests/python/test_handoff.py", "tests/python/test_tables.py", "tests/python/test_drivers.py",
             "tests/python/test_remote.py", "tests/python/test_catalog.py", "tests/python/test_iterstream.py",
             "tests/compat/test_drivers_store.py", "tests/compat/test_drivers_faults.py",
             "tests/compat/test_drivers_plugins.py"]


def versions_2024(step: Step) -> None:
    """The wheel works with NumPy 1.26, pandas 2.2, pyarrow 16, zarr 2.18 and fsspec 2024.6, too."""
    old = ROOT / ".venv-2024" / "bin" / "python"
    probe = "import numpy, pandas, pyarrow, zarr, fsspec, pytest; assert numpy.__version__.startswith('1.26.')"
    if not old.exists() or step.run([old, "-c", probe]):
        step.skip(f"the versions of 2024 could not be installed ({old})")
        return
    built = build_wheel(step)
    if built is None:
        return
    if step.run([old, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall",
                 "--no-deps", built]):
        step.check("pip install", False)
        return
    pytest_run(step, old, "-m", "not once", *VERSIONED)


# The longest first, so that two that run side by side end at about the same time.
STEPS: dict[str, Callable[[Step], None]] = {f.__name__: f for f in (
    checks, python, unit, cli, asan, tsan, wheel, compat, interop, versions_2024, install, clang, types)}
# What a step needs of others: cli uses the command that unit builds, install builds that folder anew for its prefix.
AFTER = {"cli": ["unit"], "install": ["unit", "cli"]}


def run_step(step: Step, before: list[concurrent.futures.Future[Step]]) -> Step:
    concurrent.futures.wait(before)
    start = time.monotonic()
    print(f"=== {step.name} begins", flush=True)
    try:
        STEPS[step.name](step)
    except Exception as error:  # a step that can't be run is one that failed
        step.check(f"{type(error).__name__}: {error}", False)
    step.seconds = time.monotonic() - start
    return step


def run_steps(names: list[str]) -> list[Step]:
    """Runs them, AT_ONCE at a time, in this order; shows the output of each when it ends."""
    alone = len(names) == 1
    started: dict[str, concurrent.futures.Future[Step]] = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name in names:  # those that wait for others stand behind them, so the others run
            before = [started[other] for other in AFTER.get(name, []) if other in started]
            started[name] = pool.submit(run_step, Step(name, alone), before)
        for ended in concurrent.futures.as_completed(started.values()):
            ended.result().show()
    return [future.result() for future in started.values()]


def main() -> int:
    names = [name for name in STEPS if name in sys.argv[1:]] if sys.argv[1:] else list(STEPS)
    if unknown := sorted(set(sys.argv[1:]) - set(STEPS)):
        print(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    # A shell's background job ignores SIGINT and hands that on; the tests of Ctrl-C need the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    steps = run_steps(names)
    passed = sum(step.passed for step in steps)
    failed = [line for step in steps for line in step.failed]
    skipped = [line for step in steps for line in step.skipped]
    for line in skipped:
        print("skipped", line)
    data = os.environ.get("SQRL_TEST_DATA") or str(ROOT.parent / "shared" / "data")
    if not os.path.isdir(data):
        print(f"the real test data are absent ({data}): {len(skipped)} tests were skipped, most of them for that")
    for step in steps:
        print(f"{step.seconds:6.0f} s, {step.cpu_seconds:6.0f} s of a core: {step.name}")
    print(f"{time.monotonic() - start:6.0f} s in all")
    for line in failed:
        print("FAILED", line)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
