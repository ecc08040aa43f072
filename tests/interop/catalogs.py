"""The sources that both sides put into a catalog: (name, version, driver, arguments, metadata)."""

from datetime import date, datetime, timedelta, timezone

from squirrel.catalog import CatalogKey

# squirrel-core writes an anchor, &id001, and aliases where sources share a dict or a list.
SHARED = {"anon": True, "client_kwargs": {"endpoint_url": "http://localhost:9000"}}
LABELS = ["cat", "dog"]
DEEP = {"end": []}
for level in range(40):
    DEEP = {f"level{level}": [DEEP, level]}  # with a blank in the key squirrel-core writes what is no YAML

SOURCES = [
    ("train", 1, "messagepack", {"url": "data/train"}, {}),
    ("train", 2, "messagepack", {"url": "data/train-2", "storage_options": {"requester_pays": True}},
     {"split": "train", "classes": 10}),
    ("train", 7, "jsonl", {"url": "gs://bucket/train"}, {"note": None}),
    ("test", 1, "jsonl", {"url": "data/test"}, {"tags": ["a", "b", ["nested", {"deep": 1}]], "empty": [], "none": {}}),
    ("with space: and colon #", 3, "csv", {"path": "x y.csv", "sep": "\t", "header": 0}, {"text": "é日本\U0001f600"}),
    ("tricky", 1, "driver", {
        "yes": "yes", "no": "no", "null": "null", "tilde": "~", "number": "12", "float": "1.5", "hex": "0x1f",
        "octal": "010", "date": "2024-01-01", "empty": "", "dash": "- a", "bang": "!tag", "star": "*a", "and": "&a",
        "quote": "it's \"so\"", "backslash": "a\\b", "lines": "one\ntwo\n", "trailing": "ends in space ",
        "percent": "%x", "at": "@x", "tick": "`x", "question": "? x", "brace": "{a: b}", "bracket": "[a]", "on": "on",
        "colon": "a: b", "hash": "a #b", "long": "word " * 60, "exponent": "1e3", "inf": ".inf", "equals": "=",
        "merge": "<<", "control": "bell\x07 end", "next": "line\u2028separator",
    }, {
        "int": -5, "big": 2**62, "float": 0.1, "small": 1e-7, "large": 1e16, "whole": 2.0, "true": True, "false": False,
        "null": None, "123": "key of digits", "true_key": {"yes": 1, "null": 2, "": 3},
    }),
    ("shared", 1, "csv", {"path": "a", "storage_options": SHARED}, {"labels": LABELS}),
    ("shared", 2, "csv", {"path": "b", "storage_options": SHARED, "again": SHARED}, {"labels": LABELS, "too": LABELS}),
    ("both", 1, "source_combiner", {"subsets": {"a": CatalogKey("train", 2), "b": CatalogKey("test")},
                                    "in lists": [CatalogKey("name: odd #1", 3), [CatalogKey("y", 1)]]}, {}),
    ("numbers", 1, "x", {"max": 2**63 - 1, "min": -2**63, "unsigned": 2**64 - 1, "zero": 0, "minus zero": -0.0}, {
        "floats": [0.1, 1e22, 1e-300, 123456789.125, -2.5, 1e16, 5e-324, 1.7976931348623157e308],
        "infinities": [float("inf"), float("-inf")], "booleans": [True, False, None],
    }),
    ("keys", 1, "x", {"nested": {1: "int", 2.5: "float", True: "true", None: "null", "": "empty", "x" * 200: "long"}},
     {"a: b": 1, "? q": 2, "- d": 3, "#": 4, "": 5, "é": 6, "yes": 7, "3": 8}),
    ("containers", 1, "x", {"empty": [{}, [], [[]], [{}], {"a": {}, "b": []}]}, {"deep": DEEP}),
    ("times", 1, "x", {"day": date(2024, 1, 2), "in a list": [date(1, 1, 1), {"end": date(9999, 12, 31)}]}, {
        "plain": datetime(2024, 1, 2, 3, 4, 5), "exact": datetime(2024, 1, 2, 3, 4, 5, 60),
        "utc": datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        "far": datetime(2024, 1, 2, 3, 4, 5, 6000, timezone(-timedelta(hours=3, minutes=30))),
        "text": "2024-01-02", "text too": "2024-01-02 03:04:05",
    }),
    ("last", 9, "parquet", {}, {}),
]
