"""http:// and https://: data sets on web servers, under every fault of the table in tests/support/fault_server.c."""

from __future__ import annotations

import functools
import http.server
import itertools
import itertools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import squirrel

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from fault_server import FAULTS as ALL_FAULTS
from fault_server import FaultServer, compiled  # noqa: E402
from object_servers import free_port  # noqa: E402

pytestmark = pytest.mark.once
SAMPLES = 3000
DEADLINE = 300.0  # for an epoch on a machine that is busy with others; each request has its own


def _native() -> bool:
    try:
        squirrel.open("http://127.0.0.1:9/none", attempts=1)
    except squirrel.Error as error:
        return "libcurl" not in str(error)
    return True


if not _native():
    pytest.skip("libcurl is not here, or the package was built without its headers", allow_module_level=True)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native data set of 40 shards, a store of squirrel-core's, and single files."""
    import gzip
    import json

    root = tmp_path_factory.mktemp("root")
    samples = [{"n": n, "x": os.urandom(700)} for n in range(SAMPLES)]
    squirrel.pack(samples, root / "set", samples_per_shard=75, block_bytes=16_000)
    store = root / "store"
    store.mkdir()
    for k in range(3):
        rows = "".join(json.dumps({"n": n}) + "\n" for n in range(100 * k, 100 * k + 100))
        (store / f"part {k}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (root / "one.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(50_000)))
    (root / "broken").mkdir()
    return root


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("bin"))
    if found is None:
        pytest.skip("no C compiler for tests/support/fault_server.c")
    return found


@pytest.fixture
def server(program: Path, root: Path) -> Iterator[FaultServer]:
    with FaultServer(program, root) as server:
        yield server


def numbers(samples: object) -> list[int]:
    return [sample["n"] for sample in samples]


# --- the fault table ---

# What a fault may end in besides all samples: words of the one error.
FAULTS = {
    "503": "answered 503", "429": "answered 429", "500": "answered 500", "reset_headers": "connection broke",
    "reset_body": "connection broke", "stall": "stalled|timeout", "trickle": "stalled|timeout",
    "truncate": "connection broke", "truncate_length": "contradict|ends at byte", "longer": "more than|contradict",
    "whole": "whole file", "range": "asked for bytes", "etag": "changed", "gzip": "Content-Encoding",
    "login": "text/html|no known format|belongs? to no commit|no such file|damaged|corrupt|not a commit",
    "loop": "circles", "file": "not followed", "flip": "checksum|corrupt|damaged", "late": "",
}  # fmt: skip


def _table() -> dict[tuple[str, float], str]:
    """What the manual says of each: docs/remote.md."""
    lines = (Path(__file__).parents[2] / "docs/remote.md").read_text().partition("| fault | 1 %")[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in itertools.takewhile(bool, lines)]
    return {(row[0], rate): row[n] for row in rows for n, rate in ((1, 0.01), (2, 0.2))}


def test_the_manual_has_all_faults() -> None:
    assert {fault for fault, _ in _table()} == set(FAULTS) == set(ALL_FAULTS)


@pytest.mark.parametrize("rate", [0.01, 0.2])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_an_epoch_under_faults(server: FaultServer, fault: str, rate: float) -> None:
    """Every sample exactly once, in order; or one clear error. Nothing hangs, nothing is lost."""
    stream = squirrel.open(f"{server.url}/set", stall_timeout=0.4, attempts=12)
    server.set(faults=f"{fault}={rate}", seed=4)
    began = time.monotonic()
    error = ""
    try:
        found = numbers(stream)
    except squirrel.Error as failure:
        error = str(failure)
    assert time.monotonic() - began < DEADLINE
    server.set(faults="")
    if rate > 0.1:
        assert server.counters()["faults"][fault] > 0
    if error:
        assert any(word in error for word in FAULTS[fault].split("|")), error
        assert server.url in error
        # Those that a repetition heals must not end in an error, however many there are.
        assert "an error" in _table()[fault, rate], error
    else:
        assert "all samples" in _table()[fault, rate] or not server.counters()["faults"][fault]
        assert found == list(range(SAMPLES))


def test_the_same_under_faults_while_opening(server: FaultServer) -> None:
    server.set(faults="503=0.2,reset_headers=0.1,reset_body=0.1,truncate=0.1", seed=7)
    assert numbers(squirrel.open(f"{server.url}/set", attempts=20)) == list(range(SAMPLES))


def test_refused_and_unknown_hosts() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(squirrel.Error, match="can't connect"):
            squirrel.open(f"http://127.0.0.1:{port}/set?X-Amz-Signature=secret")
    with pytest.raises(squirrel.Error, match="can't be resolved") as caught:
        squirrel.open("http://user:secret@no-such-host.invalid/set?sig=secret")
    assert "secret" not in str(caught.value)


# --- what can be opened ---


def test_what_web_servers_have(server: FaultServer) -> None:
    assert numbers(squirrel.open(f"{server.url}/set")) == list(range(SAMPLES))
    assert numbers(squirrel.open(f"{server.url}/set/")) == list(range(SAMPLES))
    assert numbers(squirrel.open(f"{server.url}/one.jsonl")) == list(range(50_000))
    assert numbers(squirrel.open(f"{server.url}/store/part%200.jsonl.gz")) == list(range(100))
    assert sorted(numbers(squirrel.open(f"{server.url}/store"))) == list(range(300))
    with pytest.raises(squirrel.NotFoundError):
        squirrel.open(f"{server.url}/none.jsonl")


def test_without_an_index_page(server: FaultServer) -> None:
    server.set(listing=0)
    assert len(squirrel.open(f"{server.url}/set")) == SAMPLES  # _sqrl/list says it all
    with pytest.raises(squirrel.Error, match="keys="):
        squirrel.open(f"{server.url}/store")
    keys = "part 0.jsonl.gz, part 1.jsonl.gz"
    assert sorted(numbers(squirrel.open(f"{server.url}/store", keys=keys))) == list(range(200))


def test_one_commit_named_in_the_url(server: FaultServer, root: Path, tmp_path: Path) -> None:
    folder = root / "appended"
    squirrel.pack([{"n": n} for n in range(10)], folder)
    (first,) = (folder / "_sqrl").glob("*.idx")
    squirrel.pack([{"n": n} for n in range(10, 20)], folder, append=True)
    try:
        assert numbers(squirrel.open(f"{server.url}/appended")) == list(range(20))
        assert numbers(squirrel.open(f"{server.url}/appended/_sqrl/{first.name}")) == list(range(10))
        assert numbers(squirrel.open(first)) == list(range(10))
    finally:
        shutil.rmtree(folder)


def test_requests_and_bytes(server: FaultServer, root: Path) -> None:
    """Each byte once, and few requests: the shards' size, and the commit."""
    server.reset()
    assert len(numbers(squirrel.open(f"{server.url}/set"))) == SAMPLES
    counters = server.counters()
    shards = list((root / "set").glob("*.sqrl"))
    size = sum(shard.stat().st_size for shard in shards)
    assert counters["bytes"] < 1.05 * size + (1 << 16)
    assert counters["requests"] <= 2 * len(shards) + 4
    assert counters["heads"] == 0


def test_a_server_without_ranges(root: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root)) as plain:
        threading.Thread(target=plain.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{plain.server_address[1]}"
        assert numbers(squirrel.open(f"{url}/one.jsonl")) == list(range(50_000))
        assert numbers(squirrel.open(f"{url}/set")) == list(range(SAMPLES))
        assert sorted(numbers(squirrel.open(f"{url}/store"))) == list(range(300))
        plain.shutdown()


def test_credentials(server: FaultServer) -> None:
    server.reset()
    stream = squirrel.open(f"{server.url}/one.jsonl", token="very-secret")
    assert len(numbers(stream)) == 50_000
    counters = server.counters()
    assert counters["authorized"] == counters["requests"] > 0
    assert "very-secret" not in repr(stream)
    server.reset()
    redirect = f"{server.url}/_to/http://localhost:{server.port}/one.jsonl"
    assert len(numbers(squirrel.open(redirect, driver="jsonl", token="very-secret"))) == 50_000
    rows = server.requests()
    assert server.counters()["authorized"] == sum(row["path"].startswith("/_to/") for row in rows) > 0


def test_private_addresses_for_urls_of_others(server: FaultServer) -> None:
    with pytest.raises(squirrel.Error, match="SQRL_ALLOW_PRIVATE"):
        squirrel.open(f"{server.url}/set", public_only=True)
    with pytest.raises(squirrel.Error, match="SQRL_ALLOW_PRIVATE"):
        squirrel.open(f"http://localhost:{server.port}/set", public_only=True)


def test_sources_of_catalogs_from_urls_reach_public_addresses_only(
    server: FaultServer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the catalog was read, copied, joined or pickled; a local catalog's sources reach all."""
    pytest.importorskip("fsspec")
    import pickle

    from squirrel.catalog import Catalog, CatalogKey, Source

    url = f"{server.url}/set"
    local = Catalog()
    local["set"] = Source("sqrl", driver_kwargs={"url": url})
    local["lines"] = Source("jsonl", driver_kwargs={"url": f"{server.url}/one.jsonl", "public_only": False})
    local["file"] = Source("file", driver_kwargs={"url": f"{server.url}/one.jsonl", "storage_options": {}})
    local["chain"] = Source("file", driver_kwargs={"url": f"simplecache::{server.url}/one.jsonl"})
    local["s3"] = Source("sqrl", driver_kwargs={"url": "s3://a/b", "storage_options": {
        "endpoint_url": server.url, "key": "k", "secret": "s"}})  # fmt: skip
    local["disk"] = Source("sqrl", driver_kwargs={"url": str(root / "set")})
    local.to_file(root / "catalog.yaml")
    assert len(numbers(local["set"].open())) == SAMPLES
    read = Catalog.from_files([f"{server.url}/catalog.yaml"])
    mine = Catalog()
    mine["set"] = read["set"]
    changed = Catalog.from_files([f"{server.url}/catalog.yaml"])
    changed["set"].metadata = {"seen": True}
    assert changed == changed.copy()
    for catalog in (read, read.copy(), read.slice(["set"]), Catalog().union(read), pickle.loads(pickle.dumps(read)),
                    mine, changed, changed.copy(), read.filter(lambda source: True)):  # fmt: skip
        with pytest.raises(squirrel.Error, match="SQRL_ALLOW_PRIVATE"):
            numbers(catalog["set"].open(attempts=1))
    popped = Catalog.from_files([f"{server.url}/catalog.yaml"]).pop(CatalogKey("set", 1))
    with pytest.raises(squirrel.Error, match="SQRL_ALLOW_PRIVATE"):
        numbers(popped.open())
    for name in ("lines", "s3"):
        with pytest.raises(squirrel.Error, match="SQRL_ALLOW_PRIVATE"):
            list(read[name].open())
    with pytest.raises((OSError, squirrel.Error), match="SQRL_ALLOW_PRIVATE"), read["file"].get_driver().open() as file:
        file.read()
    with pytest.raises(ValueError, match="SQRL_ALLOW_PRIVATE"):
        read["chain"].get_driver()
    assert len(numbers(read["disk"].open())) == SAMPLES
    assert len(numbers(read["set"].get_driver(url=url).get_iter())) == SAMPLES  # the caller's own URL
    assert read.to_str() == local.to_str() and read == local
    monkeypatch.setenv("SQRL_ALLOW_PRIVATE", "1")
    assert len(numbers(read["set"].open())) == SAMPLES


# --- processes ---


def test_nothing_is_opened_by_importing(script: Callable) -> None:
    found = script(
        """
        import squirrel
        squirrel.open  # the package's own import must not load it
        maps = open("/proc/self/maps").read()
        assert "libcurl" not in maps
        print("done")
        """
    )
    assert found.stdout.strip() == "done", found.stderr


def test_forks_and_ends(server: FaultServer, script: Callable) -> None:
    """Children of a process that has connections make their own; an end with a running stream hurts nobody."""
    found = script(
        """
        import os, sys
        import squirrel
        stream = squirrel.open(sys.argv[1])
        whole = [sample["n"] for sample in stream]
        children = []
        for k in range(3):
            pid = os.fork()
            if pid == 0:
                same = [sample["n"] for sample in stream] == whole
                os._exit(0 if same else 1)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        assert codes == [0, 0, 0], codes
        left = iter(stream)
        print(len(whole), next(left)["n"])
        """,
        f"{server.url}/set",
        timeout=DEADLINE,
    )
    assert found.returncode == 0 and found.stdout.split() == [str(SAMPLES), "0"], found.stderr


def test_a_forked_child_closes_its_parents_connections_and_nothing_else(server: FaultServer, script: Callable) -> None:
    """libcurl may close a socket without a word; its number is another file's then, here a pipe's."""
    found = script(
        """
        import os, socket, sys
        import squirrel
        stream = squirrel.open(sys.argv[1])
        count = sum(1 for _ in stream)

        def connections():
            found = []
            for number in map(int, os.listdir("/proc/self/fd")):
                try:
                    with socket.socket(fileno=os.dup(number)) as one:
                        if one.family == socket.AF_INET and one.getpeername()[1] == int(sys.argv[2]):
                            found.append(number)
                except OSError:  # no socket, or not one that is connected
                    pass
            return found

        def what(number):
            try:
                return os.fstat(number)[1:3]  # inode and device
            except OSError:
                return None

        taken, *others = connections()
        reading, writing = os.pipe()
        os.dup2(writing, taken)
        parents = {number: what(number) for number in others}
        pid = os.fork()
        if pid == 0:
            same = sum(1 for _ in stream) == count
            kept = what(taken) == what(writing)
            closed = all(what(number) != inode for number, inode in parents.items())
            os.write(1, f"{same} {kept} {closed}".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os._exit(0)  # its own engine has a pipe for a socket
        """,
        f"{server.url}/set",
        str(server.port),
        timeout=DEADLINE,
    )
    assert found.stdout == "True True True", found.stdout + found.stderr


def _until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def test_opening_asks_no_more_of_many_files_than_of_few(server: FaultServer, root: Path) -> None:
    """Each look at a far file costs a round trip: the first ones of a suffix answer for the rest."""
    asked = {}
    for count in (8, 60):
        folder = root / f"files{count}"
        folder.mkdir(exist_ok=True)
        for k in range(count):
            (folder / f"part{k:03d}.jsonl").write_text(f'{{"n": {k}}}\n')
        server.reset()
        stream = squirrel.open(f"{server.url}/files{count}")
        asked[count] = server.counters()["requests"]
        assert numbers(stream) == list(range(count))
    assert asked[8] == asked[60]


def test_an_abandoned_stream_closes_at_once(server: FaultServer) -> None:
    """Whoever drops or closes an iterator waits for nothing, and what was under way is ended, not waited for."""
    server.reset()
    stream = squirrel.open(f"{server.url}/set", stall_timeout=3600, timeout=3600)
    server.set(faults="stall=1", match=".sqrl")  # silence in mid-body, for longer than this test may last
    for end in (lambda iterator: None, lambda iterator: iterator.close()):
        iterator = iter(stream)
        assert _until(lambda: server.counters()["open"] > 4)  # the counters' own connection is one
        end(iterator)
        del iterator
        assert _until(lambda: server.counters()["open"] <= 1)
    server.set(faults="")
    assert len(numbers(stream)) == SAMPLES


STALLED = [
    ("", "squirrel.open(sys.argv[1], stall_timeout=3600, timeout=3600)"),
    (".sqrl", "next(iter(stream))"),
    (".sqrl", "next(iter(stream.batch(8)))"),
    (".sqrl", "stream.get_many(range(0, 3000, 50))"),
]


@pytest.mark.parametrize("match, read", STALLED)
def test_an_interrupt_ends_a_stalled_read(server: FaultServer, match: str, read: str) -> None:
    server.reset()
    program = f"""
import signal, sys
import squirrel
signal.signal(signal.SIGINT, signal.default_int_handler)
stream = squirrel.open(sys.argv[1], stall_timeout=3600, timeout=3600)
try:
    print("reading", flush=True)
    input()
    {read}
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-c", program, f"{server.url}/set"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"reading\n"
            server.set(faults="stall=1", match=match)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert _until(lambda: server.counters()["faults"]["stall"] > 0)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0] == b"interrupted\n" and process.returncode == 0
        finally:
            process.kill()


def test_an_interrupt_while_a_line_is_logged_is_not_lost(server: FaultServer) -> None:
    class Interrupting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying again" in record.getMessage():
                log.removeHandler(self)
                signal.raise_signal(signal.SIGINT)

    log, before = logging.getLogger("squirrel"), signal.signal(signal.SIGINT, signal.default_int_handler)
    level, handler = log.level, Interrupting()
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    server.reset()
    stream = squirrel.open(f"{server.url}/set")
    server.set(faults="503=1", match=".sqrl")
    try:
        with pytest.raises(KeyboardInterrupt):
            list(stream)
    finally:
        signal.signal(signal.SIGINT, before)
        log.removeHandler(handler)
        log.setLevel(level)


# --- epochs ---


def _later(server: FaultServer, requests: int) -> int:
    """How many requests there are, once there are more than so many; or after a while without."""
    end = time.monotonic() + 60
    while server.counters()["requests"] <= requests and time.monotonic() < end:
        time.sleep(0.01)
    return server.counters()["requests"]


def test_the_next_epoch_is_begun_where_one_comes(server: FaultServer) -> None:
    """loop(n) and set_epoch() tell what follows: its reads begin before, and nothing is read in vain."""
    stream = squirrel.open(f"{server.url}/set")
    each = len(stream.shards)  # small ones: a request each
    for endless in (stream.loop(3), stream.map(dict).loop(3)):
        server.reset()
        assert numbers(endless) == 3 * list(range(SAMPLES))
        assert server.counters()["requests"] == 3 * each
    server.reset()
    for epoch in range(3):
        samples = iter(stream.set_epoch(epoch, of=3))
        assert len(numbers(itertools.islice(samples, SAMPLES - 1))) == SAMPLES - 1
        if epoch < 2:
            assert _later(server, (epoch + 1) * each) > (epoch + 1) * each, "nobody has asked for it so far"
        assert len(numbers(samples)) == 1
    assert server.counters()["requests"] == 3 * each
    with pytest.raises(ValueError, match="of="):
        stream.set_epoch(0, of=0)


def test_workers_plans_are_kept(server: FaultServer) -> None:
    """What torch says of ranks and workers makes one plan, in which the next epoch can be begun."""
    torch = pytest.importorskip("torch.utils.data")
    stream = squirrel.open(f"{server.url}/set").distribute()
    loader = torch.DataLoader(stream.loop(2).to_torch_iterable(), batch_size=None, num_workers=2)
    server.reset()
    assert sorted(numbers(loader)) == sorted(2 * list(range(SAMPLES)))
    once = server.counters()
    # Each worker reads its part twice, without the indexes the second time, and no third time.
    assert once["bytes"] < 2.2 * sum(row["bytes"] for row in _pass_of_two(server))


def _pass_of_two(server: FaultServer) -> list[dict]:
    server.reset()
    for worker in range(2):
        assert numbers(squirrel.open(f"{server.url}/set").distribute(worker=worker, workers=2))
    return server.requests()


# --- a real server ---

NGINX = """
{user} daemon off; worker_processes 1; error_log {folder}/error.log; pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; server_name localhost; root {root}; autoindex on;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
  }}
}}
"""


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def nginx(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """nginx with TLS, by a certificate authority of our own: (url, file of the authority)."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx (Debian: nginx-light) or openssl is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    _openssl(folder, *"req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests".split())
    _openssl(folder, *"req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost".split())
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    _openssl(folder, *("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
                       "-extfile names -out server.pem").split())  # fmt: skip
    port = free_port()
    user = "user root;" if os.getuid() == 0 else ""  # or its worker may not read our files
    (folder / "conf").write_text(NGINX.format(user=user, folder=folder, root=root, port=port))
    log = (folder / "log").open("wb")
    process = subprocess.Popen([program, "-c", str(folder / "conf"), "-e", str(folder / "error.log")], stderr=log)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    if process.poll() is not None:
        pytest.skip(f"nginx does not start here: {(folder / 'log').read_text()}")
    yield f"https://localhost:{port}", folder / "ca.pem"
    process.terminate()
    process.wait()
    log.close()


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_nginx_with_tls(nginx: tuple[str, Path], root: Path, version: str) -> None:
    url, authority = nginx
    options = {"ca_file": str(authority), "http_version": version}
    assert numbers(squirrel.open(f"{url}/set", **options)) == list(range(SAMPLES))
    assert sorted(numbers(squirrel.open(f"{url}/store", **options))) == list(range(300))
    assert numbers(squirrel.open(f"{url}/one.jsonl", **options)) == list(range(50_000))


def test_who_is_not_trusted(nginx: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, authority = nginx
    with pytest.raises(squirrel.Error, match="not trusted.*ca_file"):
        squirrel.open(f"{url}/set")
    with pytest.raises(squirrel.Error, match="not trusted"):
        squirrel.open(f"{url}/set".replace("localhost", "127.0.0.1"), ca_file=str(authority))
    with pytest.raises(squirrel.Error, match="answered 400|connection broke"):
        squirrel.open(f"{url}/set".replace("https", "http"))


def test_the_authority_from_the_environment(nginx: tuple[str, Path], script: Callable) -> None:
    url, authority = nginx
    others = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
    without = {name: value for name, value in os.environ.items() if name not in others}
    found = script(
        "import sys, squirrel; print(len(squirrel.open(sys.argv[1])))",
        f"{url}/set",
        env={**without, "SSL_CERT_FILE": str(authority)},
    )
    assert found.stdout.strip() == str(SAMPLES), found.stderr
