"""The main job, end to end, on real data: Fashion-MNIST from its IDX files into native shards, a catalog over them,
and a small softmax classifier trained from a shuffled, batched stream.

    python examples/python/train_fashion_mnist.py [FOLDER]

The images are those of the Debian package dataset-fashion-mnist; FOLDER (default demo-data) receives the shards and
the catalog.
"""

from __future__ import annotations

import pathlib
import resource
import subprocess
import sys
import time

import numpy as np

import squirrel
from squirrel.catalog import Catalog, Source

BATCH, EPOCHS, CLASSES, RATE = 256, 3, 10, 0.5


def find_idx() -> pathlib.Path:
    """The folder with Fashion-MNIST's four .gz files."""
    for folder in ("/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"):
        for found in pathlib.Path(folder).rglob("train-images-idx3-ubyte.gz"):
            return found.parent
    listed = subprocess.run(["dpkg", "-L", "dataset-fashion-mnist"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if line.endswith("train-images-idx3-ubyte.gz"):
            return pathlib.Path(line).parent
    raise SystemExit("Fashion-MNIST is not here: apt-get install dataset-fashion-mnist")


def pack(images: pathlib.Path, destination: pathlib.Path) -> None:
    """Packs one IDX file (its labels are found beside it) with the command `squirrel pack`."""
    command = pathlib.Path(sys.executable).with_name("squirrel")
    subprocess.run([command, "pack", images, destination, "--samples-per-shard", "10000", "--overwrite"], check=True)


def write_catalog(folder: pathlib.Path) -> pathlib.Path:
    """A catalog with two versioned sources, as a YAML file that can be shared."""
    catalog = Catalog()
    for name in ("train", "test"):
        catalog[f"fashion-mnist-{name}"] = Source(
            "sqrl", driver_kwargs={"url": str(folder / name)}, metadata={"split": name, "classes": CLASSES})
    path = folder / "catalog.yaml"
    catalog.to_file(str(path))
    return path


class Softmax:
    """Multinomial logistic regression by gradient descent; pixels in [0, 1] and a bias."""

    def __init__(self, pixels: int) -> None:
        self.weights = np.zeros((pixels + 1, CLASSES), np.float32)

    @staticmethod
    def features(image: np.ndarray) -> np.ndarray:
        flat = image.reshape(len(image), -1).astype(np.float32) / 255
        return np.concatenate([flat, np.ones((len(flat), 1), np.float32)], axis=1)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        scores = x @ self.weights
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def step(self, image: np.ndarray, label: np.ndarray, rate: float) -> None:
        x = self.features(image)
        error = self.probabilities(x)
        error[np.arange(len(label)), label] -= 1
        self.weights -= rate / len(label) * (x.T @ error)

    def accuracy(self, batches: squirrel.Stream) -> float:
        right = total = 0
        for batch in batches:
            guess = self.probabilities(self.features(batch["image"])).argmax(axis=1)
            right += int((guess == batch["label"]).sum())
            total += len(guess)
        return right / total


def train(source: squirrel.Stream, test: squirrel.Stream) -> float:
    """Three epochs; tells how fast data came and how long the trainer waited for it."""
    model = Softmax(28 * 28)
    for epoch in range(EPOCHS):
        samples = size = 0
        waited = 0.0
        start = asked = time.perf_counter()
        for batch in source.shuffle_all(seed=epoch).batch(BATCH):
            waited += time.perf_counter() - asked
            model.step(batch["image"], batch["label"], RATE / (epoch + 1))
            samples += len(batch["label"])
            size += batch["image"].nbytes + batch["label"].nbytes
            asked = time.perf_counter()
        seconds = time.perf_counter() - start
        accuracy = model.accuracy(test.batch(1000))
        print(f"epoch {epoch + 1}: test accuracy {accuracy:.1%}; {samples / seconds:,.0f} samples/s, "
              f"{size / seconds / 1e6:,.0f} MB/s, {waited / seconds:.1%} of the time waiting for data", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:,.0f} MB, NumPy and interpreter included")
    return accuracy


NEXT = """
What to try next (in `make demo`'s environment: . .venv/bin/activate):

  in the shell   squirrel info {folder}/train
                 squirrel head -n 3 --select label '{folder}/catalog.yaml#fashion-mnist-test'
                 squirrel cat --where 'label == 9' --select label {folder}/test | wc -l
                 squirrel bench --batch 256 {folder}/train
  in Python      import squirrel
                 for sample in squirrel.open("{folder}/train").filter("label == 9").take(3):
                     print(sample["label"], sample["image"].shape)
  in C           examples/c/first.c: meson setup build && ninja -C build install; make -C examples/c
  no machine     python examples/python/count_web_log.py: filters and counts a large web server's log;
  learning       examples/c/count_log.c and examples/shell/ do the same
"""


def main() -> int:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data")
    folder.mkdir(parents=True, exist_ok=True)
    idx = find_idx()
    pack(idx / "train-images-idx3-ubyte.gz", folder / "train")
    pack(idx / "t10k-images-idx3-ubyte.gz", folder / "test")
    catalog = Catalog.from_files([str(write_catalog(folder))])
    names = ", ".join(f"{name} (version {catalog[name].version})" for name in catalog.keys())
    print(f"catalog {folder}/catalog.yaml: {names}")
    train_source = catalog["fashion-mnist-train"].get_driver().get_iter()
    test_source = catalog["fashion-mnist-test"].get_driver().get_iter()
    print(repr(train_source), f"{len(train_source):,} samples")
    accuracy = train(train_source, test_source)
    print(NEXT.format(folder=folder))
    return 0 if accuracy > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
