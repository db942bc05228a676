"""`snoozeml.SnoozeDaemon` starts, watches and stops the installed `wakeful` command as if it were its own."""

import fcntl
import gc
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snoozeml import AuthenticationError, GlobalDefaultsConfig, SnoozeClient, SnoozeConfig, SnoozeDaemon, exceptions

from tests import onnx_models
from tests.daemon import alive, processes_below, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the SDK leaves its child's pipes to the collector

COMMAND = Path(sys.executable).parent / "wakeful"
SHORTEST_LINE = 100
"""Bytes that a load and an unload log at least."""
ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SNOOZE_BIN", str(COMMAND))
    monkeypatch.setenv("WAKEFUL_CACHE_DIR", str(tmp_path / "cache"))
    yield
    gc.collect()  # the traceback of an attempt that failed may still hold a child's pipes: they are closed here, not in a later test


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def daemon(**options: Any) -> SnoozeDaemon:
    return SnoozeDaemon(**{"port": free_port(), "grpc_port": free_port(), "startup_timeout": 60, **options})


def failure(one: SnoozeDaemon) -> str:
    """What a start that fails tells the user."""
    with pytest.raises(exceptions.SnoozeConnectionError, match="exited prematurely with code 2") as caught:
        one.start()
    one.stop()
    return caught.value.message


def test_demo(tmp_path: Path) -> None:
    one = daemon(models_dir=tmp_path / "models", demo=True, grpc=False)
    with one, one.client() as client:
        assert {model.id for model in client.models.list()} == {"digits", "demo-model"}
        assert client.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)
        digits = client.infer("digits", {"image": np.zeros((2, 64))})
        assert digits["label"].shape == (2,)
        np.testing.assert_allclose(digits["probabilities"].sum(axis=1), [1, 1], rtol=1e-5)


def test_it_is_found_under_the_name_that_the_sdk_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SNOOZE_BIN")
    monkeypatch.setenv("PATH", str(COMMAND.parent), prepend=":")
    one = daemon(grpc=False)
    with one, one.client() as client:
        assert client.models.list() == []


def test_a_directory_of_its_own_and_no_models() -> None:
    one = daemon()
    with one, one.client() as client:
        assert client.models.list() == []


def test_a_configuration_is_obeyed(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.ident(models / "a.onnx")
    onnx_models.ident(models / "b.onnx")
    onnx_models.log(models / "found.onnx")
    config = SnoozeConfig(defaults=GlobalDefaultsConfig(idle_timeout_secs=60, max_batch_size=8, max_batch_delay_ms=5, routing_strategy="random"))
    config.add_model("first", "a.onnx", description='with "quotes" and ü', pinned=True, max_batch_size=4, max_replicas=2, device="cpu")
    config.add_model("second", "b.onnx", max_batch_delay_ms=7, idle_timeout_secs=0, min_residency_secs=1, routing_strategy="round_robin")
    one = daemon(models_dir=models, config=config)
    with one, one.client() as client:
        listed = {model.id: model for model in client.models.list()}
        first, second, found = listed["first"], listed["second"], listed["found"]
        assert len(listed) == 3
        assert (first.description, first.pinned, first.max_batch_size) == ('with "quotes" and ü', True, 4)
        assert (first.max_batch_delay_ms, first.idle_timeout_secs) == (5, 60)
        assert (second.max_batch_delay_ms, second.idle_timeout_secs, second.max_batch_size) == (7, 0, 8)
        assert (found.max_batch_size, found.pinned) == (8, False)
        assert client.models.wait_for_ready("first", timeout=60).is_loaded, "pinned, so loaded at start"
        assert client.infer("second", {"x": ROW})["y"].tolist() == ROW.tolist()


def test_stop_leaves_no_process() -> None:
    one = daemon(demo=True)
    for _ in range(2):  # the second time on the same ports, at once
        with one, one.client() as client:
            client.infer("digits", {"image": np.zeros((1, 64))})
            process = one._process
            assert process is not None
            below = processes_below(process.pid)
            assert set(below.values()) == {"nursery", "replica"}
        assert process.returncode == 0
        wait_until(lambda below=below: not any(alive(pid) for pid in below), "all processes are gone")


def test_pipes_that_nobody_reads_block_nothing() -> None:
    """The SDK never reads stderr of a daemon that runs. The pipe is made small here, so that it is soon full."""
    one = daemon(demo=True)
    with one, one.client() as client:
        assert one._process is not None
        assert one._process.stderr is not None
        size = fcntl.fcntl(one._process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(size // SHORTEST_LINE):
            client.models.load("demo-model")
            client.models.unload("demo-model")
        assert client.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)


def test_a_wrong_configuration_tells_the_reason(tmp_path: Path) -> None:
    config = SnoozeConfig().add_model("lost", "nowhere.onnx").add_model("odd", "nowhere.onnx", max_batch_size=0)
    message = failure(daemon(models_dir=tmp_path / "models", config=config))
    assert "nowhere.onnx does not exist" in message
    assert "max_batch_size" in message
    assert "models.toml:" in message


def test_a_mock_needs_no_daemon() -> None:
    assert "a mock is served by the client itself" in failure(daemon(config=SnoozeConfig().add_stream(broker="mock")))


def test_a_busy_port_tells_the_reason() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        message = failure(daemon(port=port))
    assert f"127.0.0.1:{port}" in message
    assert "already in use" in message
    assert "Traceback" not in message


@pytest.mark.parametrize("secured", [
    {"api_key": "k3y-never-shown"},
    {"jwt_secret": "s3cret-never-shown"},
    {"config": SnoozeConfig().add_api_key("admin", key="k3y-never-shown")},
    {"config": SnoozeConfig().set_jwt(secret="s3cret-never-shown")},
], ids=["api_key", "jwt_secret", "[auth] key", "[auth] jwt"])
def test_what_should_be_locked_is_locked(secured: dict[str, Any]) -> None:
    one = daemon(**secured, grpc=False)
    with one:
        with SnoozeClient(http_endpoint=one.http_endpoint, use_grpc=False) as stranger, pytest.raises(AuthenticationError):
            stranger.list_models()
        if "api_key" in secured:
            with one.client() as owner:
                assert owner.list_models() == []


def test_grpc_is_there_as_soon_as_the_daemon_is_ready() -> None:
    one = daemon(demo=True)
    with one, one.client(use_grpc=True) as client:
        assert client.health_ready()
        assert client.infer("demo-model", {"input": ROW})["output"].shape == (1, 3)


def test_nothing_listens_for_grpc_where_it_is_not_wanted() -> None:
    one = daemon(grpc=False)
    with one, socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", one.grpc_port)) != 0


def test_a_busy_grpc_port_tells_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        message = failure(daemon(grpc_port=port))
    assert f"127.0.0.1:{port} is already in use" in message
