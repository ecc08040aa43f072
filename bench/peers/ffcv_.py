"""FFCV: raw arrays of work A in batches of 256."""
import common


class _Work:
    def __init__(self):
        self.x, self.y = common.work_a()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        import numpy as np

        return np.array(self.x[i]), int(self.y[i])


def make_a(folder):
    import os

    import numpy as np
    from ffcv.fields import IntField, NDArrayField
    from ffcv.writer import DatasetWriter

    os.makedirs(folder, exist_ok=True)
    fields = {"image": NDArrayField(dtype=np.dtype("uint8"), shape=(32, 32, 3)), "label": IntField()}
    DatasetWriter(f"{folder}/a.beton", fields, num_workers=1).from_indexed_dataset(_Work())


def read_a_batches(folder):
    from ffcv.fields.decoders import IntDecoder, NDArrayDecoder
    from ffcv.loader import Loader, OrderOption

    loader = Loader(f"{folder}/a.beton", batch_size=256, num_workers=2, order=OrderOption.SEQUENTIAL,
                    os_cache=True, drop_last=False,
                    pipelines={"image": [NDArrayDecoder()], "label": [IntDecoder()]})
    for image, label in loader:
        yield {"image": image, "label": label[:, 0]}


if __name__ == "__main__":
    common.main(globals())
