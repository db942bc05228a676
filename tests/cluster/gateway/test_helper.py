"""What Envoy has no cluster for: sleeping models, unknown ones, and those that only a body names. Real daemons, Envoy, helper and services."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from tests.cluster.gateway.calls import body, call
from tests.cluster.gateway.conftest import endpoint
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import Daemon, wait_until
from wakeful.cluster.controller.tls import make, names_of
from wakeful.cluster.planning.world import Endpoint
from wakeful.cluster.wire import WakeTold

ROW = np.array([[1, 2, 3, 4]], np.float32)
INFER = "/v2/models/dog/infer"
WAKING = WakeTold("waking", hold=60.0)


@pytest.fixture(autouse=True)
def asleep(controller: Controller, pod: GatewayPod) -> Iterator[None]:
    """Nothing is routed, and the controller knows nothing."""
    controller.settle({})
    controller.planner.asked.clear()
    controller.planner.answers.clear()
    yield
    wait_until(lambda: call(pod.url, "GET", "/v2/health/live")[0] == 200, "the gateway answers")


def route(controller: Controller, daemons: list[Daemon]) -> None:
    """As a controller does: first the routes, and when all have them, the word."""
    controller.settle({"dog": tuple(map(endpoint, daemons))})
    controller.answer("dog", WakeTold("routed"))


def infer_grpc(pod: GatewayPod, model: str = "dog", headers: dict[str, str] | None = None) -> list[list[float]]:
    with triton_grpc.InferenceServerClient(pod.address) as client:
        tensor = triton_grpc.InferInput("x", [1, 4], "FP32").set_data_from_numpy(ROW)
        result: list[list[float]] = client.infer(model, [tensor], headers=dict(headers or {})).as_numpy("y").tolist()
        return result


def test_fifty_at_once_are_one_wake_and_all_are_answered(pod: GatewayPod, controller: Controller, daemons: list[Daemon]) -> None:
    controller.answer("dog", WAKING)
    with ThreadPoolExecutor(50) as pool:
        over_http = [pool.submit(call, pod.url, "POST", INFER, body(ROW * n)) for n in range(25)]
        over_grpc = [pool.submit(infer_grpc, pod, "dog", {"wakeful-model": "dog"} if n % 2 else None) for n in range(25)]
        wait_until(lambda: pod.held() == 50, "all are held")
        assert controller.planner.asked == ["dog"]
        route(controller, daemons)
        for n, one in enumerate(over_http):
            status, answer, _ = one.result()
            assert (status, answer["outputs"][0]["data"]) == (200, (ROW * n * 2).ravel().tolist())
        assert [one.result() for one in over_grpc] == [[[2, 4, 6, 8]]] * 25
    assert pod.held() == 0


def test_a_hold_ends_and_the_caller_may_come_again(pod: GatewayPod, controller: Controller) -> None:
    controller.answer("dog", WakeTold("waking", hold=0.3))
    began = time.monotonic()
    status, answer, headers = call(pod.url, "POST", INFER, body(ROW))
    assert status == 503
    assert time.monotonic() - began >= 0.3
    assert answer == {"error": "model dog is waking, and has not woken within 0.3 s; it goes on"}
    assert headers["retry-after"] == "5"
    with pytest.raises(InferenceServerException, match="has not woken") as caught:
        infer_grpc(pod)
    assert caught.value.status() == "StatusCode.UNAVAILABLE"


def test_a_model_that_is_switched_off(pod: GatewayPod, controller: Controller) -> None:
    controller.answer("dog", WakeTold("off"))
    status, answer, headers = call(pod.url, "POST", INFER, body(ROW))
    assert (status, answer["error"]) == (503, "model dog is switched off: it has 0 replicas and no bounds")
    assert headers["retry-after"] == "5"


def test_an_unknown_name_is_answered_with_those_that_are_near(pod: GatewayPod, controller: Controller) -> None:
    controller.answer("dgo", WakeTold("unknown", near=["dog"]))
    expected = "no model is called 'dgo'; did you mean dog?"
    assert call(pod.url, "POST", "/v2/models/dgo/infer", body(ROW))[:2] == (404, {"error": expected})
    assert call(pod.url, "POST", "/v1/models/dgo/infer", body(ROW))[:2] == (404, {"error": expected})
    assert call(pod.url, "POST", "/v1/embeddings", {"model": "dgo", "input": "x"})[:2] == (
        404, {"error": {"message": expected, "type": "invalid_request_error", "param": None, "code": "not_found"}},
    )
    with pytest.raises(InferenceServerException, match="did you mean dog") as caught:
        infer_grpc(pod, "dgo")
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_a_body_names_its_model_and_needs_no_controller(pod: GatewayPod, controller: Controller, daemons: list[Daemon]) -> None:
    """What is routed is found by Envoy alone once it is named: the model has no tokenizer, and says so itself."""
    controller.settle({"dog": tuple(map(endpoint, daemons))})
    status, answer, _ = call(pod.url, "POST", "/v1/embeddings", {"model": "dog", "input": "x"})
    assert (status, answer) == daemons[0].call("POST", "/v1/embeddings", {"model": "dog", "input": "x"})
    assert infer_grpc(pod) == [[2, 4, 6, 8]]
    assert controller.planner.asked == []


@pytest.mark.parametrize(("path", "sent", "status", "text"), [
    ("/v1/embeddings", b"[", 400, "expected JSON"), ("/v1/embeddings", b"{}", 400, "model: expected the model's name"),
    ("/nothing", None, 404, "nothing at"),
])
def test_what_names_no_model(pod: GatewayPod, path: str, sent: bytes | None, status: int, text: str) -> None:
    found, answer, _ = call(pod.url, "POST" if sent else "GET", path, sent)
    assert found == status
    assert text in str(answer["error"])


def test_asking_whether_a_model_is_ready_wakes_nothing(pod: GatewayPod, controller: Controller) -> None:
    assert call(pod.url, "GET", "/v2/models/dog/ready")[0] == 503
    with triton_grpc.InferenceServerClient(pod.address) as client:
        assert not client.is_model_ready("dog")
        assert not client.is_model_ready("dog", headers={"wakeful-model": "dog"})
    assert controller.planner.asked == []


def test_what_goes_in_a_circle_is_told(pod: GatewayPod, controller: Controller) -> None:
    """The controller says routed, and this Envoy has heard of nothing."""
    controller.answer("dog", WakeTold("routed"))
    status, answer, _ = call(pod.url, "POST", INFER, body(ROW))
    assert (status, answer["error"]) == (503, "model dog is routed, but this gateway has not heard of it; is it cut off from the controller?")


def test_a_caller_that_leaves_is_not_held(pod: GatewayPod, controller: Controller) -> None:
    controller.answer("dog", WAKING)
    with triton_grpc.InferenceServerClient(pod.address) as client:
        tensor = triton_grpc.InferInput("x", [1, 4], "FP32").set_data_from_numpy(ROW)
        with pytest.raises(InferenceServerException):
            client.infer("dog", [tensor], client_timeout=0.5)
    wait_until(lambda: pod.held() == 0, "nobody is held")


def test_a_held_body_stays_with_its_caller_and_streams_through(pod: GatewayPod, controller: Controller, daemons: list[Daemon]) -> None:
    controller.answer("cat", WAKING)
    large = np.arange(1 << 20, dtype=np.float32)  # more than every buffer on the way
    head = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}' % (large.size, large.nbytes)
    result: list[tuple[int, object, dict[str, str]]] = []
    caller = threading.Thread(target=lambda: result.append(call(
        pod.url, "POST", "/v2/models/cat/infer", head + large.tobytes(), {"inference-header-content-length": str(len(head))},
    )))
    caller.start()
    wait_until(lambda: pod.held() == 1, "it is held")
    controller.settle({"cat": tuple(map(endpoint, daemons))})
    controller.answer("cat", WakeTold("routed"))
    caller.join(60)
    assert result[0][0] == 200


def test_the_next_leader_is_asked_when_the_first_one_goes(daemons: list[Daemon], tmp_path_factory: pytest.TempPathFactory) -> None:
    first = Controller()
    first.answer("dog", WAKING)
    pod = GatewayPod(tmp_path_factory.mktemp("gateway"), first.address)
    try:
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(call, pod.url, "POST", INFER, body(ROW))
            wait_until(lambda: "dog" in first.planner.asked, "the first leader is asked")
            first.stop()
            second = Controller(port=first.port)
            second.answer("dog", WAKING)
            try:
                wait_until(lambda: "dog" in second.planner.asked, "the second leader is asked")
                second.wait(lambda _: second.gateways() == {"gw-0"}, "Envoy has come")
                route(second, daemons)
                assert held.result()[0] == 200
            finally:
                second.stop()
    finally:
        pod.stop()


@pytest.mark.parametrize("name", [None, "wakeful-controller"])
def test_envoy_and_helper_trust_the_controller_by_its_certificate(tmp_path: Path, daemons: list[Daemon], name: str | None) -> None:
    pem = make(names_of("wakeful-controller", "models"), datetime.now(UTC))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(pem.authority)
    controller = Controller(pem=pem)
    controller.answer("dgo", WakeTold("unknown", near=["dog"]))
    pod = GatewayPod(tmp_path / "gateway", controller.address, ca=authority, controller_name=name)
    try:
        controller.wait(lambda _: controller.gateways() == {"gw-0"}, "Envoy has come")
        controller.settle({"dog": tuple(map(endpoint, daemons))})
        assert call(pod.url, "POST", INFER, body(ROW))[0] == 200
        assert call(pod.url, "POST", "/v2/models/dgo/infer", body(ROW))[0] == 404
    finally:
        pod.stop()
        controller.stop()


def test_a_stranger_is_no_controller(tmp_path: Path) -> None:
    known, stranger = (make(names_of("wakeful-controller", "models"), datetime.now(UTC)) for _ in range(2))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(known.authority)
    controller = Controller({"dog": (Endpoint("u1", "127.0.0.1", 1, None),)}, pem=stranger)
    pod = GatewayPod(tmp_path / "gateway", controller.address, ca=authority)
    try:
        wait_until(lambda: pod.envoy.stat("cluster.wakeful-controller.ssl.fail_verify_error") > 0, "Envoy has refused it")
        assert pod.envoy.clusters() == {}
        assert controller.gateways() == frozenset()
    finally:
        pod.stop()
        controller.stop()


def test_the_helper_takes_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    pods: list[GatewayPod] = []
    port = 0
    for name in ("first", "second"):
        pem = make(names_of("wakeful-controller", "models"), datetime.now(UTC))
        (tmp_path / "new.crt").write_bytes(pem.authority)
        (tmp_path / "new.crt").rename(authority)
        controller = Controller(pem=pem, port=port)
        controller.answer("dgo", WakeTold("unknown", f"the {name} says so"))
        port = controller.port
        pods = pods or [GatewayPod(tmp_path / "gateway", controller.address, ca=authority)]
        assert call(pods[0].url, "POST", "/v2/models/dgo/infer", body(ROW))[:2] == (404, {"error": f"the {name} says so"})
        controller.stop()
    pods[0].stop()
