"""Looking is not traffic: health, metrics, metadata and listings wake no model and keep none awake, however often they are asked."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from snoozeml import ModelState, SnoozeClient

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until

PATHS = (
    "/", "/metrics", "/health/live", "/health/ready", "/v1/models", "/v1/events",
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats",
    "/v2/models/m", "/v2/models/m/ready", "/v2/models/m/config", "/v2/models/m/stats",
    "/v2/models/m/versions/1", "/v2/models/m/versions/1/ready", "/v2/models/m/versions/1/config", "/v2/models/m/versions/1/stats",
)
CONFIG = """
[[models]]
id = "m"
path = "m.onnx"
idle_timeout_secs = 1
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("probes")
    onnx_models.ident(directory / "m.onnx")
    (directory / "models.toml").write_text(CONFIG)
    with running(directory, "--models-dir", str(directory)) as daemon:
        yield daemon


def look_everywhere(daemon: Daemon) -> None:
    for path in PATHS:
        # The model may fall asleep between any two looks: its own readiness is then 503, and nothing else changes.
        usual = {200, 503} if path.endswith(("/m/ready", "/1/ready")) else {200}
        for method in ("GET", "HEAD"):
            status, answer = daemon.call(method, path)
            assert status in usual, (method, path, answer)
    assert daemon.call("POST", "/v2/repository/index")[0] == 200
    assert daemon.call("POST", "/v2/repository/index", {"ready": True})[0] == 200
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    with triton.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
        client.get_model_metadata("m")
        client.is_model_ready("m")
        client.get_inference_statistics("m")
    with triton_grpc.InferenceServerClient(daemon.grpc) as over_grpc:
        assert over_grpc.is_server_ready()
        over_grpc.get_model_metadata("m")
        over_grpc.get_model_config("m")
        over_grpc.is_model_ready("m")
        over_grpc.get_inference_statistics("m")
        over_grpc.get_model_repository_index()
    with grpc.insecure_channel(daemon.grpc) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    with SnoozeClient(daemon.url) as client:
        client.models.list()
        client.health_ready()
        client.get_metrics()


def loads(daemon: Daemon) -> int:
    return sum(event["kind"] == "load" for event in daemon.events(model="m"))


def test_nothing_wakes_a_model_that_was_never_loaded(daemon: Daemon) -> None:
    """C17."""
    for _ in range(20):
        look_everywhere(daemon)
    assert loads(daemon) == 0
    wait_until(lambda: not daemon.replicas(), "whoever looked into the file is gone")


def test_nothing_keeps_a_model_awake_or_wakes_it_again(daemon: Daemon) -> None:
    """C17."""
    assert daemon.infer("m", "x", [1, 2, 3, 4], [1, 4])[0] == 200

    def asleep() -> bool:
        look_everywhere(daemon)
        with SnoozeClient(daemon.url) as client:
            return client.models.get("m").state is ModelState.IDLE

    wait_until(asleep, "the model sleeps, although it is looked at all the time")
    for _ in range(10):
        look_everywhere(daemon)
    assert loads(daemon) == 1
    assert daemon.events(model="m", kind="unload")[-1]["figures"]["reason"] == "idle"
    assert daemon.metric("wakeful_requests_total", model="m") == 1


@pytest.mark.parametrize("path", ["/v2/models/nobody", "/v2/models/nobody/ready", "/v2/models/m/versions/2", "/v2/models/m/versions/2/ready"])
def test_what_is_not_there(daemon: Daemon, path: str) -> None:
    status, answer = daemon.call("GET", path)
    assert status == 404
    assert answer["error"]


def test_no_header_makes_a_request_invisible(daemon: Daemon) -> None:
    """C17: what a client says of itself is no reason not to count it."""
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    before = daemon.metric("wakeful_requests_total", model="m")
    agents = ({"user-agent": "kube-probe/1.30"}, {"k-network-probe": "activator"}, {"user-agent": "Prometheus/2"})
    for headers in agents:
        assert daemon.call("POST", "/v2/models/m/infer", body, headers)[0] == 200
    assert daemon.metric("wakeful_requests_total", model="m") == before + len(agents)
