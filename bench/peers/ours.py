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


def read_window_dicts(folder):
    import squirrel

    return iter(squirrel.open(folder).shuffle_all(seed=1, window="1 GB"))


def read_window_batches(folder):
    import squirrel

    return iter(squirrel.open(folder).shuffle_all(seed=1, window="1 GB").batch(256))


def pack_a(samples, folder):
    import squirrel

    squirrel.pack(samples, folder, samples_per_shard=1000)


def pack_b(samples, folder):
    import squirrel

    squirrel.pack(samples, folder)


def first_a(folder):
    next(read_dicts(folder))


def make_10gb(folder):
    """Work A 54 times over: 10 GB."""
    import squirrel

    samples = common.work_a_samples()
    squirrel.pack((sample for _ in range(54) for sample in samples), folder)


if __name__ == "__main__":
    common.main(globals())
