#!/usr/bin/env python3
"""Fails when a folder includes what the table below does not allow, or when a third-party
library is used by more than one .c file. `python3 tools/check_layers.py [ROOT]`"""
import pathlib
import re
import sys

FLOORS = ["base", "value", "codec", "io", "format", "driver", "stream", "handoff", "catalog"]

# Which public headers a floor may include: its own and those of the floors above it.
PUBLIC = {
    "base": ["error.h", "context.h", "buffer.h", "option.h"],
    "value": ["value.h", "block.h", "schema.h"],
    "codec": ["codec.h"],
    "io": ["fs.h", "cache.h"],
    "format": ["format.h"],
    "driver": ["source.h", "pack.h"],
    "stream": ["stream.h", "batch.h", "mix.h", "mixture.h", "quality.h"],
    "handoff": ["arrow.h", "dlpack.h"],
    "catalog": ["catalog.h"],
}

# One third-party library, one .c file (zlib may be ISA-L's stand-in beside it).
THIRD_PARTY = {
    r"zstd(_errors)?\.h": "zstd", r"lz4(frame|hc)?\.h": "lz4", r"isa-l(/.*)?\.h|igzip_lib\.h": "isa-l",
    r"curl/.*": "libcurl", r"zlib\.h": "zlib", r"xxhash\.h|xxh3\.h": "xxhash", r"yaml\.h": "libyaml",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def allowed_floor(folder: str, name: str) -> bool:
    """May a file of floor `folder` include `name` (a path as written in the source)?"""
    top = name.split("/")[0]
    upto = FLOORS[: FLOORS.index(folder) + 1]
    if top == "sqrl":
        headers = [h for f in upto for h in PUBLIC[f]]
        return name.split("/")[1] in headers
    return top not in FLOORS or top in upto


def check(root: pathlib.Path) -> list[str]:
    faults: list[str] = []
    users: dict[str, set[str]] = {}
    for path in sorted([*root.glob("src/**/*.[ch]"), *root.glob("cli/*.[ch]"), *root.glob("python/ext/*.[ch]")]):
        rel = path.relative_to(root)
        folder = rel.parts[1] if rel.parts[0] == "src" else rel.parts[0]
        for name in INCLUDE.findall(path.read_text()):
            if rel.parts[0] == "src" and not allowed_floor(folder, name):
                faults.append(f"{rel}: includes {name}, which lies below floor {folder}")
            if rel.parts[0] in ("cli", "python") and name.split("/")[0] in FLOORS:
                faults.append(f"{rel}: includes {name}; only include/sqrl is open to it")
            for pattern, library in THIRD_PARTY.items():
                if re.fullmatch(pattern, name):
                    # x_avx2.c is x.c compiled for another CPU: the same user.
                    users.setdefault(library, set()).add(str(rel).replace("_avx2.c", ".c"))
    for path in sorted((root / "include" / "sqrl").glob("*.h")):
        owner = next((f for f in FLOORS if path.name in PUBLIC[f]), None)
        if owner is None and path.name != "sqrl.h":
            faults.append(f"include/sqrl/{path.name}: no floor owns it; add it to PUBLIC")
        for name in INCLUDE.findall(path.read_text()):
            known = [h for f in FLOORS[: FLOORS.index(owner) + 1] for h in PUBLIC[f]] if owner else None
            if name.endswith(".h") and (path.parent / name).exists() and known and name not in known:
                faults.append(f"include/sqrl/{path.name}: includes {name} of a floor below")
    for library, files in users.items():
        if len(files) > 1:
            faults.append(f"{library} is used by {', '.join(sorted(files))}: one file only")
    return faults


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent))
    print("\n".join(found) if found else "layers: in order")
    sys.exit(bool(found))
