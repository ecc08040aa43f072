"""s3torchconnector in a DataLoader with 8 processes: whole objects, webdataset's tar shards."""
import io
import tarfile

import remote_common

PROCESSES = 8


def _members(reader):
    """(name, bytes) of a tar."""
    with tarfile.open(fileobj=io.BytesIO(reader.read())) as tar:
        for member in tar:
            yield member.name, tar.extractfile(member).read()


def _photos(reader):
    return [{"id": int(name.split(".")[0]), "x": data} for name, data in _members(reader)]


def _a(reader):
    """One shard as one batch."""
    import numpy as np

    images, labels = [], []
    for name, data in _members(reader):
        if name.endswith(".npy"):
            images.append(np.load(io.BytesIO(data)))
        else:
            labels.append(int(data))
    return {"image": np.stack(images), "label": np.array(labels)}


def _load(place, transform):
    import torch
    from s3torchconnector import S3ClientConfig, S3IterableDataset

    data = S3IterableDataset.from_prefix(f"s3://{place.bucket}/", region="us-east-1", endpoint=place.endpoint,
                                         transform=transform, enable_sharding=True,
                                         s3client_config=S3ClientConfig(force_path_style=True, unsigned=True))
    return torch.utils.data.DataLoader(data, batch_size=None, num_workers=PROCESSES)


def read_photos(place):
    for shard in _load(place, _photos):
        yield from shard


def read_a(place):
    for batch in _load(place, _a):  # tensors in shared memory
        yield {"image": batch["image"].numpy(), "label": batch["label"].numpy()}


if __name__ == "__main__":
    remote_common.main(globals(), "s3torchconnector", "torch", "numpy")
