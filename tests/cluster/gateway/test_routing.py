"""Requests find their model through a real Envoy, and real clients need not know of it."""

import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests import onnx_models
from tests.cluster.gateway.calls import body, call
from tests.cluster.gateway.conftest import endpoint
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import Daemon, wait_until
from wakeful.cluster.gateway.bootstrap import LARGEST_RETRIED
from wakeful.cluster.planning.world import Endpoint

pytestmark = pytest.mark.usefixtures("everywhere")
MB = 1 << 20
ROW = np.array([[1, 2, 3, 4]], np.float32)


# ── by what the cluster is found ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("path", "headers"), [
    ("/v2/models/dog/infer", {}), ("/v2/models/dog/versions/1/infer", {}), ("/v2/models/dog/infer?x=/v2/models/cat", {}),
    ("/v2/models/dog/infer", {"wakeful-model": "dog"}), ("/v2/models/dog/infer", {"seldon-model": "dog"}),
])
def test_over_http(pod: GatewayPod, path: str, headers: dict[str, str]) -> None:
    helped = pod.envoy.stat("cluster.wakeful-helper.upstream_rq_total")
    status, answer, _ = call(pod.url, "POST", path, body(ROW), headers)
    assert (status, answer["outputs"][0]["data"]) == (200, [2, 4, 6, 8])
    assert pod.envoy.stat("cluster.wakeful-helper.upstream_rq_total") == helped


def test_in_the_words_of_snoozeml(pod: GatewayPod) -> None:
    status, answer, _ = call(pod.url, "POST", "/v1/models/dog/infer", body(ROW))
    assert status == 200, answer


def test_a_name_that_is_part_of_another_is_not_that_one(pod: GatewayPod, controller: Controller) -> None:
    asked = len(controller.planner.asked)
    assert call(pod.url, "GET", "/v2/models/do")[0] == 404
    assert call(pod.url, "GET", "/v2/models/dog.x")[0] == 404
    assert controller.planner.asked[asked:] == ["do", "dog.x"]


def test_a_header_cannot_reach_into_the_other_protocol(pod: GatewayPod, controller: Controller) -> None:
    assert call(pod.url, "POST", "/v2/models/dog/infer", body(ROW), {"wakeful-model": "dog/grpc"})[0] == 404


# ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def http_input(values: np.ndarray) -> triton_http.InferInput:
    return triton_http.InferInput("x", list(values.shape), "FP32").set_data_from_numpy(values)


def grpc_input(values: np.ndarray) -> triton_grpc.InferInput:
    return triton_grpc.InferInput("x", list(values.shape), "FP32").set_data_from_numpy(values)


@pytest.fixture
def http(pod: GatewayPod) -> Iterator[triton_http.InferenceServerClient]:
    with triton_http.InferenceServerClient(pod.address, network_timeout=60.0) as client:
        yield client


@pytest.fixture
def grpc(pod: GatewayPod) -> Iterator[triton_grpc.InferenceServerClient]:
    with triton_grpc.InferenceServerClient(pod.address) as client:
        yield client


@pytest.mark.parametrize("headers", [{}, {"wakeful-model": "dog"}])
def test_tritonclient_over_http(http: triton_http.InferenceServerClient, headers: dict[str, str]) -> None:
    assert http.is_server_live()
    assert http.is_server_ready()
    assert http.get_server_metadata()["name"] == "wakeful"
    assert http.is_model_ready("dog")
    assert http.get_model_metadata("dog", headers=dict(headers))["inputs"][0]["name"] == "x"
    assert http.infer("dog", [http_input(ROW)], headers=dict(headers)).as_numpy("y").tolist() == [[2, 4, 6, 8]]


@pytest.mark.parametrize("headers", [{}, {"wakeful-model": "dog"}])
def test_tritonclient_over_grpc(grpc: triton_grpc.InferenceServerClient, headers: dict[str, str]) -> None:
    assert grpc.is_server_live()
    assert grpc.is_server_ready()
    assert grpc.get_server_metadata().name == "wakeful"
    assert grpc.is_model_ready("dog", headers=dict(headers))
    assert grpc.get_model_metadata("dog", headers=dict(headers)).inputs[0].name == "x"
    assert grpc.infer("dog", [grpc_input(ROW)], headers=dict(headers)).as_numpy("y").tolist() == [[2, 4, 6, 8]]


@pytest.mark.parametrize("headers", [{}, {"wakeful-model": "cat"}])
def test_forty_megabytes_both_ways(
    http: triton_http.InferenceServerClient, grpc: triton_grpc.InferenceServerClient, headers: dict[str, str],
) -> None:
    large = np.arange(10 * MB, dtype=np.float32).reshape(1, -1)
    assert np.array_equal(http.infer("cat", [http_input(large)], headers=dict(headers)).as_numpy("y"), large)
    assert np.array_equal(grpc.infer("cat", [grpc_input(large)], headers=dict(headers)).as_numpy("y"), large)


@pytest.mark.parametrize("headers", [{}, {"wakeful-model": "dog"}])
def test_streams(grpc: triton_grpc.InferenceServerClient, headers: dict[str, str]) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)), headers=dict(headers))
    for number in range(20):
        grpc.async_stream_infer("dog", [grpc_input(ROW * number)])
        result, error = answers.get(timeout=30)  # each is answered while the stream goes on
        assert error is None
        assert result.as_numpy("y").tolist() == (ROW * number * 2).tolist()
    grpc.stop_stream()


def test_a_model_that_is_not_there(
    http: triton_http.InferenceServerClient, grpc: triton_grpc.InferenceServerClient, controller: Controller,
) -> None:
    with pytest.raises(InferenceServerException, match="no model is called 'cats'") as caught:
        http.infer("cats", [http_input(ROW)])
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="no model is called 'cats'") as caught:
        grpc.infer("cats", [grpc_input(ROW)])
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_an_error_of_the_model_comes_as_the_daemon_says_it(grpc: triton_grpc.InferenceServerClient, http: triton_http.InferenceServerClient) -> None:
    wrong = np.zeros((1, 3), np.float32)
    with pytest.raises(InferenceServerException, match="x: expected") as over_http:
        http.infer("dog", [http_input(wrong)])
    with pytest.raises(InferenceServerException) as over_grpc:
        grpc.infer("dog", [grpc_input(wrong)])
    assert over_http.value.message() == over_grpc.value.message()
    assert over_grpc.value.status() == "StatusCode.INVALID_ARGUMENT"


# ── replicas ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_replicas_have_a_share(pod: GatewayPod, daemons: list[Daemon]) -> None:
    before = [daemon.metric("wakeful_requests_total", model="dog") for daemon in daemons]
    # One after the other: of requests at once, a replica that stands still for a moment rightly gets fewer.
    assert {call(pod.url, "POST", "/v2/models/dog/infer", body(ROW))[0] for _ in range(100)} == {200}
    shares = [daemon.metric("wakeful_requests_total", model="dog") - earlier for daemon, earlier in zip(daemons, before, strict=True)]
    assert sum(shares) == 100
    assert min(shares) > 10


def test_nothing_is_lost_when_a_replica_is_gone_and_still_routed(pod: GatewayPod, daemons: list[Daemon], controller: Controller) -> None:
    nobody = Endpoint("gone", "127.0.0.1", 1, 1)
    controller.settle({"dog": (*map(endpoint, daemons), nobody)})
    with ThreadPoolExecutor(16) as pool:
        statuses = [status for status, _, _ in pool.map(lambda _: call(pod.url, "POST", "/v2/models/dog/infer", body(ROW)), range(600))]
    assert statuses == [200] * 600
    assert pod.envoy.stat("cluster.model/dog.upstream_rq_retry") > 0


def test_nothing_is_lost_when_a_model_moves(pod: GatewayPod, daemons: list[Daemon], controller: Controller) -> None:
    """Routed here, then on both, then there, and back, with every step acknowledged."""
    here, there = map(endpoint, daemons)
    stop = False

    def knock(_: int) -> list[int]:
        seen = []
        while not stop:
            seen.append(call(pod.url, "POST", "/v2/models/dog/infer", body(ROW))[0])
        return seen

    with ThreadPoolExecutor(4) as pool:
        knocking = [pool.submit(knock, number) for number in range(4)]
        for _ in range(100):
            for routes in ((here,), (here, there), (there,), (here, there)):
                controller.settle({"dog": routes})
        stop = True
        statuses = [status for one in knocking for status in one.result()]
    assert len(statuses) > 100
    assert set(statuses) == {200}


@pytest.fixture
def broken_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Its file of the model cannot be loaded: it refuses every request unstarted."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "dog.onnx").write_bytes(b"no model")
    daemon = Daemon(tmp_path / "daemon", "--host", "127.0.0.1", "--models-dir", str(tmp_path / "models"))
    yield daemon
    daemon.stop()


@pytest.fixture
def fragile_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """There are inputs that end the process of its model."""
    (tmp_path / "models").mkdir()
    onnx_models.fatal(tmp_path / "models" / "dog.onnx")
    daemon = Daemon(tmp_path / "daemon", "--host", "127.0.0.1", "--models-dir", str(tmp_path / "models"))
    yield daemon
    daemon.stop()


def test_what_ends_processes_is_not_tried_elsewhere(
    pod: GatewayPod, controller: Controller, fragile_daemon: Daemon, grpc: triton_grpc.InferenceServerClient,
) -> None:
    killer = np.array([[onnx_models.FATAL, 1, 2, 3]], np.float32)
    counts = ("cluster.model/dog.upstream_rq_retry", "cluster.model/dog/grpc.upstream_rq_retry")
    controller.settle({"dog": (endpoint(fragile_daemon),)})
    before = [pod.envoy.stat(name) for name in counts]
    for text in ("SIGFPE, 2 times while it ran this request", "which is not tried again"):
        status, answer, headers = call(pod.url, "POST", "/v2/models/dog/infer", body(killer))
        assert (status, "x-wakeful-unstarted" in headers) == (500, False)
        assert text in answer["error"]
    with pytest.raises(InferenceServerException, match="which is not tried again"):
        grpc.infer("dog", [grpc_input(killer)], headers={"wakeful-model": "dog"})
    assert [pod.envoy.stat(name) for name in counts] == before
    assert fragile_daemon.metric("wakeful_restarts_total", model="dog", cause="signal") == 2


def test_what_surely_did_not_start_is_tried_elsewhere(
    pod: GatewayPod, daemons: list[Daemon], controller: Controller, broken_daemon: Daemon, grpc: triton_grpc.InferenceServerClient,
) -> None:
    controller.settle({"dog": (endpoint(daemons[0]), endpoint(broken_daemon))})
    for headers in ({}, {"wakeful-model": "dog"}):
        for _ in range(10):
            assert call(pod.url, "POST", "/v2/models/dog/infer", body(ROW), dict(headers))[0] == 200
            assert grpc.infer("dog", [grpc_input(ROW)], headers=dict(headers)).as_numpy("y").tolist() == [[2, 4, 6, 8]]
    assert pod.envoy.stat("cluster.model/dog.upstream_rq_retry") > 0
    assert pod.envoy.stat("cluster.model/dog/grpc.upstream_rq_retry") > 0


def test_a_large_body_that_came_before_its_connection_had_failed_may_be_sent_again(pod: GatewayPod, controller: Controller) -> None:
    """Nobody has a byte of it: Envoy was about to try again, and by then had more than it keeps."""
    controller.settle({"dog": (Endpoint("gone", "127.0.0.1", 1, 1),)})
    host, _, port = pod.url.removeprefix("http://").partition(":")
    begin = b"POST /v2/models/dog/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (2 * LARGEST_RETRIED)

    answers: list[bytes] = []

    def outgrown() -> bool:
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(begin + bytes(LARGEST_RETRIED + MB // 16))
            answers.append(line.recv(65536))
        assert answers[-1].startswith(b"HTTP/1.1 503 ")
        return b"more of the body has come" in answers[-1]

    wait_until(outgrown, "the body has been quicker than the connection's end")
    assert b"x-wakeful-unstarted: 1" in answers[-1]


def test_a_large_body_is_tried_elsewhere_only_before_a_replica_has_had_it(
    pod: GatewayPod, daemons: list[Daemon], controller: Controller, broken_daemon: Daemon,
) -> None:
    """Envoy keeps no more than LARGEST_RETRIED of it. Who is not tried again is told so by the daemon's own answer. The good
    replica says 400, as there are too many columns: an answer that is quickly made."""
    zeros = np.zeros(LARGEST_RETRIED // 4 + MB, np.float32)
    head = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}' % (zeros.size, zeros.nbytes)
    sent, headers = head + zeros.tobytes(), {"inference-header-content-length": str(len(head))}
    controller.settle({"dog": (endpoint(daemons[0]), Endpoint("gone", "127.0.0.1", 1, 1))})
    retried = pod.envoy.stat("cluster.model/dog.upstream_rq_retry")
    answers = [call(pod.url, "POST", "/v2/models/dog/infer", sent, headers) for _ in range(20)]
    assert 400 in {status for status, _, _ in answers}, "nobody has taken a byte of it"
    for status, _, told in answers:  # more than that may have come by the time that a connection has failed
        assert status == 400 or (status, told["x-wakeful-unstarted"], told["retry-after"]) == (503, "1", "1")
    assert pod.envoy.stat("cluster.model/dog.upstream_rq_retry") > retried
    controller.settle({"dog": (endpoint(broken_daemon),)})
    status, _, told = call(pod.url, "POST", "/v2/models/dog/infer", sent, headers)
    assert (status, told["x-wakeful-unstarted"]) == (503, "1")
    controller.settle({"dog": (endpoint(daemons[0]), endpoint(broken_daemon))})
    retried = pod.envoy.stat("cluster.model/dog.upstream_rq_retry")
    assert {call(pod.url, "POST", "/v2/models/dog/infer", sent, headers)[0] for _ in range(20)} == {400, 503}
    assert pod.envoy.stat("cluster.model/dog.upstream_rq_retry") == retried
