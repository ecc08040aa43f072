"""LitData: optimize() to write, StreamingDataset to read. It empties <tempdir>/data, so it gets a
temporary folder of its own."""
import os
import tempfile

import common

_home = tempfile.mkdtemp(prefix="litdata-")
os.environ["TMPDIR"] = tempfile.tempdir = _home
os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = f"{_home}/cache"
os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = f"{_home}/data-cache"


def _write(samples, folder):
    from litdata.streaming.writer import BinaryWriter

    os.makedirs(folder, exist_ok=True)
    writer = BinaryWriter(folder, chunk_bytes="64MB")
    for i, sample in enumerate(samples):
        writer[i] = sample
    writer.done()
    writer.merge()


def make_a(folder):
    _write(common.work_a_samples(), folder)


def read_a_dicts(folder):
    from litdata import StreamingDataset

    return iter(StreamingDataset(folder, shuffle=False))


_SAMPLES = []


def _sample(i):
    return _SAMPLES[i]


def pack_a(samples, folder):
    """optimize() with two workers, as its documentation writes data sets."""
    import litdata

    _SAMPLES[:] = samples
    litdata.optimize(fn=_sample, inputs=list(range(len(samples))), output_dir=folder, num_workers=2,
                     chunk_bytes="64MB", start_method="fork")
    common.sync_folder(folder)


def first_a(folder):
    next(read_a_dicts(folder))


if __name__ == "__main__":
    common.main(globals())
