"""webdataset in a WebLoader with 8 processes, its shards through `pipe:curl`, as it reads from URLs."""
import remote_common

PROCESSES = 8


def make_photos(folder):
    import webdataset

    for number, samples in remote_common.in_shards(folder):
        with webdataset.TarWriter(f"{folder}/{number:05d}.tar") as sink:
            for sample in samples:
                sink.write({"__key__": f"{sample['id']:08d}", "bin": sample["x"]})


def _shards(place):
    import webdataset

    urls = [f"pipe:curl -s --noproxy '*' {place.url}/{name}" for name, _ in place.files]
    return webdataset.WebDataset(urls, shardshuffle=False)


def _load(data):
    import webdataset

    return webdataset.WebLoader(data, batch_size=None, num_workers=PROCESSES)


def read_photos(place):
    return _load(_shards(place).map(lambda s: {"id": int(s["__key__"]), "x": s["bin"]}))


def _batch(samples):
    import numpy as np

    return {"image": np.stack([s["image.npy"] for s in samples]), "label": np.array([s["label.cls"] for s in samples])}


def read_a(place):
    """Decoded and collated in the processes: batches of 256 cost the loader's queue less than samples do. They come as
    tensors in shared memory."""
    for batch in _load(_shards(place).decode().batched(256, collation_fn=_batch, partial=True)):
        yield {"image": batch["image"].numpy(), "label": batch["label"].numpy()}


if __name__ == "__main__":
    remote_common.main(globals(), "webdataset", "torch", "numpy")
