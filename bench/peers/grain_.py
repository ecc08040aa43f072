"""Grain and ArrayRecord."""
import common


def _write(samples, folder):
    import os
    import pickle

    from array_record.python import array_record_module

    os.makedirs(folder, exist_ok=True)
    writer = array_record_module.ArrayRecordWriter(f"{folder}/a.array_record", "group_size:1")
    for s in samples:
        writer.write(pickle.dumps((s["image"].tobytes(), s["label"]), 5))
    writer.close()


def make_a(folder):
    _write(common.work_a_samples(), folder)


def pack_a(samples, folder):
    _write(samples, folder)
    common.sync_folder(folder)


def read_a_dicts(folder):
    import pickle

    import grain
    import numpy as np

    def parse(record):
        image, label = pickle.loads(record)
        return {"image": np.frombuffer(image, np.uint8).reshape(32, 32, 3).copy(), "label": label}

    source = grain.sources.ArrayRecordDataSource(f"{folder}/a.array_record")
    return iter(grain.MapDataset.source(source).map(parse).to_iter_dataset())


def first_a(folder):
    next(read_a_dicts(folder))


if __name__ == "__main__":
    common.main(globals())
