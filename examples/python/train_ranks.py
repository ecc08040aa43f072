"""ImageNet-like training: shards split by rank and worker before anything is read; every sample comes exactly once.

    python examples/python/train_ranks.py [FOLDER]

Two processes (gloo) with two DataLoader workers each. Keys are shuffled with one seed, another order in each epoch; a
worker opens only the shards that are its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing

from squirrel.driver import MessagepackDriver
from squirrel.iterstream.torch_composables import SplitByRank, SplitByWorker
from squirrel.serialization import MessagepackSerializer
from squirrel.store import SquirrelStore

SHARDS, PER_SHARD, RANKS, WORKERS, EPOCHS, BATCH = 24, 100, 2, 2, 2, 64


def write(url: str) -> None:
    """Pictures uint8[16, 16, 3] with their numbers and labels."""
    store = SquirrelStore(url, serializer=MessagepackSerializer())
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        images = rng.integers(0, 256, (PER_SHARD, 16, 16, 3), np.uint8)
        first = shard * PER_SHARD
        store.set([{"image": image, "number": first + i, "label": i % 10} for i, image in enumerate(images)])


def augment(sample: dict) -> dict:
    return {**sample, "image": sample["image"][:, ::-1].astype(np.float32) / 255}


def normalize(sample: dict) -> dict:
    return {**sample, "image": sample["image"] - 0.5}


def collate(samples: list[dict]) -> dict:
    return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}


def train(rank: int, url: str, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    stream = MessagepackDriver(url).get_iter(
        shuffle_key_buffer=SHARDS,
        key_shuffle_kwargs={"seed": 7},
        key_hooks=[SplitByRank, SplitByWorker],
        shuffle_item_buffer=500,
        item_shuffle_kwargs={"seed": 7},
    )
    stream = stream.map(augment).async_map(normalize, 20).batched(BATCH, collate, drop_last_if_not_full=False)
    for epoch in range(EPOCHS):
        loader = torch.utils.data.DataLoader(
            stream.to_torch_iterable().set_epoch(epoch), batch_size=None, num_workers=WORKERS
        )
        numbers = torch.cat([batch["number"] for batch in loader])
        np.save(f"{folder}/rank-{rank}-epoch-{epoch}.npy", numbers.numpy())
    torch.distributed.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        url = str(Path(folder) / "train")
        write(url)
        torch.multiprocessing.spawn(train, (url, folder), nprocs=RANKS)
        orders = []
        for epoch in range(EPOCHS):
            parts = [np.load(f"{folder}/rank-{rank}-epoch-{epoch}.npy") for rank in range(RANKS)]
            seen = Counter(np.concatenate(parts).tolist())
            assert seen == Counter(range(SHARDS * PER_SHARD)), "a sample is lost or came twice"
            orders.append(parts[0].tolist())
        assert orders[0] != orders[1]
        count = SHARDS * PER_SHARD
        print(f"{count} samples, each exactly once in each of {EPOCHS} epochs, over {RANKS} x {WORKERS} workers")


if __name__ == "__main__":
    main()
