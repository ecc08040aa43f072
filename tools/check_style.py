#!/usr/bin/env python3
"""Checks what CONTRIBUTING.md promises about form: lines of at most 90 columns, functions below
100 lines, files below 1,200, clang-format (where installed), public functions documented.
`python3 tools/check_style.py [ROOT]`; prints soft excesses as notes and fails on hard ones."""
import pathlib
import re
import shutil
import subprocess
import sys

LINE, FUNCTION_SOFT, FUNCTION_HARD, FILE_SOFT, FILE_HARD = 90, 60, 100, 700, 1200
FOLDERS = ["include", "src", "cli", "python", "tests", "bench", "examples", "tools"]


def sources(root: pathlib.Path) -> list[pathlib.Path]:
    """The project's own C and Python files, tables made by scripts left out (*.inc)."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *FOLDERS], cwd=root,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    paths = [root / p for p in listed if p.endswith((".c", ".h", ".py", ".pyi"))]
    return [p for p in paths if p.exists() and "golden" not in p.parts]


def c_functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, number of lines) of each function body that opens in column 0's scope."""
    out, start, name = [], 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        head = re.match(r"^[A-Za-z_].*?\b(\w+)\(", line)
        if head and not line.startswith(("typedef", "#")) and not line.rstrip().endswith(";"):
            start, name = number, head.group(1)
        if line == "}" and start:
            out.append((name, start, number - start + 1))
            start = 0
        elif line.startswith("}"):
            start = 0
    return out


def check_file(path: pathlib.Path, rel: str, hard: list[str], soft: list[str]) -> None:
    text = path.read_text()
    lines = text.split("\n")
    limit = LINE if path.suffix in (".c", ".h") else 120
    hard += [f"{rel}:{n}: {len(s)} columns" for n, s in enumerate(lines, 1) if len(s) > limit]
    hard += [f"{rel}:{n}: white space at the end" for n, s in enumerate(lines, 1) if s != s.rstrip()]
    if len(lines) > FILE_HARD:
        hard.append(f"{rel}: {len(lines)} lines; split it")
    elif len(lines) > FILE_SOFT:
        soft.append(f"{rel}: {len(lines)} lines")
    if path.suffix != ".c":
        return
    for name, start, count in c_functions(text):
        if count > FUNCTION_HARD:
            hard.append(f"{rel}:{start}: {name} has {count} lines; split it")
        elif count > FUNCTION_SOFT:
            soft.append(f"{rel}:{start}: {name} has {count} lines")


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    hard: list[str] = []
    soft: list[str] = []
    files = sources(root)
    for path in files:
        check_file(path, str(path.relative_to(root)), hard, soft)
    formatter = shutil.which("clang-format")
    if formatter:
        c_files = [str(p) for p in files if p.suffix in (".c", ".h") and "include" not in p.parts[:-2]]
        for at in range(0, len(c_files), 50):
            run = subprocess.run([formatter, "--dry-run", "-Werror", *c_files[at:at + 50]], cwd=root,
                                 capture_output=True, text=True)
            seen = sorted({line.split(":")[0] for line in run.stderr.split("\n") if "clang-format-violations" in line})
            hard += [f"{pathlib.Path(f).relative_to(root)}: not formatted; run clang-format -i" for f in seen]
    else:
        print("style: clang-format is not installed; formatting was not checked")
    for line in soft:
        print("note:", line)
    print("\n".join(hard) if hard else f"style: {len(files)} files in order")
    return bool(hard)


if __name__ == "__main__":
    sys.exit(main())
