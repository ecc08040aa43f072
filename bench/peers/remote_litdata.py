"""LitData from S3, in this process. Its quicker way to download, obstore, is for https only: here http is allowed."""
import litdata_
import remote_common


def make_photos(folder):
    from litdata.streaming.writer import BinaryWriter

    shard = int(folder.split("-")[-2])
    writer = BinaryWriter(folder, chunk_bytes=f"{shard}MB")
    for i, sample in enumerate(remote_common.photos_of(folder)[0]):
        writer[i] = sample
    writer.done()
    writer.merge()


def make_a(folder):
    litdata_.make_a(folder)


def read(place):
    from litdata import StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS = {**downloader._OBSTORE_CLIENT_OPTIONS, "allow_http": True}
    return iter(StreamingDataset(place.s3, cache_dir=f"{place.scratch}/cache", shuffle=False, max_pre_download=16,
                                 storage_options={"endpoint_url": place.endpoint, "aws_access_key_id": "none",
                                                  "aws_secret_access_key": "none", "region_name": "us-east-1"}))


if __name__ == "__main__":
    remote_common.main(globals(), "litdata", "boto3", "numpy")
