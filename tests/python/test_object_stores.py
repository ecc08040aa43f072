"""Object stores: moto, SeaweedFS, gcp-storage-emulator and the Azure stand-in, read, written, packed to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import squirrel

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import azure_server  # noqa: E402
from object_servers import KEY, SECRET, Absent, make_bucket, object_server  # noqa: E402

fsspec = pytest.importorskip("fsspec")

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR", "CLOUDSDK")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _served(kind: str) -> Iterator[str]:
    try:
        with object_server(kind) as endpoint:
            if kind != "seaweedfs":
                make_bucket(kind, endpoint, "bucket")
            yield endpoint
    except Absent as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    yield from _served("moto")


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    yield from _served("gcs")


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    yield from _served("azure")


Place = tuple[str, dict[str, Any]]


@pytest.fixture(params=["s3", "gs-xml", "gs-json", "az"])
def place(request: pytest.FixtureRequest) -> Place:
    """A URL that nothing lies below, and the options that lead there."""
    name = request.node.name.replace("[", "-").replace("]", "")
    if request.param == "s3":
        endpoint = request.getfixturevalue("moto")
        return f"s3://bucket/{name}", {"endpoint": endpoint, "access_key_id": "k", "secret_access_key": "a-secret"}
    if request.param == "gs-xml":
        return f"gs://bucket/{name}", {"endpoint": request.getfixturevalue("moto"), "api": "xml", "token": "t"}
    if request.param == "gs-json":
        return f"gs://bucket/{name}", {"endpoint": request.getfixturevalue("gcs"), "anonymous": True}
    endpoint = f"{request.getfixturevalue('azure')}/{azure_server.ACCOUNT}"
    keys = {"account_name": azure_server.ACCOUNT, "account_key": azure_server.KEY}
    return f"az://bucket/{name}", {"endpoint": endpoint, **keys}


def system(place: Place) -> Any:
    """fsspec's file system over the library's."""
    import squirrel.fsspec.native  # noqa: F401

    return fsspec.filesystem("sqrl+" + place[0].partition("://")[0], **place[1])


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": n, "text": f"row {n} " * 20} for n in range(first, first + count)]


def numbers(samples: Any) -> list[int]:
    return [sample["n"] for sample in samples]


# --- packing and reading ---


def test_pack_and_read(place: Place) -> None:
    url, options = place
    report = squirrel.pack(rows(3000), url, samples_per_shard=800, **options)
    assert report.samples == 3000 and report.shards == 4
    stream = squirrel.open(url, **options)
    assert stream.driver == "sqrl" and len(stream) == 3000
    assert numbers(stream) == list(range(3000))
    assert sorted(numbers(stream.shuffle_all(seed=5))) == list(range(3000))
    assert stream[2345]["n"] == 2345
    with pytest.raises(squirrel.ExistsError):
        squirrel.pack(rows(1), url, **options)
    squirrel.pack(rows(100, 3000), url, append=True, **options)
    assert numbers(squirrel.open(url, **options)) == list(range(3100))
    squirrel.pack(rows(7), url, overwrite=True, **options)
    assert numbers(squirrel.open(url, **options)) == list(range(7))
    assert len([name for name in system(place).find(url) if name.endswith(".sqrl")]) == 1


def test_one_file(place: Place) -> None:
    url, options = place
    squirrel.pack(rows(500), f"{url}/x.jsonl.gz", **options)
    assert numbers(squirrel.open(f"{url}/x.jsonl.gz", **options)) == list(range(500))


def _fails_at_first(item: tuple[int, str]) -> dict[str, Any]:
    n, repaired = item
    if n >= 700 and not os.path.exists(repaired):
        raise ValueError("late")
    return {"n": n, "text": "x" * 100}


def test_workers_and_resume(place: Place, tmp_path: Path) -> None:
    url, options = place
    repaired = tmp_path / "repaired"
    inputs = [(n, str(repaired)) for n in range(1000)]

    def pack() -> Any:
        return squirrel.pack(
            inputs, url, map=_fails_at_first, workers=2, resume=True, inputs_per_task=100, **options
        )

    with pytest.raises(Exception, match="late"):
        pack()
    with pytest.raises(squirrel.StateError, match="no commit"):
        squirrel.open(url, **options)
    done = {name for name in system(place).find(url) if name.endswith(".sqrl")}
    journal = next((tmp_path / "state").rglob("*.journal")).read_text()
    assert done and not [v for k, v in options.items() if k in ("secret_access_key", "account_key") and v in journal]
    repaired.touch()
    assert pack().samples == 1000
    assert numbers(squirrel.open(url, **options)) == list(range(1000))
    # What was done before was kept: all but what was under way.
    assert len(done & set(system(place).find(url))) >= 1
    assert pack().samples == 1000  # it is done: nothing is written again
    assert len([name for name in system(place).find(url) if name.endswith(".idx")]) == 1


def test_a_killed_pack_leaves_nothing_to_be_seen(
    moto: str, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    url = "s3://bucket/killed"
    options = {"endpoint": moto, "access_key_id": "k", "secret_access_key": "s"}
    code = f"""
import os, squirrel
def samples():
    for n in range(10**9):
        yield {{"n": n, "x": os.urandom(100_000)}}
        if n == 300:
            print("under way", flush=True)
squirrel.pack(samples(), {url!r}, shard_bytes="1GiB", part_size="5MiB", **{options!r})
"""
    fs = system((url, options))
    child = started([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"under way\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert [name for name in fs.find("bucket/killed") if name.endswith((".sqrl", ".idx"))] == []
    with pytest.raises(squirrel.Error):
        list(squirrel.open(url, **options))
    squirrel.pack(rows(10), url, **options)
    assert numbers(squirrel.open(url, **options)) == list(range(10))


def test_large_objects_go_in_parts(place: Place) -> None:
    fs, name = system((place[0], {**place[1], "part_size": "5 MiB"})), f"{place[0]}/large"
    data = os.urandom(1 << 20) * 41 + b"end"
    with fs.open(name, "wb") as file:
        for start in range(0, len(data), 3_000_000):
            file.write(data[start : start + 3_000_000])
        assert not fs.exists(name)
    assert fs.info(name)["size"] == len(data)
    assert fs.cat_file(name) == data
    assert fs.cat_file(name, -10) == data[-10:] and fs.cat_file(name, 5, 25) == data[5:25]
    with pytest.raises(RuntimeError), fs.open(f"{name}-2", "wb") as file:
        file.write(data)
        raise RuntimeError("given up")
    assert not fs.exists(f"{name}-2")


def test_exclusive_creation(place: Place) -> None:
    fs, name = system(place), f"{place[0]}/one"
    first, second = fs.open(name, "xb"), fs.open(name, "xb")
    first.write(b"first")
    second.write(b"second")
    first.close()
    with pytest.raises(squirrel.ExistsError):
        second.close()
    assert fs.cat_file(name) == b"first"
    with pytest.raises(squirrel.ExistsError):
        fs.open(name, "xb")


def test_many_pages(place: Place) -> None:
    """More objects than one answer holds: 1,000 of S3; the others give smaller pages on request."""
    fs = system(place)
    count = 1105 if place[0].startswith("s3") else 120
    names = [f"{place[0].partition('://')[2]}/d{n % 3}/{n:05}" for n in range(count)]
    for name in names:
        fs.pipe_file(name, b"x")
    assert fs.find(place[0]) == sorted(names)
    assert [entry.rpartition("/")[2] for entry in fs.ls(place[0], detail=False)] == ["d0", "d1", "d2"]


# --- fsspec's side ---


def test_pandas_and_pyarrow(place: Place) -> None:
    pandas, url = pytest.importorskip("pandas"), f"sqrl+{place[0]}"
    parquet = pytest.importorskip("pyarrow.parquet")
    system(place)
    frame = pandas.DataFrame({"a": range(1000), "b": [str(n) for n in range(1000)]})
    frame.to_parquet(f"{url}/t.parquet", storage_options=place[1])
    assert pandas.read_parquet(f"{url}/t.parquet", storage_options=place[1]).equals(frame)
    frame.to_csv(f"{url}/t.csv", index=False, storage_options=place[1])
    assert pandas.read_csv(f"{url}/t.csv", storage_options=place[1]).a.sum() == 499500
    path = place[0].partition("://")[2]
    table = parquet.read_table(f"{path}/t.parquet", filesystem=system(place))
    assert table.num_rows == 1000 and table.column("b")[999].as_py() == "999"


def test_batches_of_ranges(place: Place) -> None:
    fs, path = system(place), place[0].partition("://")[2]
    contents = {f"{path}/{n}": os.urandom(5000 + n) for n in range(5)}
    for name, data in contents.items():
        fs.pipe_file(name, data)
    paths = [name for name in contents for _ in range(4)]
    starts, ends = [0, 100, -50, None] * 5, [10, 4000, None, None] * 5
    expected = [contents[name][start:end] for name, start, end in zip(paths, starts, ends)]
    assert fs.cat_ranges(paths, starts, ends) == expected
    assert fs.cat(list(contents)) == contents
    found = fs.cat_ranges([paths[0], f"{path}/none"], [0, 0], [3, 3])
    assert found[0] == contents[paths[0]][:3] and isinstance(found[1], FileNotFoundError)
    fs.rm(path, recursive=True)
    assert fs.find(path) == [] and not fs.exists(paths[0])


def test_stores_of_squirrel_core(place: Place) -> None:
    """Their classes, through the library's file system where s3fs, gcsfs, adlfs are not installed or are not asked."""
    from squirrel.serialization import MessagepackSerializer
    from squirrel.store import SquirrelStore

    store = SquirrelStore(f"sqrl+{place[0]}", serializer=MessagepackSerializer(), **place[1])
    for shard in range(3):
        store.set(rows(10, shard * 10), key=f"s{shard}")
    assert list(store.keys()) == ["s0", "s1", "s2"]
    assert numbers(store.get("s1")) == list(range(10, 20))
    assert numbers(squirrel.open(place[0], driver="messagepack", **place[1])) == list(range(30))


def test_catalogs(place: Place, tmp_path: Path) -> None:
    from squirrel.catalog import Catalog, Source

    url, options = place
    squirrel.pack(rows(50), url, **options)
    catalog = Catalog()
    catalog["remote"] = Source("sqrl", driver_kwargs={"url": url, "storage_options": options})
    assert numbers(catalog["remote"].get_driver().get_iter()) == list(range(50))


# --- names from elsewhere ---


def test_storage_options_of_s3fs(moto: str) -> None:
    squirrel.pack(rows(20), "s3://bucket/options", endpoint=moto, access_key_id="k", secret_access_key="s")
    for storage_options in (
        {"key": "k", "secret": "s", "token": "t", "endpoint_url": moto, "default_block_size": 5},
        {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": moto, "region_name": "eu-west-1"}, "anon": False},
        {"key": "k", "secret": "s", "endpoint_url": moto, "config_kwargs": {"s3": {"addressing_style": "path"}}},
    ):
        assert numbers(squirrel.open("s3://bucket/options", storage_options=storage_options)) == list(range(20))
    storage_options = {"key": "k", "secret": "s", "endpoint_url": moto}
    report = squirrel.pack(rows(5), "s3://bucket/options2", storage_options=storage_options)
    assert report.samples == 5


def test_what_only_fsspec_knows_is_left_to_it() -> None:
    from squirrel._storage_options import native_options

    systems = {item["name"]: item for item in squirrel.file_systems()}
    assert native_options(systems["s3"], {"session": object()}) is None
    assert native_options(systems["gs"], {"token": "browser"}) is None
    assert native_options(systems["az"], {"credential": object()}) is None
    assert native_options(systems["gs"], {"token": "anon"}) == {"anonymous": True}
    assert native_options(systems["gs"], {"token": "/a/key.json"}) == {"credentials": "/a/key.json"}
    assert native_options(systems["az"], {"account_name": "a", "sas_token": "x"}) == {
        "account_name": "a", "sas_token": "x",
    }  # fmt: skip


def test_no_option_of_a_file_system_is_a_formats() -> None:
    """Both would get it: one list of settings serves them."""
    names = {option["name"] for item in squirrel.formats() for option in [*item["options"], *item["write_options"]]}
    names |= {option["name"] for item in squirrel.drivers() for option in item["options"]}
    for item in squirrel.file_systems():
        assert not names & {option["name"] for option in item["options"]}, item["name"]


# --- SeaweedFS: it checks signatures ---


def test_seaweedfs(tmp_path: Path) -> None:
    for endpoint in _served("seaweedfs"):
        keys = {"endpoint": endpoint, "access_key_id": KEY, "secret_access_key": SECRET}
        _make_signed_bucket(endpoint)
        _with_seaweedfs(keys)
        _killed_command(keys, tmp_path)
        wrong = {**keys, "secret_access_key": "wrong-secret-" + "x" * 20}
        with pytest.raises(squirrel.AccessError) as caught:
            squirrel.open("s3://signed/set", **wrong)
        assert "wrong-secret" not in str(caught.value) and KEY not in str(caught.value)


def _make_signed_bucket(endpoint: str) -> None:
    botocore_auth = pytest.importorskip("botocore.auth")
    import urllib.request

    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("PUT", f"{endpoint}/signed")
    credentials = Credentials(KEY, SECRET)
    botocore_auth.S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
    plain = urllib.request.Request(f"{endpoint}/signed", headers=dict(request.headers), method="PUT")
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(plain, timeout=30):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _with_seaweedfs(options: dict[str, Any]) -> None:
    deadline = time.monotonic() + 60
    while True:  # volumes are there a little later than the port
        try:
            squirrel.pack(rows(2000), "s3://signed/set", samples_per_shard=500, overwrite=True, **options)
            break
        except squirrel.StorageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
    assert numbers(squirrel.open("s3://signed/set", **options)) == list(range(2000))
    fs = system(("s3://signed", options))
    odd = "signed/odd names/a b+c%20d&e=f ä~'()*!.bin"
    data = os.urandom(34 << 20)
    with fs.open(odd, "wb") as file:
        file.write(data)
    assert fs.cat_file(odd) == data and fs.find("signed/odd names") == [odd]
    fs.rm_file(odd)
    assert not fs.exists(odd)


def _killed_command(keys: dict[str, Any], tmp_path: Path) -> None:
    """`squirrel pack` straight to the bucket, killed in the middle: nothing is to be seen; the usual read loops."""
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"n": n, "text": f"row {n} " * 2000}) + "\n" for n in range(4000)))
    environment = {**os.environ, "AWS_ENDPOINT_URL": keys["endpoint"], "AWS_ACCESS_KEY_ID": keys["access_key_id"],
                   "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"]}  # fmt: skip
    program = shutil.which("squirrel", path=os.path.dirname(sys.executable))
    if program is None:
        pytest.skip("the command is not installed beside this Python")
    words = [program, "pack", str(source), "s3://signed/command", "--codec", "none", "--samples-per-shard", "400"]
    fs = system(("s3://signed", keys))

    def shards() -> list[str]:
        return [name for name in fs.find("signed/command") if name.endswith(".sqrl")]

    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 60
        while not shards() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        child.kill()
    if child.returncode != 0:  # it was not faster
        with pytest.raises(squirrel.StateError, match="no commit"):
            squirrel.open("s3://signed/command", **keys)
        assert {len(squirrel.open(f"s3://{name}", **keys)) for name in shards()} <= {400}, "whole ones"
        again = subprocess.run([*words, "--overwrite"], env=environment, capture_output=True, text=True, timeout=300)
        assert again.returncode == 0 and keys["secret_access_key"] not in again.stderr, again.stderr
    stream = squirrel.open("s3://signed/command", **keys)
    assert numbers(stream) == list(range(4000)) and len(stream) == 4000
    torch = pytest.importorskip("torch.utils.data")
    # As MosaicML's users read, by position, and as WebDataset's do, by a pipeline of steps.
    loader = torch.DataLoader(stream, batch_size=500, shuffle=True, num_workers=2, collate_fn=numbers)
    assert sorted(n for batch in loader for n in batch) == list(range(4000))
    pipeline = stream.shuffle_all(7).distribute().map(lambda sample: (sample["n"], sample["text"])).batched(100)
    loader = torch.DataLoader(pipeline.to_torch_iterable(), batch_size=None, num_workers=2)
    assert sorted(n for batch in loader for n, _ in batch) == list(range(4000))


# --- the packer's command ---


def test_the_command(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squirrel.pack(rows(30), tmp_path / "local")
    environment = {**os.environ, "AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, environment[name])
    squirrel.pack(squirrel.open(tmp_path / "local"), "s3://bucket/command")
    assert numbers(squirrel.open("s3://bucket/command")) == list(range(30))


def test_azure_sdk_and_ours(azure: str) -> None:
    """The stand-in takes what Microsoft's package signs, so that what it takes of ours is signed as well."""
    blob = pytest.importorskip("azure.storage.blob")
    client = blob.BlobServiceClient(
        f"{azure}/{azure_server.ACCOUNT}", credential=azure_server.KEY, retry_total=0, api_version="2021-08-06"
    )
    container = client.get_container_client("bucket")
    container.upload_blob("sdk/a b ä", b"from the sdk", overwrite=True)
    url, options = f"{azure}/{azure_server.ACCOUNT}", {"account_name": azure_server.ACCOUNT}
    fs = system(("az://bucket", {"endpoint": url, "account_key": azure_server.KEY, **options}))
    assert fs.cat_file("bucket/sdk/a b ä") == b"from the sdk"
    fs.pipe_file("bucket/sdk/ours", b"from us")
    assert container.download_blob("sdk/ours").readall() == b"from us"
    assert sorted(item.name for item in container.list_blobs("sdk/")) == ["sdk/a b ä", "sdk/ours"]
    shared = system(("az://bucket", {"endpoint": url, "sas_token": "?sv=2021&sig=sas-signature%2B%2F%3D", **options}))
    assert shared.cat_file("bucket/sdk/ours") == b"from us"
    for wrong in ({"account_key": "d3Jvbmc="}, {"sas_token": "sv=1&sig=stolen"}, {"anonymous": True}):
        with pytest.raises(squirrel.AccessError) as caught:
            system(("az://bucket", {"endpoint": url, **options, **wrong})).cat_file("bucket/sdk/ours")
        assert "stolen" not in str(caught.value) and "d3Jvbmc" not in str(caught.value)


