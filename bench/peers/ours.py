"""This library."""
import common


def make_a(folder):
    import squirrel

    squirrel.pack(common.work_a_samples(), folder, samples_per_shard=1000)


def make_b(folder):
    import squirrel

    squirrel.pack(common.work_b_samples(), folder)


def make_b_lz4(folder):
    import squirrel

    squirrel.pack(common.work_b_samples(), folder, codec="lz4")


def read_dicts(folder):
    import squirrel

    return iter(squirrel.open(folder))


def read_batches(folder):
    import squirrel

    return iter(squirrel.open(folder).batch(256))


def read_shuffled_batches(folder):
    import squirrel

    return iter(squirrel.open(folder).shuffle_all(seed=1).batch(256))


def pack_a(samples, folder):
    import squirrel

    squirrel.pack(samples, folder, samples_per_shard=1000)


def pack_b(samples, folder):
    import squirrel

    squirrel.pack(samples, folder)


def first_a(folder):
    next(read_dicts(folder))


def stream_10gb(folder):
    """Memory: 10 GB streamed in batches; the data set is opened again until that much went by."""
    import squirrel

    seen = 0
    while seen < 10e9:
        for batch in squirrel.open(folder).batch(256):
            seen += batch["image"].nbytes
            yield batch


if __name__ == "__main__":
    common.main(globals())
