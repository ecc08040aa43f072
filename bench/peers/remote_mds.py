"""MosaicML streaming: MDS shards from S3, in its own process (its forked workers inherit an open connection)."""
import mds
import remote_common


def make_photos(folder):
    from streaming import MDSWriter

    shard_bytes = int(folder.split("-")[-2]) * 1_000_000
    with MDSWriter(out=folder, columns={"id": "int", "x": "bytes"}, size_limit=shard_bytes) as writer:
        for sample in remote_common.photos_of(folder)[0]:
            writer.write(sample)


def make_a(folder):
    mds.make_a(folder)


def read(place):
    from streaming import StreamingDataset

    return iter(StreamingDataset(remote=place.s3, local=f"{place.scratch}/mds", shuffle=False, batch_size=256,
                                 predownload=100_000, download_timeout=600))


if __name__ == "__main__":
    remote_common.main(globals(), "streaming", "boto3", "numpy")
