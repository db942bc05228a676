"""An upload ends in the middle: neither a full disk nor the daemon's death leaves half a model."""

import signal
import socket
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from tests.faults.disks import fill, mounted

BOUNDARY = "b-o-u-n-d-a-r-y"


def form(name: str, data: bytes, **texts: str) -> bytes:
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{text}\r\n'.encode() for key, text in texts.items()]
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return b"".join([*parts, file, data, f"\r\n--{BOUNDARY}--\r\n".encode()])


def upload(daemon: Daemon, name: str, data: bytes, **texts: str) -> tuple[int, object]:
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return daemon.call("POST", "/v1/models/upload", form(name, data, **texts), headers)


def right(daemon: Daemon, model: str) -> bool:
    status, body = daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])
    return status == 200 and body["outputs"][0]["data"] == [1, 2, 3, 4]


def names(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir())


@pytest.mark.parametrize("overwrite", ["true", "false"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, overwrite: str) -> None:
    models = tmp_path / "models"
    large = onnx_models.weighty(tmp_path / "large.onnx", 4).read_bytes()
    try:
        disk = mounted(models, "size=6m")
        disk.__enter__()
    except OSError as error:
        pytest.skip(str(error))
    try:
        onnx_models.ident(models / "m.onnx")
        with running(tmp_path / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
            ballast = fill(models)
            name = "m.onnx" if overwrite == "true" else "new.onnx"
            status, answer = upload(daemon, name, large, overwrite=overwrite)
            assert (status, "No space left" in str(answer)) == (503, True)
            wait_until(lambda: names(models) == ["ballast", "m.onnx"], "nothing is left of it")
            assert right(daemon, "m")
            ballast.unlink()
            assert upload(daemon, name, large, overwrite=overwrite)[0] == 200
            assert right(daemon, name.removesuffix(".onnx"))
    finally:
        disk.__exit__(None, None, None)


def test_a_daemon_that_is_killed_leaves_what_was_there(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.ident(models / "m.onnx")
    options = ["--models-dir", str(models), "--no-grpc"]
    body = form("m.onnx", onnx_models.weighty(tmp_path / "large.onnx", 4).read_bytes(), overwrite="true")
    head = (
        f"POST /v1/models/upload HTTP/1.1\r\nhost: a\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with running(tmp_path / "daemon", *options) as daemon, socket.create_connection((daemon.host, daemon.port)) as client:
        client.sendall(head.encode() + body[: len(body) // 2])
        wait_until(lambda: len(names(models)) == 2, "half of it is there")
        daemon.stop(signal.SIGKILL)
    assert len(names(models)) == 2
    with running(tmp_path / "daemon", *options) as daemon:
        assert names(models) == ["m.onnx"]
        assert [model["id"] for model in daemon.call("GET", "/v1/models")[1]] == ["m"]
        assert right(daemon, "m")
