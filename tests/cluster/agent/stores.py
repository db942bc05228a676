"""Small stores that speak the real protocols on loopback."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BUCKET = "models"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves half-way is what some tests are about."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """HOST:PORT of a server that runs in a thread."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing to be printed."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@dataclass
class WebFiles:
    """What a web server has, by path, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    address: str = ""
    gets: list[str] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)
    piece_seconds: float = 0.0
    """Pause after each 64 KiB, so that a fetch is under way for a while."""
    etags: bool = True
    lengths: bool = True

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@contextmanager
def web_files(**files: bytes) -> Iterator[WebFiles]:
    web = WebFiles({f"/{name}": data for name, data in files.items()})

    class Handler(Quiet):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            body = web.files.get(self.path)
            web.authorizations.add(self.headers.get("Authorization", ""))
            if self.command == "GET":
                web.gets.append(self.path)
            if body is None:
                self.answer(404)
                return
            self.close_connection = not web.lengths  # which is how the end is seen then
            tag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"' if web.etags else ""
            self.answer(200, b"", ETag=tag, Content_Length=str(len(body)) if web.lengths else "", Connection="" if web.lengths else "close")
            for start in range(0, len(body) if self.command == "GET" else 0, 65536):
                self.wfile.write(body[start : start + 65536])
                time.sleep(web.piece_seconds)

    with listening(Handler) as web.address:
        yield web


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of moto's server, with a bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        s3_client(url).create_bucket(Bucket=BUCKET)
        yield url
    finally:
        server.stop()


def s3_client(url: str) -> Any:
    import boto3  # type: ignore[import-untyped]

    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="key-id", aws_secret_access_key="s3-secret-value")


@dataclass
class OciStore:
    address: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    authorizations: set[str] = field(default_factory=set)

    def push(self, reference: str, *files: str, at: str) -> None:
        """By oras itself. `files`: names in the directory `at`, files or directories."""
        import oras.client

        here = Path.cwd()
        os.chdir(at)
        try:
            oras.client.OrasClient(insecure=True).push(target=f"{self.address}/{reference}", files=list(files), disable_path_validation=False)
        finally:
            os.chdir(here)


@contextmanager
def oci_registry() -> Iterator[OciStore]:
    """As much of the distribution specification as pushing and pulling need."""
    store = OciStore()

    class Handler(Quiet):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            store.authorizations.add(self.headers.get("Authorization", ""))
            kind, reference = self.path.rsplit("/", 2)[1:]
            found = store.manifests.get(self.path) if kind == "manifests" else store.blobs.get(reference)
            if found is None:
                self.answer(404, json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "not here"}]}).encode())
            else:
                self.answer(200, found, Content_Type=f"application/{'vnd.oci.image.manifest.v1+json' if kind == 'manifests' else 'octet-stream'}")

        def do_POST(self) -> None:
            self.answer(202, Location=f"http://{store.address}{self.path.rstrip('/')}/one")

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            if "/manifests/" in self.path:
                store.manifests[self.path] = store.manifests[f"{self.path.rpartition('/')[0]}/{digest}"] = body
            else:
                store.blobs[digest] = body
            self.answer(201, Docker_Content_Digest=digest)

    with listening(Handler) as store.address:
        yield store
