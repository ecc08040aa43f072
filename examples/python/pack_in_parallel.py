"""Packs text files with a Python function in several processes; killed and started again it continues.

    python examples/python/pack_in_parallel.py SOURCE DESTINATION [WORKERS]

SOURCE is a folder of text files, DESTINATION a folder for the shards. Files that can't be read are skipped and listed.
"""

from __future__ import annotations

import pathlib
import sys

import squirrel


def paragraphs(path: pathlib.Path) -> list[dict[str, object]]:
    """One sample for each paragraph of a file. Runs in a worker process, so it stands at the top of the module."""
    text = path.read_text(encoding="utf-8")
    return [{"file": path.name, "number": number, "text": part.strip()}
            for number, part in enumerate(text.split("\n\n")) if part.strip()]


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    files = sorted(p for p in pathlib.Path(sys.argv[1]).rglob("*") if p.is_file())
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    report = squirrel.pack(files, sys.argv[2], map=paragraphs, workers=workers, resume=True, on_error="skip")
    for index, text in report.failed:
        print(f"skipped {files[index]}: {text}")
    print(f"{report.samples:,} paragraphs of {len(files) - len(report.failed):,} files in {report.shards} shards")
    longest = max(squirrel.open(sys.argv[2]), key=lambda sample: len(sample["text"]), default=None)
    if longest is not None:
        print(f"the longest has {len(longest['text']):,} characters: {longest['file']}, number {longest['number']}")
    return 0


if __name__ == "__main__":  # worker processes import this module
    sys.exit(main())
