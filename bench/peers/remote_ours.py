"""This library, behind a slow link."""
import remote_common


def make_photos(folder):
    import squirrel

    samples, each = remote_common.photos_of(folder)
    squirrel.pack(samples, folder, codec="none", samples_per_shard=each)


def read_views(place):
    import squirrel

    return squirrel.open(place.url).iterator(copy=False)


def read_views_s3(place):
    import squirrel

    return squirrel.open(place.s3, endpoint=place.endpoint, anonymous=True).iterator(copy=False)


def read_shuffled_views(place):
    import squirrel

    return squirrel.open(place.url).shuffle_all(seed=1).iterator(copy=False)


def read_dicts(place):
    import squirrel

    return iter(squirrel.open(place.url))


def read_batches(place):
    import squirrel

    return iter(squirrel.open(place.url).batch(256))


def read_shuffled_batches(place):
    import squirrel

    return iter(squirrel.open(place.url).shuffle_all(seed=1).batch(256))


def read_store_s3(place):
    """squirrel-core's shards; a listing tells their sizes."""
    import squirrel

    return iter(squirrel.open(place.s3, endpoint=place.endpoint, anonymous=True))


def read_store(place):
    """The same by http, where nothing can be listed: each size is asked for."""
    import squirrel

    return iter(squirrel.open(place.url, keys=",".join(name for name, _ in place.files)))


def read_local(place):
    """The same from this machine's disk: no link at all."""
    import squirrel

    return iter(squirrel.open(place.folder))


if __name__ == "__main__":
    remote_common.main(globals(), "squirrel", "numpy")
