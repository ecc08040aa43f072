"""MosaicML streaming (MDS)."""
import common

COLUMNS = {"image": "ndarray:uint8:32,32,3", "label": "int"}


def make_a(folder):
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns=COLUMNS) as writer:
        for sample in common.work_a_samples():
            writer.write(sample)


def read_a_dicts(folder):
    from streaming import StreamingDataset

    return iter(StreamingDataset(local=folder, shuffle=False, batch_size=256))


def first_a(folder):
    next(read_a_dicts(folder))


if __name__ == "__main__":
    common.main(globals())
