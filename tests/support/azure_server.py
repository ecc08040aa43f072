"""A stand-in for Azure Blob Storage: containers and block blobs in memory, with shared keys checked as
"Authorize with Shared Key" says, SAS tokens by their signature field, conditional requests and ranges.

    python azure_server.py PORT      serves the emulators' account until it is killed
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SAS_SIGNATURE = "sas-signature+/="
STANDARD = [
    "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
    "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
]  # fmt: skip


class Blob:
    def __init__(self, data: bytes, meta: dict[str, str]) -> None:
        self.data, self.meta = data, meta
        self.etag = '"0x%s"' % hashlib.sha256(data + str(time.time_ns()).encode()).hexdigest()[:15].upper()
        self.time = formatdate(usegmt=True)


class Account:
    """What the server holds; `page` is how many entries a listing gives at most."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.containers: dict[str, dict[str, Blob]] = {}
        self.public: set[str] = set()
        self.blocks: dict[tuple[str, str], dict[str, bytes]] = {}
        self.page = 5000
        self.skew = 0.0  # seconds by which requests' dates are wrong to the server
        self.log: list[tuple[str, str]] = []


def shared_key(method: str, target: str, headers: dict[str, str], account: str = ACCOUNT, key: str = KEY) -> str:
    """What Authorization must hold."""
    low = {name.lower(): value for name, value in headers.items()}
    if low.get("content-length") == "0":
        low["content-length"] = ""
    lines = [method, *[low.get(name.lower(), "") for name in STANDARD]]
    lines += [f"{name}:{low[name]}" for name in sorted(low) if name.startswith("x-ms-")]
    parts = urlsplit(target)
    resource = f"/{account}{parts.path}"
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(name.lower(), []).append(value)
    resource += "".join(f"\n{name}:{','.join(sorted(query[name]))}" for name in sorted(query))
    text = "\n".join([*lines, resource])
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    account: Account

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", code: str | None = None, **headers: str) -> None:
        if code is not None:
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
            headers["x_ms_error_code"] = code
        self.send_response(status)
        length = headers.pop("Content_Length", str(len(body)))
        self.send_header("Content-Length", length)
        for name, value in headers.items():
            self.send_header(name if "-" in name else name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(body)

    def allowed(self, container: str) -> bool:
        given = self.headers.get("Authorization")
        if given is not None:
            return hmac.compare_digest(given, shared_key(self.command, self.path, dict(self.headers)))
        query = dict(parse_qsl(urlsplit(self.path).query))
        if "sig" in query:
            return query["sig"] == SAS_SIGNATURE
        return container in self.account.public and self.command in ("GET", "HEAD")

    def handle_all(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        names = parts.path.split("/", 3)
        container, key = unquote(names[2]) if len(names) > 2 else "", unquote(names[3]) if len(names) > 3 else ""
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        with self.account.lock:
            self.account.log.append((self.command, self.path))
            if names[1] != ACCOUNT or not self.allowed(container):
                return self.answer(403, code="AuthenticationFailed")
            if self.query.get("restype") == "container" and self.command == "PUT":
                self.account.containers.setdefault(container, {})
                return self.answer(201)
            blobs = self.account.containers.get(container)
            if blobs is None:
                return self.answer(404, code="ContainerNotFound")
            if self.query.get("restype") == "container":
                return self.list(blobs)
            if self.command == "PUT":
                return self.put(blobs, container, key, body)
            if key not in blobs:
                return self.answer(404, code="BlobNotFound")
            if self.command == "DELETE":
                del blobs[key]
                return self.answer(202)
            return self.get(blobs[key])

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_all

    def put(self, blobs: dict[str, Blob], container: str, key: str, body: bytes) -> None:
        kind = self.query.get("comp")
        pending = self.account.blocks.setdefault((container, key), {})
        if kind == "block":
            pending[self.query["blockid"]] = body
            return self.answer(201)
        if self.headers.get("If-None-Match") == "*" and key in blobs:
            return self.answer(409 if kind is None else 412, code="BlobAlreadyExists")
        if kind == "blocklist":
            wanted = re.findall(rb"<Latest>([^<]*)</Latest>", body)
            if any(name.decode() not in pending for name in wanted):
                return self.answer(400, code="InvalidBlockList")
            body = b"".join(pending[name.decode()] for name in wanted)
        self.account.blocks.pop((container, key), None)
        low = {name.lower(): value for name, value in self.headers.items()}
        meta = {name[10:]: value for name, value in low.items() if name.startswith("x-ms-meta-")}
        blobs[key] = Blob(body, meta)
        return self.answer(201, ETag=blobs[key].etag)

    def get(self, blob: Blob) -> None:
        data, status, headers = blob.data, 200, {"ETag": blob.etag, "Last_Modified": blob.time}
        headers |= {f"x-ms-meta-{name}": value for name, value in blob.meta.items()}
        if self.headers.get("If-Match", blob.etag) != blob.etag:
            return self.answer(412, code="ConditionNotMet")
        asked = self.headers.get("Range") or self.headers.get("x-ms-range")
        if asked and self.command == "GET":
            start, _, end = asked.removeprefix("bytes=").partition("-")
            if int(start) >= len(data):
                return self.answer(416, code="InvalidRange", Content_Range=f"bytes */{len(data)}")
            last = min(int(end) if end else len(data) - 1, len(data) - 1)
            headers["Content_Range"] = f"bytes {start}-{last}/{len(data)}"
            data, status = data[int(start) : last + 1], 206
        return self.answer(status, data, Accept_Ranges="bytes", **headers)

    def list(self, blobs: dict[str, Blob]) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter")
        most = min(int(self.query.get("maxresults", self.account.page)), self.account.page)
        entries: dict[str, Blob | None] = {}
        for name in sorted(blobs):
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                entries[prefix + rest.split(delimiter)[0] + delimiter] = None
            else:
                entries[name] = blobs[name]
        left = [name for name in sorted(entries) if name >= self.query.get("marker", "")]
        shown, more = left[:most], left[most : most + 1]
        items = "".join(self.entry(name, entries[name]) for name in shown)
        marker = escape(more[0]) if more else ""
        self.answer(200, (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{items}</Blobs>'
            f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
        ).encode(), Content_Type="application/xml")  # fmt: skip

    def entry(self, name: str, blob: Blob | None) -> str:
        if blob is None:
            return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
        meta = "".join(f"<{key}>{value}</{key}>" for key, value in blob.meta.items())
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{blob.time}</Last-Modified>"
            f"<Etag>{blob.etag.strip(chr(34))}</Etag><Content-Length>{len(blob.data)}</Content-Length>"
            f"<BlobType>BlockBlob</BlobType></Properties><Metadata>{meta}</Metadata></Blob>"
        )


def serve(account: Account, port: int = 0) -> ThreadingHTTPServer:
    """A server that is to be shut down and closed; its port is server.server_port."""
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"account": account}))
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    serve(Account(), int(sys.argv[1])).serve_forever()
