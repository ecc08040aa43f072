"""Whose requests these are: signatures against botocore's signer, the chain of AWS, Google's tokens, clocks that are
wrong, tokens that run out; and that no secret is shown anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

import squirrel
from squirrel import _native

pytestmark = pytest.mark.once
BODY = b'{"n": 1}\n{"n": 2}\n'


class Stub:
    """A server whose answers are a function: (method, path, headers, body) -> (status, headers, body)."""

    def __init__(self, answer: Callable[..., tuple[int, dict[str, str], bytes]]) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            skew = 0.0

            def log_message(self, *args: object) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(time.time() + stub.skew, usegmt=True)

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = (self.command, self.path, dict(self.headers), body)
                stub.requests.append(request)
                status, headers, out = answer(*request)
                self.send_response(status)
                self.send_header("Content-Length", headers.pop("Content-Length", str(len(out))))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(out)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        self.skew = 0.0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    made: list[Stub] = []

    def make(answer: Callable[..., tuple[int, dict[str, str], bytes]]) -> Stub:
        made.append(Stub(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR", "CLOUDSDK", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def serve_object(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    """One object for everybody, by ranges."""
    about = {"ETag": '"one"', "Accept-Ranges": "bytes"}
    asked = headers.get("Range")
    if method == "HEAD" or asked is None:
        return 200, about, BODY
    start, _, end = asked.removeprefix("bytes=").partition("-")
    last = min(int(end or len(BODY)), len(BODY) - 1)
    about["Content-Range"] = f"bytes {start}-{last}/{len(BODY)}"
    return 206, about, BODY[int(start) : last + 1]


def read(endpoint: str, scheme: str = "s3", **options: Any) -> bytes:
    file = _native.FileSystem(f"{scheme}://bucket/x", {"endpoint": endpoint, **options}).open("bucket/x")
    return file.read([0], [file.stat[0]])[0]


def key_of(headers: dict[str, str]) -> str:
    return headers["Authorization"].partition("Credential=")[2].partition("/")[0]


def soon(seconds: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- signatures ---


@pytest.mark.parametrize("token", [None, "session/token+="])
@pytest.mark.parametrize("key", ["plain", "a b/c+d%20e", "ä~'()*!,;:@&=$?#", "x" * 900])
def test_signatures_are_botocores(stub: Callable[..., Stub], key: str, token: str | None) -> None:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        listing = b"<ListBucketResult></ListBucketResult>"
        return (404, {}, b"") if method == "HEAD" else (200, {}, listing if method == "GET" else b"")

    server = stub(answer)
    options = {"endpoint": server.url, "region": "eu-north-1", "access_key_id": "AKID", "secret_access_key": "se/cret+"}
    fs = _native.FileSystem("s3://bucket/", {**options, "session_token": token} if token else options)
    writer = fs.create(f"bucket/{key}")
    writer.write(b"some bytes")
    writer.commit()
    assert {request[0] for request in server.requests} >= {"HEAD", "GET", "PUT"}
    for method, path, headers, body in server.requests:
        given = headers["Authorization"]
        names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        low = {name.lower(): value for name, value in headers.items()}
        assert {name for name in low if name.startswith("x-amz-")} <= set(names)
        assert low.get("x-amz-security-token") == token
        assert low["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
        request = AWSRequest(
            method, f"http://{headers['Host']}{path}", {name: low[name] for name in names if name != "host"}, body
        )
        request.context["timestamp"] = low["x-amz-date"]
        signer = auth.S3SigV4Auth(Credentials("AKID", "se/cret+"), "s3", "eu-north-1")
        canonical = signer.canonical_request(request)
        assert given.endswith("Signature=" + signer.signature(signer.string_to_sign(request, canonical), request))


# --- where keys come from ---


def test_environment_and_profiles(stub: Callable[..., Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stub(serve_object)
    with pytest.raises(squirrel.AccessError, match="AWS_ACCESS_KEY_ID"):
        read(server.url)
    assert server.requests == []
    credentials = tmp_path / ".aws" / "credentials"
    credentials.parent.mkdir()
    credentials.write_text("[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = s\n")
    (tmp_path / ".aws" / "config").write_text(
        "[profile other]\naws_access_key_id=OTHER\naws_secret_access_key=s\naws_session_token=t\nregion=eu-west-3\n"
    )
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "DEFAULT"
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "OTHER"
    assert "/eu-west-3/s3/" in server.requests[-1][2]["Authorization"]
    assert server.requests[-1][2]["x-amz-security-token"] == "t"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "ENVIRONMENT"
    assert read(server.url, profile="other") == BODY and key_of(server.requests[-1][2]) == "OTHER"
    assert read(server.url, access_key_id="OPTION", secret_access_key="s") == BODY
    assert key_of(server.requests[-1][2]) == "OPTION"
    moved = tmp_path / "moved"
    moved.write_text("[third]\naws_access_key_id = THIRD\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(moved))
    assert read(server.url, profile="third") == BODY and key_of(server.requests[-1][2]) == "THIRD"
    with pytest.raises(squirrel.AccessError, match="profile none holds no keys"):
        read(server.url, profile="none")


STS = """<R><Result><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>t</SessionToken><Expiration>{until}</Expiration></Credentials></Result></R>"""


def test_roles(stub: Callable[..., Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path != "/":
            return serve_object(method, path, headers, body)
        form = dict(parse_qsl(body.decode()))
        key = {"AssumeRoleWithWebIdentity": "WEB", "AssumeRole": "ROLE"}[form["Action"]]
        if key == "WEB":
            assert form["WebIdentityToken"] == "the.web.token" and "Authorization" not in headers
        else:
            assert key_of(headers) == "BASE" and "/sts/aws4_request" in headers["Authorization"]
        assert form["RoleArn"] == "arn:aws:iam::1:role/x"
        return 200, {}, STS.format(key=key, until=soon(3600)).encode()

    server = stub(answer)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
    token = tmp_path / "token"
    token.write_text("the.web.token\n")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[profile base]\naws_access_key_id=BASE\naws_secret_access_key=s\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\n"
    )
    assert read(server.url, profile="role") == BODY and key_of(server.requests[-1][2]) == "ROLE"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "WEB"


def test_containers_and_instances(stub: Callable[..., Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that run out in four minutes are fetched ahead of that; IMDSv2's token is asked for first."""
    fetched: list[str] = []

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/container":
            assert headers["Authorization"] == "agent-token"
        elif path == "/latest/api/token":
            assert method == "PUT" and headers["X-aws-ec2-metadata-token-ttl-seconds"]
            return 200, {}, b"imds-token"
        elif path.startswith("/latest/meta-data/iam/security-credentials/"):
            assert headers["X-aws-ec2-metadata-token"] == "imds-token"
            if path.endswith("/"):
                return 200, {}, b"the-role"
            assert path.endswith("/the-role")
        else:
            return serve_object(method, path, headers, body)
        fetched.append(path)
        keys = {"AccessKeyId": f"K{len(fetched)}", "SecretAccessKey": "s", "Token": "t", "Expiration": soon(9999)}
        return 200, {}, json.dumps(keys).encode()

    server = stub(answer)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "K1"
    (tmp_path / "agent").write_text("agent-token\n")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "agent"))
    assert read(server.url) == BODY and key_of(server.requests[-1][2]) == "K2"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://elsewhere.example/container")
    with pytest.raises(squirrel.AccessError, match="not asked for there"):
        read(server.url)


def test_programs_and_logins(stub: Callable[..., Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """credential_process, and single sign-on by the token that `aws sso login` left."""

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path.startswith("/federation/credentials?"):
            assert headers["x-amz-sso_bearer_token"] == "the-login"
            assert parse_qs(urlsplit(path).query) == {"role_name": ["reader"], "account_id": ["123"]}
            keys = {"accessKeyId": "LOGIN", "secretAccessKey": "s", "sessionToken": "t",
                    "expiration": int((time.time() + 3600) * 1000)}  # fmt: skip
            return 200, {}, json.dumps({"roleCredentials": keys}).encode()
        return serve_object(method, path, headers, body)

    server = stub(answer)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", server.url)
    printed = tmp_path / "printed"
    keys = {"Version": 1, "AccessKeyId": "PROGRAM", "SecretAccessKey": "s", "SessionToken": "its-token"}
    printed.write_text(json.dumps(keys))
    (tmp_path / ".aws" / "sso" / "cache").mkdir(parents=True)
    (tmp_path / ".aws" / "config").write_text(
        f"[profile program]\ncredential_process = cat '{printed}'\n"
        "[profile broken]\ncredential_process = echo a-secret; exit 3\n"
        "[profile login]\nsso_session = work\nsso_account_id = 123\nsso_role_name = reader\n"
        "[profile old]\nsso_start_url = https://old.example/start\nsso_region = eu-west-1\n"
        "sso_account_id = 123\nsso_role_name = reader\n"
        "[sso-session work]\nsso_start_url = https://work.example/start\nsso_region = eu-west-1\n"
    )
    assert read(server.url, profile="program") == BODY
    assert key_of(server.requests[-1][2]) == "PROGRAM"
    assert server.requests[-1][2]["x-amz-security-token"] == "its-token"
    with pytest.raises(squirrel.AccessError, match="run it by hand") as caught:
        read(server.url, profile="broken")
    assert "a-secret" not in str(caught.value)
    with pytest.raises(squirrel.AccessError, match="aws sso login --profile login"):
        read(server.url, profile="login")
    cache = tmp_path / ".aws" / "sso" / "cache"
    for name, url, token, until in (("a", "https://work.example/start", "the-login", soon(3600)),
                                    ("b", "https://old.example/start", "spent", soon(-60))):  # fmt: skip
        (cache / f"{name}.json").write_text(json.dumps({"startUrl": url, "accessToken": token, "expiresAt": until}))
    (cache / "c.json").write_text("{broken")
    assert read(server.url, profile="login") == BODY and key_of(server.requests[-1][2]) == "LOGIN"
    with pytest.raises(squirrel.AccessError, match="ran out"):
        read(server.url, profile="old")


def test_keys_that_run_out_are_shared_until_shortly_before(
    stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems of one process ask once; not for keys that have less than five minutes left."""
    given: list[str] = []
    lifetime = [3600.0]

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path != "/container":
            return serve_object(method, path, headers, body)
        given.append(f"K{len(given)}")
        keys = {"AccessKeyId": given[-1], "SecretAccessKey": "s", "Token": "t", "Expiration": soon(lifetime[0])}
        return 200, {}, json.dumps(keys).encode()

    server = stub(answer)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/container")
    for _ in range(5):
        assert read(server.url) == BODY
    assert given == ["K0"] and key_of(server.requests[-1][2]) == "K0"
    given.clear()
    lifetime[0] = 200.0
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "another identity")
    for n in range(3):
        assert read(server.url) == BODY and key_of(server.requests[-1][2]) == f"K{n}"


# --- what servers object to ---


def test_the_servers_clock_counts(stub: Callable[..., Stub]) -> None:
    """Requests of a clock that is two hours late are refused, and signed anew by the server's."""

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        stamp = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
        if abs(stamp - (time.time() + server.skew)) > 900:
            return 403, {}, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"
        return serve_object(method, path, headers, body)

    server = stub(answer)
    server.skew = 7200.0
    assert read(server.url, access_key_id="k", secret_access_key="s") == BODY
    assert len(server.requests) <= 3


def test_keys_that_ran_out_are_fetched_anew(stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie about their expiry: the store refuses them with 400 ExpiredToken."""
    given: list[str] = []

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/container":
            given.append(f"K{len(given)}")
            return 200, {}, json.dumps({"AccessKeyId": given[-1], "SecretAccessKey": "s", "Token": "t"}).encode()
        if key_of(headers) == "K0" and spent.is_set():
            return 400, {}, b"<Error><Code>ExpiredToken</Code></Error>"
        return serve_object(method, path, headers, body)

    spent = threading.Event()
    server = stub(answer)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/container")
    fs = _native.FileSystem("s3://bucket/x", {"endpoint": server.url})
    assert fs.open("bucket/x").read([0], [8]) == [BODY[:8]]
    spent.set()
    deadline = time.monotonic() + 60  # refused keys are not asked for again within ten seconds
    while True:
        try:
            assert fs.open("bucket/x").read([0], [8]) == [BODY[:8]]
            break
        except squirrel.Error:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert key_of(server.requests[-1][2]) == "K1"


def test_a_bucket_of_another_region(stub: Callable[..., Stub]) -> None:
    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if "/eu-central-1/" not in headers["Authorization"]:
            return 301, {"x-amz-bucket-region": "eu-central-1"}, b"<Error><Code>PermanentRedirect</Code></Error>"
        return serve_object(method, path, headers, body)

    server = stub(answer)
    assert read(server.url, access_key_id="k", secret_access_key="s", region="us-west-1") == BODY


# --- Google ---


def _part(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_service_accounts(stub: Callable[..., Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding

    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path != "/token":
            assert headers["Authorization"] == "Bearer the-token"
            return serve_object(method, path, headers, body)
        form = parse_qs(body.decode())
        if form["grant_type"] == ["refresh_token"]:
            assert form["refresh_token"] == ["refresh/me+"] and form["client_secret"] == ["cs"]
        else:
            head, claims, signature = form["assertion"][0].split(".")
            signed = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
            key.public_key().verify(signed, f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
            assert _part(head) == {"alg": "RS256", "typ": "JWT", "kid": "id1"}
            told = _part(claims)
            assert told["iss"] == "me@x.iam" and told["aud"] == f"{server.url}/token" and told["exp"] > time.time()
        return 200, {}, b'{"access_token": "the-token", "expires_in": 3599, "token_type": "Bearer"}'

    server = stub(answer)
    account = {
        "type": "service_account", "client_email": "me@x.iam", "private_key_id": "id1", "private_key": pem,
        "token_uri": f"{server.url}/token",
    }  # fmt: skip
    (tmp_path / "account.json").write_text(json.dumps(account))
    assert read(server.url, "gs", api="xml", credentials=str(tmp_path / "account.json")) == BODY
    user = {
        "type": "authorized_user", "client_id": "ci", "client_secret": "cs", "refresh_token": "refresh/me+",
        "token_uri": f"{server.url}/token",
    }  # fmt: skip
    place = tmp_path / ".config" / "gcloud" / "application_default_credentials.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(user))
    assert read(server.url, "gs", api="xml") == BODY
    (tmp_path / "broken.json").write_text(json.dumps({**account, "private_key": "-----BEGIN NONSENSE-----"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "broken.json"))
    with pytest.raises(squirrel.AccessError, match="no RSA key") as caught:
        read(server.url, "gs", api="xml")
    assert "NONSENSE" not in str(caught.value)


def test_googles_metadata_server_and_hmac_keys(stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path.startswith("/computeMetadata/"):
            assert headers["Metadata-Flavor"] == "Google"
            return 200, {}, b'{"access_token": "meta-token", "expires_in": 3599}'
        return serve_object(method, path, headers, body)

    server = stub(answer)
    monkeypatch.setenv("GCE_METADATA_HOST", urlsplit(server.url).netloc)
    assert read(server.url, "gs", api="xml") == BODY
    assert server.requests[-1][2]["Authorization"] == "Bearer meta-token"
    assert read(server.url, "gs", api="xml", access_key_id="GOOG1", secret_access_key="s") == BODY
    given = server.requests[-1][2]["Authorization"]
    assert given.startswith("GOOG4-HMAC-SHA256 Credential=GOOG1/") and "/auto/storage/goog4_request" in given
    assert read(server.url, "gs", api="xml", anonymous=True) == BODY
    assert "Authorization" not in server.requests[-1][2]


# --- secrets ---


def test_untrusted_endpoints_get_no_credentials_of_this_machine(
    stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """public_only is what catalogs from elsewhere are opened with; it refuses this very server, before it asks."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "MINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    server = stub(serve_object)
    with pytest.raises(squirrel.Error, match="public"):
        read(server.url, public_only=True)
    assert server.requests == []
    options = {"endpoint": "https://storage.example", "public_only": True, "attempts": 1, "timeout": 5}
    listing = _native.FileSystem("gs://b/x", options)
    monkeypatch.setenv("GCE_METADATA_HOST", urlsplit(server.url).netloc)
    with pytest.raises(squirrel.Error):
        listing.stat("b/x")
    assert server.requests == []  # no token was fetched

SECRETS = ["SECRETkey", "SECRETsecret", "SECRETtoken", "SECRETsas"]


def test_secrets_are_shown_nowhere(
    stub: Callable[..., Stub], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if "good.jsonl" in path and "list" not in path and "_index" not in path:
            return serve_object(method, path, headers, body)
        if method == "HEAD" or "_index" in path:
            return 404, {}, b""
        return 403, {}, b"<Error><Code>AccessDenied</Code></Error>"

    server = stub(answer)
    account = base64.b64encode(b"SECRETkey").decode()
    kinds: dict[str, dict[str, Any]] = {
        "s3": {"access_key_id": "SECRETkey", "secret_access_key": "SECRETsecret", "session_token": "SECRETtoken"},
        "gs": {"api": "xml", "token": "SECRETtoken"},
        "az": {"account_name": "account", "sas_token": "sv=1&sig=SECRETsas"},
    }
    shown: list[str] = [account]
    for scheme, options in kinds.items():
        stream = squirrel.open(f"{scheme}://bucket/good.jsonl", endpoint=server.url, **options)
        assert [sample["n"] for sample in stream] == [1, 2]
        iterator = iter(stream)
        next(iterator)
        shown += [repr(stream), str(stream), repr(iterator.state_dict()), repr(stream.shards)]
        for action in (
            lambda: squirrel.open(f"{scheme}://bucket/bad.jsonl", endpoint=server.url, **options),
            lambda: squirrel.pack([{"n": 1}], f"{scheme}://bucket/bad", endpoint=server.url, **options),
            lambda: squirrel.open(f"{scheme}://bucket/good", endpoint="http://127.0.0.1:9", attempts=1, **options),
            lambda: squirrel.open(f"{scheme}://bucket/good.jsonl", endpoint=server.url, part_size="x", **options),
        ):
            with pytest.raises(squirrel.Error) as caught:
                action()
            shown += [str(caught.value), repr(caught.value)]
        import squirrel.fsspec.native as native

        fs = {"s3": native.S3FileSystem, "gs": native.GoogleFileSystem, "az": native.AzureFileSystem}[scheme](
            endpoint=server.url, **options
        )
        shown += [repr(fs), str(fs)]
    shown.append(caplog.text)
    for text in shown[1:]:
        for secret in [*SECRETS, account]:
            assert secret not in text, text
    assert pickle.loads(pickle.dumps(stream)).url == stream.url
