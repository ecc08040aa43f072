"""The sources that both sides put into a catalog: (name, version, driver, arguments, metadata)."""

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
]
