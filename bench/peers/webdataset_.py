"""webdataset: tar shards of .npy and .cls members."""
import common


def make_a(folder):
    import os

    import webdataset as wds

    os.makedirs(folder, exist_ok=True)
    with wds.ShardWriter(f"{folder}/%05d.tar", maxcount=1000, verbose=0) as writer:
        for i, s in enumerate(common.work_a_samples()):
            writer.write({"__key__": f"{i:06d}", "image.npy": s["image"], "label.cls": s["label"]})


def read_a_dicts(folder):
    import glob

    import webdataset as wds

    data = wds.WebDataset(sorted(glob.glob(f"{folder}/*.tar")), shardshuffle=False).decode()
    for s in data:
        yield {"image": s["image.npy"], "label": s["label.cls"]}


if __name__ == "__main__":
    common.main(globals())
