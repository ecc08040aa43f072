"""Hugging Face datasets: its numpy format with dtype, and its raw Arrow buffers taken by hand."""
import common


def make_a_flat(folder):
    """A flat fixed-size list column: the quickest layout to NumPy."""
    import datasets
    import numpy as np
    import pyarrow as pa

    x, y = common.work_a()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(x).reshape(-1)), 3072)
    table = pa.table({"image": flat, "label": pa.array(y)})
    datasets.Dataset(table).save_to_disk(f"{folder}/set")


def make_b(folder):
    import datasets

    datasets.Dataset.from_list(common.work_b_samples()).save_to_disk(f"{folder}/set")


def _load(folder):
    import datasets

    return datasets.load_from_disk(f"{folder}/set", keep_in_memory=False)


def read_a_numpy_dicts(folder):
    import numpy as np

    for batch in _load(folder).with_format("numpy", dtype=np.uint8).iter(1000):
        images, labels = batch["image"].reshape(-1, 32, 32, 3), batch["label"].tolist()
        for i in range(len(images)):
            yield {"image": images[i].copy(), "label": labels[i]}


def read_a_arrow_dicts(folder):
    """Raw Arrow buffers by hand: one NumPy view per record batch, one owned copy per sample."""
    import numpy as np

    for batch in _load(folder).data.table.to_batches():
        images = np.frombuffer(batch.column("image").flatten().buffers()[1], np.uint8)
        images = images[batch.column("image").offset * 3072:][: len(batch) * 3072].reshape(-1, 32, 32, 3)
        labels = batch.column("label").to_numpy()
        for i in range(len(batch)):
            yield {"image": images[i].copy(), "label": int(labels[i])}


def read_a_numpy_batches(folder):
    import numpy as np

    data = _load(folder).with_format("numpy", dtype=np.uint8)
    for batch in data.iter(256):
        batch["image"] = batch["image"].reshape(-1, 32, 32, 3)
        yield batch


def read_a_arrow_batches(folder):
    """Slices of the raw Arrow buffers, no copy."""
    import numpy as np

    for batch in _load(folder).with_format("arrow").iter(256):
        column = batch.column("image").combine_chunks()
        column = column.chunk(0) if hasattr(column, "chunk") else column
        images = np.frombuffer(column.values.buffers()[1], np.uint8)
        images = images[column.offset * 3072:][: len(column) * 3072].reshape(-1, 32, 32, 3)
        yield {"image": images, "label": batch.column("label").to_numpy()}


def read_b_dicts(folder):
    return iter(_load(folder))


def read_b_batches(folder):
    for batch in _load(folder).with_format("arrow").iter(256):
        yield {"text": batch.column("text").to_pylist()}


def read_b_numpy_batches(folder):
    """To NumPy, as its numpy format gives text."""
    yield from _load(folder).with_format("numpy").iter(256)


def pack_b(samples, folder):
    import datasets

    datasets.Dataset.from_list(samples).save_to_disk(f"{folder}/set")
    common.sync_folder(folder)


def first_a(folder):
    read = read_a_numpy_dicts(folder)
    next(iter(read))


if __name__ == "__main__":
    common.main(globals())
