"""Large and small fields in shards of their own, and a field that is computed later.

    python groups_of_fields.py [FOLDER]
"""

import pathlib
import sys

import numpy as np

import squirrel

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tissue")
rng = np.random.default_rng(0)
samples = [
    {"image": rng.integers(0, 255, (64, 64, 3), dtype=np.uint8), "label": i % 3, "patient": f"p{i // 8}"}
    for i in range(400)
]

# Images in one group of shards, labels and patients in another; fields in no group go to "rest".
squirrel.pack(samples, folder, groups={"images": ["image"], "labels": ["label", "patient"]})

# A stream that selects fields opens and reads their groups only.
labels = [sample["label"] for sample in squirrel.open(folder).select("label")]
print("labels", np.bincount(labels).tolist())

# A mean that is computed from the images comes beside them; nothing is written anew.
squirrel.add_fields(
    folder,
    map=lambda sample: {"mean": float(sample["image"].mean())},
    read=["image"],
    group="statistics",
)
stream = squirrel.open(folder)
bright = stream.filter("mean > 127.5").select("mean", "label")  # reads no image
print("bright", sum(1 for _ in bright))
for group in stream.groups:
    print(group["name"], group["fields"], group["samples"])
print("fields", sorted(stream[0]))
