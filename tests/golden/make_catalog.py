#!/usr/bin/env python3
"""Writes tests/golden/catalog/squirrel_core.yaml with squirrel-core 0.20.2 itself, and beside
it, as JSON, the values that its reader gives for the file.

    python -m pip install squirrel-core==0.20.2 "numpy<2" && tests/golden/make_catalog.py
"""
from __future__ import annotations

import json
import pathlib

from squirrel.catalog import Catalog, CatalogKey, Source

FOLDER = pathlib.Path(__file__).resolve().parent / "catalog"

TEXTS = ["", "yes", "no", "on", "y", "null", "~", "Null", "true", "False", "12", "012", "0o14", "0x1F", "0b11", "1.5",
         "1e3", "1e+3", "2020-01-01", "1:30", ".", ".inf", ".nan", "a: b", "a #b", "- a", "'q'", '"dq"', "a\nb\n", "a\tb",
         " a", "a ", "é漢😀", "a\x01b", "a\\b", "%a", "@a", "*a", "&a", "!a", "?", "{a}", "[a]", "a,b", ">", "|", "1_000",
         "=", "<<", "word " * 60, "x" * 300, "---", "...", "\ufeffa"]


def make() -> Catalog:
    catalog = Catalog()
    shared = {"anon": True, "client_kwargs": {"endpoint_url": "http://localhost:9000"}}
    catalog["train"] = Source("messagepack", {"url": "data/train", "storage_options": shared}, {"samples": 60000})
    catalog["train"] = Source("messagepack", {"url": "data/train2", "storage_options": shared})
    catalog["test"] = Source("jsonl", {"url": "data/test"}, {"list": [1, [2, []], {}, {"a": [{"b": None}]}]})
    catalog["name: odd"][7] = Source("csv")
    catalog["both"] = Source("source_combiner", {"subsets": {"a": CatalogKey("train", 2), "b": CatalogKey("test")}})
    catalog["values"] = Source("x", {}, {
        "numbers": [0, -7, 2**63 - 1, -2**63, 2**64 - 1, 1.5, 1e20, 1e-7, 1.0, float("inf"), float("-inf")],
        "others": [None, True, False], "texts": TEXTS, "keys": {text: i for i, text in enumerate(TEXTS)}})
    return catalog


def plain(value: object) -> object:
    """JSON's types; a catalog key as {"!CatalogKey": [name, version]}."""
    if isinstance(value, CatalogKey):
        return {"!CatalogKey": list(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "squirrel_core.yaml"
    make().to_file(str(path))
    catalog = Catalog.from_str(path.read_text(encoding="utf-8"))
    rows = [{"name": name, "version": version, "driver": source.driver_name, "kwargs": plain(source.driver_kwargs),
             "metadata": plain(source.metadata)}
            for name, versions in catalog.sources.items() for version, source in versions.versions.items()]
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
    (FOLDER / "squirrel_core.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
