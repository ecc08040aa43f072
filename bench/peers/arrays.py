"""No loader: NumPy and torch on a mapped .npy file, LMDB, Lance, Parquet, orjson over gzip."""
import common


def make_a(folder):
    import os
    import shutil

    os.makedirs(folder, exist_ok=True)
    shutil.copy(f"{common.WORKS}/A_x.npy", folder)
    shutil.copy(f"{common.WORKS}/A_y.npy", folder)


def _arrays(folder):
    import numpy as np

    return np.load(f"{folder}/A_x.npy", mmap_mode="r"), np.load(f"{folder}/A_y.npy")


def read_mmap_dicts(folder):
    import numpy as np

    x, y = _arrays(folder)
    x = np.asarray(x)
    labels = y.tolist()
    for i in range(len(x)):
        yield {"image": x[i].copy(), "label": labels[i]}


def read_mmap_batches(folder):
    import numpy as np

    x, y = _arrays(folder)
    x = np.asarray(x)
    for i in range(0, len(x), 256):
        yield {"image": x[i:i + 256].copy(), "label": y[i:i + 256].copy()}


def read_torch_batches(folder):
    import numpy as np
    import torch

    torch.set_num_threads(2)
    x, y = _arrays(folder)
    import warnings

    warnings.simplefilter("ignore")
    images, labels = torch.from_numpy(np.asarray(x)), torch.from_numpy(y)
    for i in range(0, len(x), 256):
        index = torch.arange(i, min(i + 256, len(x)))
        yield {"image": images[index].numpy(), "label": labels[index].numpy()}


def read_orjson_gzip(folder):
    import glob
    import gzip

    import orjson

    for path in sorted(glob.glob(f"{folder}/*.gz")):
        with gzip.open(path) as lines:
            for line in lines:
                yield orjson.loads(line)


def pack_a_lmdb(samples, folder):
    import os

    import lmdb
    import msgpack

    os.makedirs(folder)
    db = lmdb.open(folder, map_size=1 << 32, sync=True)
    for at in range(0, len(samples), 1000):
        with db.begin(write=True) as transaction:
            for i, s in enumerate(samples[at:at + 1000], at):
                transaction.put(b"%08d" % i, msgpack.packb((s["image"].tobytes(), s["label"])), append=True)
    db.sync(True)
    db.close()


def pack_a_lance(samples, folder):
    import lance
    import numpy as np
    import pyarrow as pa

    schema = pa.schema([("image", pa.list_(pa.uint8(), 3072)), ("label", pa.int64())])

    def batches():
        for at in range(0, len(samples), 1000):
            part = samples[at:at + 1000]
            flat = np.concatenate([s["image"].reshape(-1) for s in part])
            yield pa.record_batch([pa.FixedSizeListArray.from_arrays(pa.array(flat), 3072),
                                   pa.array([s["label"] for s in part])], schema=schema)

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), folder)
    common.sync_folder(folder)


def pack_b_parquet(samples, folder):
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

    os.makedirs(folder)
    with pq.ParquetWriter(f"{folder}/b.parquet", pa.schema([("text", pa.string())]), compression="zstd") as writer:
        for at in range(0, len(samples), 50_000):
            writer.write_table(pa.table({"text": [s["text"] for s in samples[at:at + 50_000]]}))
    common.sync_folder(folder)


if __name__ == "__main__":
    common.main(globals())
