"""Hugging Face datasets: Parquet files by http, streaming."""
import remote_common

PROCESSES = 8


def make_photos(folder):
    import datasets

    for number, samples in remote_common.in_shards(folder):
        datasets.Dataset.from_list(samples).to_parquet(f"{folder}/{number:05d}.parquet")


def make_a(folder):
    """As arrays that Arrow gives to NumPy without a copy."""
    import os

    import common
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, y = common.work_a()
    os.makedirs(folder)
    for at in range(0, len(x), 2000):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(x[at : at + 2000]).reshape(-1)), 3072)
        pq.write_table(pa.table({"image": flat, "label": pa.array(y[at : at + 2000])}), f"{folder}/{at:06d}.parquet")


def _rows(place):
    import datasets

    files = [f"{place.url}/{name}" for name, _ in place.files]
    return datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)


def read_photos(place):
    return iter(_rows(place))


def read_a(place):
    for batch in _rows(place).with_format("arrow").iter(256):
        column = batch.column("image").combine_chunks()
        column = column.chunk(0) if hasattr(column, "chunk") else column
        images = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, 32, 32, 3)
        yield {"image": images, "label": batch.column("label").to_numpy()}


if __name__ == "__main__":
    remote_common.main(globals(), "datasets", "aiohttp", "numpy")
