"""Keys and tokens of the real client, in all roles and on both spellings of paths."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import snoozeml
from snoozeml import AuthenticationError, PermissionDeniedError, SnoozeClient, create_jwt_token

from tests.daemon import Daemon

ROW = np.array([[1, 2, 3, 4]], np.float32)
READER, CALLER, BOSS = "reader-key-of-some-length", "caller-key-of-some-length", "boss-key-of-some-length"
SECRET = "a secret of at least thirty-two bytes"
ROUTES = [
    ("GET", "/v2", "read_only"), ("GET", "/", "read_only"), ("GET", "/v1/models", "read_only"), ("GET", "/v1/events", "read_only"),
    ("POST", "/v2/repository/index", "read_only"), ("GET", "/v2/models/demo-model", "read_only"), ("GET", "/no/such/path", "read_only"),
    ("GET", "//v2//models/demo%2Dmodel/", "read_only"), ("POST", "/v1/models/demo-model/infer", "inference"),
    ("POST", "/v2/models/demo-model/infer", "inference"), ("POST", "//v2/models//demo-model/infer/", "inference"),
    ("POST", "/v2/models/demo-model/versions/1/infer", "inference"), ("POST", "/v1/models/refresh", "admin"), ("GET", "/metrics", "admin"),
    ("POST", "/v2/repository/models/demo-model/load", "admin"), ("POST", "/v1/models/demo-model/unload", "admin"),
]
RANK = {"read_only": 1, "inference": 2, "admin": 3}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("auth")
    config = snoozeml.SnoozeConfig()
    config.add_api_key("read_only", key=READER, name="reader").add_api_key("inference", key_env="CALLER_KEY")
    config.set_jwt(secret=f" {SECRET} ", leeway_secs=60, protect_metrics=True)
    file = directory / "models.toml"
    config.save(file)
    one = Daemon(directory / "daemon", "--config", str(file), "--demo", "--no-grpc", "--api-key", f"admin:{BOSS}", env={"CALLER_KEY": CALLER})
    yield one
    one.stop()


def client(daemon: Daemon, *, api_key: str | None = None, token: str | None = None) -> SnoozeClient:
    return SnoozeClient(http_endpoint=daemon.url, use_grpc=False, api_key=api_key, token=token)


def test_health_is_open_and_nothing_else(daemon: Daemon) -> None:
    """C51"""
    for path in ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"):
        assert daemon.call("GET", path)[0] == 200
    for method, path, _ in ROUTES:
        assert daemon.call(method, path, {} if method == "POST" else None)[0] == 401, path
        assert daemon.call(method, path, {} if method == "POST" else None, {"x-api-key": "wrong"})[0] == 401, path


@pytest.mark.parametrize(("key", "role"), [(READER, "read_only"), (CALLER, "inference"), (BOSS, "admin")])
def test_every_route_asks_for_its_role(daemon: Daemon, key: str, role: str) -> None:
    """C51: metrics too, where they are protected."""
    for method, path, needed in ROUTES:
        for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"bEARER  {key}"}, {"x-api-key": key}):
            status = daemon.call(method, path, {} if method == "POST" else None, headers)[0]
            assert (status == 403) == (RANK[role] < RANK[needed]), (path, status)
            assert status != 401


def test_the_client_with_keys(daemon: Daemon) -> None:
    with client(daemon, api_key=READER) as reader:
        assert {model.id for model in reader.list_models()} == {"digits", "demo-model"}
        with pytest.raises(PermissionDeniedError, match="this needs role inference"):
            reader.infer("demo-model", {"input": ROW})
    with client(daemon, api_key=CALLER) as caller:
        assert caller.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)
        with pytest.raises(PermissionDeniedError, match="this needs role admin"):
            caller.load_model("demo-model")
    with client(daemon, api_key=BOSS) as boss:
        boss.load_model("demo-model")
        assert boss.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)
    with client(daemon, api_key="no-such-key") as stranger, pytest.raises(AuthenticationError):
        stranger.list_models()


def test_the_client_with_tokens(daemon: Daemon) -> None:
    with client(daemon, token=create_jwt_token(SECRET)) as caller:
        assert caller.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)
        with pytest.raises(PermissionDeniedError):
            caller.load_model("demo-model")
    with client(daemon, token=create_jwt_token(SECRET, roles=["admin"])) as boss:
        boss.load_model("demo-model")
    now = int(time.time())
    for wrong in (
        create_jwt_token("another secret of at least thirty-two bytes"), create_jwt_token(SECRET, algorithm="HS512"),
        create_jwt_token(SECRET, exp=now - 90, iat=now - 900), create_jwt_token(SECRET, nbf=now + 600),
    ):
        with client(daemon, token=wrong) as stranger, pytest.raises(AuthenticationError):
            stranger.infer("demo-model", {"input": ROW})


def test_a_stranger_is_told_before_the_body_is_waited_for(daemon: Daemon) -> None:
    """And learns nothing of what there is: neither models nor routes."""
    with socket.create_connection((daemon.host, daemon.port), 30) as sock:
        sock.sendall(b"POST /v2/models/demo-model/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n")
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"www-authenticate: Bearer" in answer
    event = next(line for line in daemon.log.splitlines() if "refuse" in line)
    assert "a caller: " in event


def test_nothing_that_was_shown_is_logged(daemon: Daemon) -> None:
    """C51"""
    for secret in (READER, CALLER, BOSS, SECRET):
        assert secret not in daemon.log
    assert "need one of 3 keys (read_only, inference, admin) or a token; health is open" in daemon.log
