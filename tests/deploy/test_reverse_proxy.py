"""The page on reverse proxies: what it says of nginx is run by nginx, with the daemon behind it."""

import http.client
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

import wakeful
from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from wakeful.config.load import Options, load

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "reverse-proxy.md"
PREFIX = "/x/wakeful"
NAME = "host.example"
UI = Path(wakeful.__file__).parent / "ui"
LINKED = re.compile(r'(?:src|href)="([^"]+)"')
CONFIG = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen unix:{directory}/s;
{block}
    }}
}}
"""

pytestmark = pytest.mark.skipif(not shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin"), reason="needs nginx")


class Connection(http.client.HTTPConnection):
    """By a Unix socket: nginx cannot be told to choose a free port."""

    def __init__(self, path: Path) -> None:
        super().__init__(NAME, timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("behind")
    (directory / "models").mkdir()
    onnx_models.ident(directory / "models" / "one.onnx")
    with running(directory, "--models-dir", str(directory / "models"), "--no-grpc", "--allowed-hosts", NAME) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def proxy(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of an nginx as the page has it."""
    directory = tmp_path_factory.mktemp("n")
    [block] = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    block = block.replace("127.0.0.1:8080", f"{daemon.host}:{daemon.port}")
    (directory / "nginx.conf").write_text(CONFIG.format(directory=directory, block=block))
    command = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert command
    process = subprocess.Popen([command, "-e", str(directory / "error.log"), "-p", str(directory), "-c", str(directory / "nginx.conf")])

    def answers() -> bool:
        assert process.poll() is None, (directory / "error.log").read_text()
        return _answers(directory / "s")

    try:
        wait_until(answers, "nginx listens")
        yield directory / "s"
    finally:
        process.terminate()
        process.wait(30)


def _answers(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        return path.exists() and sock.connect_ex(str(path)) == 0


def call(proxy: Path, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    with closing(Connection(proxy)) as connection:
        connection.request(method, PREFIX + path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def request_of(rows: int) -> bytes:
    tensor: dict[str, Any] = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [1.25] * (4 * rows)}
    return json.dumps({"inputs": [tensor]}).encode()


def test_requests_go_through(proxy: Path) -> None:
    status, body = call(proxy, "POST", "/v2/models/one/infer", request_of(1))
    assert status == 200, body
    assert json.loads(body)["outputs"][0]["data"] == [1.25] * 4
    assert call(proxy, "GET", "/v2/health/ready")[0] == 200
    assert b"wakeful_build_info" in call(proxy, "GET", "/metrics")[1]


def test_bodies_may_be_as_large_as_without_it(proxy: Path) -> None:
    """nginx's own limit is 1 MiB."""
    body = request_of(200_000)
    assert len(body) > 4 << 20
    status, answer = call(proxy, "POST", "/v2/models/one/infer", body)
    assert status == 200, answer[:500]
    assert json.loads(answer)["outputs"][0]["shape"] == [200_000, 4]


def test_what_the_page_says_of_limits_is_the_default() -> None:
    assert f"client_max_body_size {load(Options(), {}).server.max_body >> 20}m;" in PAGE.read_text("utf-8")


def test_an_error_is_the_daemons_own(proxy: Path) -> None:
    status, body = call(proxy, "POST", "/v2/models/none/infer", request_of(1))
    assert status == 404
    assert "none" in json.loads(body)["error"]


def test_the_dashboard_is_whole_below_the_prefix(proxy: Path) -> None:
    """The page names its files by addresses that are relative to its own."""
    status, page = call(proxy, "GET", "/ui/")
    assert status == 200, page
    links = LINKED.findall(page.decode())
    assert len(links) > 2
    for link in links:
        status, content = call(proxy, "GET", urljoin("/ui/", link))
        assert status == 200, link
        assert content == (UI / link.partition("/")[2]).read_bytes()
    with closing(Connection(proxy)) as connection:
        connection.request("GET", PREFIX + "/ui")
        answer = connection.getresponse()
        assert urljoin(f"https://{NAME}{PREFIX}/ui", answer.headers["location"]) == f"https://{NAME}{PREFIX}/ui/"


def test_streams_are_not_held_back(proxy: Path, daemon: Daemon) -> None:
    """Each event arrives while the stream goes on."""
    with closing(Connection(proxy)) as connection:
        connection.request("GET", PREFIX + "/wakeful/v1/stream")
        answer = connection.getresponse()
        assert answer.status == 200
        _read_until(answer, b"event: snapshot")
        assert daemon.infer("one", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        assert daemon.call("POST", "/v1/models/one/unload")[0] == 200
        _read_until(answer, b"event: event")


def _read_until(answer: http.client.HTTPResponse, start: bytes) -> None:
    while not (line := answer.readline()).startswith(start):
        assert line, "the stream has ended"
