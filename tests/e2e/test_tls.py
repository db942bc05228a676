"""HTTPS with certificate files, which may be exchanged while the daemon runs."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.certificates import AUTHORITY, issue
from tests.daemon import Daemon, running, wait_until


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def connect(daemon: Daemon) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(daemon.host, daemon.port, timeout=60, context=trusting())


def serial(daemon: Daemon) -> str:
    """Of the certificate that a new connection gets."""
    with closing(connect(daemon)) as connection:
        connection.connect()
        certificate = connection.sock.getpeercert()
        assert certificate
        return str(certificate["serialNumber"])


def infer(connection: http.client.HTTPConnection, rows: int = 1) -> object:
    tensor = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [0.5] * (4 * rows)}
    connection.request("POST", "/v2/models/ident/infer", json.dumps({"inputs": [tensor]}))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    assert answer.status == 200, body
    return body["outputs"][0]["data"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    issue(tmp_path)
    onnx_models.ident(tmp_path / "ident.onnx")
    return tmp_path


@pytest.fixture
def daemon(directory: Path) -> Iterator[Daemon]:
    options = ["--models-dir", str(directory), "--tls-cert", str(directory / "cert.pem"), "--tls-key", str(directory / "key.pem"), "--no-grpc"]
    with running(directory / "daemon", *options) as daemon:
        yield daemon


def test_requests_small_and_large(daemon: Daemon) -> None:
    assert f"https://{daemon.host}:{daemon.port}" in daemon.log
    with closing(connect(daemon)) as connection:
        assert infer(connection) == [0.5] * 4
        assert infer(connection, 100_000) == [0.5] * 400_000
        assert infer(connection) == [0.5] * 4
        assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")


def test_a_large_answer_is_whole_although_the_daemon_is_told_to_stop(daemon: Daemon) -> None:
    with closing(connect(daemon)) as connection:
        infer(connection)
        tensor = {"name": "x", "shape": [400_000, 4], "datatype": "FP32", "data": [0.5] * 1_600_000}
        connection.request("POST", "/v2/models/ident/infer", json.dumps({"inputs": [tensor]}))
        answer = connection.getresponse()
        daemon.process.terminate()
        wait_until(lambda: "stopping" in daemon.log, "it has heard")
        assert len(json.loads(answer.read())["outputs"][0]["data"]) == 1_600_000
    assert daemon.process.wait(30) == 0


def test_a_new_certificate_is_shown_to_new_connections_and_half_of_one_is_not(daemon: Daemon, directory: Path) -> None:
    old = serial(daemon)
    with closing(connect(daemon)) as kept:
        infer(kept)
        other = directory / "other"
        other.mkdir()
        issue(other)
        other.joinpath("cert.pem").rename(directory / "cert.pem")
        wait_until(lambda: "until the new ones fit together" in daemon.log, "it says that key and certificate do not fit")
        assert serial(daemon) == old
        other.joinpath("key.pem").rename(directory / "key.pem")
        wait_until(lambda: "the certificate was renewed" in daemon.log, "it is renewed")
        assert serial(daemon) != old
        assert infer(kept) == [0.5] * 4


def test_plain_http_and_strangers_cost_nobody_anything(daemon: Daemon) -> None:
    for beginning in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01", bytes(range(256))):
        with socket.create_connection((daemon.host, daemon.port), 60) as sock:
            sock.sendall(beginning)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
    with pytest.raises(ssl.SSLCertVerificationError), closing(http.client.HTTPSConnection(daemon.host, daemon.port, timeout=60)) as connection:
        connection.connect()
    with closing(connect(daemon)) as connection:
        assert infer(connection) == [0.5] * 4
    assert "Traceback" not in daemon.log


def test_a_client_that_leaves_is_noticed(daemon: Daemon) -> None:
    with closing(connect(daemon)) as connection:
        infer(connection)
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.5] * 4}
        connection.request("POST", "/v2/models/ident/infer", json.dumps({"inputs": [tensor]}))
    with closing(connect(daemon)) as connection:
        assert infer(connection) == [0.5] * 4
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log


@pytest.mark.parametrize(("cert", "key", "said"), [
    ("cert.pem", None, "of no use without `tls_key`"),
    ("cert.pem", "nowhere.pem", "does not exist"),
    ("cert.pem", "ident.onnx", "no certificate or key in PEM"),
    ("cert.pem", "other.pem", "the key does not belong to the certificate"),
    ("cert.pem", "locked.pem", "encrypted"),
])
def test_a_certificate_of_no_use_is_told_before_anything_starts(directory: Path, cert: str, key: str | None, said: str) -> None:
    AUTHORITY.issue_cert("127.0.0.1").private_key_pem.write_to_path(directory / "other.pem")
    directory.joinpath("locked.pem").write_bytes(_locked(directory / "key.pem"))
    options = ["--tls-cert", str(directory / cert), *(["--tls-key", str(directory / key)] if key else [])]
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", "serve", "--port", "0", "--no-grpc", *options], capture_output=True, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def _locked(path: Path) -> bytes:
    """The same key behind a password."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(path.read_bytes(), None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x"))
