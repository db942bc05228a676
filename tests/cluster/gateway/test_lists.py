"""Which models there are, through a real gateway: in the daemon's forms, and only for whom the daemons would tell."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests import onnx_models
from tests.cluster.gateway.calls import call
from tests.cluster.gateway.conftest import endpoint
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import Daemon, running, wait_until
from wakeful import __version__
from wakeful.cluster.gateway.catalog import FRESH
from wakeful.cluster.gateway.forwarding import EXTENSIONS
from wakeful.cluster.gateway.lists import SDK_HEADER
from wakeful.cluster.wire import ModelsTold, Standing
from wakeful.frontends.http.openai import SDK_HEADER as DAEMONS_SDK_HEADER

CAT, DOG, OWL = (
    Standing("cat", "Available", serves=True), Standing("dog", "Waking", serves=False, reason="1 loading; none serves yet"),
    Standing("owl", "Failed", serves=False, reason="on triton-0: no file"),
)
INDEX = "/v2/repository/index"
SDK = {SDK_HEADER: "python"}


@pytest.fixture(autouse=True)
def listed(controller: Controller, pod: GatewayPod) -> None:
    """What was told to the test before is stale."""
    controller.call(_set, controller, ModelsTold([CAT, DOG, OWL]))
    wait_until(lambda: names(pod) == ["cat", "dog", "owl"], "the gateway lists them")


def _set(controller: Controller, told: ModelsTold) -> None:
    controller.planner.listed = told


def names(pod: GatewayPod) -> Any:
    status, answer, _ = call(pod.url, "POST", INDEX)
    return [one["name"] for one in answer] if status == 200 else answer


def test_the_index_of_the_open_inference_protocol(pod: GatewayPod) -> None:
    status, answer, _ = call(pod.url, "POST", INDEX, {})
    assert (status, answer) == (200, [
        {"name": "cat", "state": "READY", "reason": ""}, {"name": "dog", "state": "LOADING", "reason": DOG.reason},
        {"name": "owl", "state": "UNAVAILABLE", "reason": OWL.reason},
    ])
    assert call(pod.url, "POST", INDEX, {"ready": True})[1] == [{"name": "cat", "state": "READY", "reason": ""}]


@pytest.mark.parametrize(("body", "status", "text"), [(b'{"ready": 3}', 400, "ready"), (b"x" * (65 << 10), 413, "64 KiB")])
def test_what_is_no_question(pod: GatewayPod, body: bytes, status: int, text: str) -> None:
    found, answer, _ = call(pod.url, "POST", INDEX, body)
    assert found == status
    assert text in answer["error"]


def test_lists_have_the_forms_of_a_daemons(pod: GatewayPod, daemons: list[Daemon]) -> None:
    """Key by key and type by type, apart from versions, which the cluster does not know."""
    assert SDK_HEADER == DAEMONS_SDK_HEADER
    for path, headers in (("/v1/models", {}), ("/v1/models", SDK), ("/openai/v1/models", {})):
        ours, theirs = (call(url, "GET", path, headers=headers)[1] for url in (pod.url, daemons[0].url))
        assert type(ours) is type(theirs)
        ours, theirs = (one["data"] if isinstance(one, dict) else one for one in (ours, theirs))
        assert [one["id"] for one in ours] == ["cat", "dog", "owl"]
        nullable = {"description"}
        assert {key: type(value) for key, value in ours[0].items() if key not in nullable} == {
            key: type(value) for key, value in theirs[0].items() if key not in nullable
        }
        assert ours[0].keys() == theirs[0].keys()
    [theirs] = (one for one in call(daemons[0].url, "POST", INDEX)[1] if one["name"] == "cat")
    assert call(pod.url, "POST", INDEX)[1][0].keys() == theirs.keys() - {"version"}


def test_clients(pod: GatewayPod, daemons: list[Daemon]) -> None:
    assert [one.id for one in openai.OpenAI(base_url=f"{pod.url}/v1", api_key="none").models.list()] == ["cat", "dog", "owl"]
    with triton_http.InferenceServerClient(pod.address) as http, triton_grpc.InferenceServerClient(pod.address) as grpc:
        for client in (http, grpc):
            assert client.is_server_live()
            assert client.is_server_ready()
        told = {"name": "wakeful", "version": __version__, "extensions": list(EXTENSIONS)}
        assert http.get_server_metadata() == told
        assert grpc.get_server_metadata(as_json=True) == told
        assert call(daemons[0].url, "GET", "/v2")[1] == told
        assert [one["name"] for one in http.get_model_repository_index()] == ["cat", "dog", "owl"]
        index = grpc.get_model_repository_index()
        assert [(one.name, one.state, one.reason) for one in index.models] == [
            ("cat", "READY", ""), ("dog", "LOADING", DOG.reason), ("owl", "UNAVAILABLE", OWL.reason),
        ]


def test_many_callers_are_one_question_and_wake_nothing(pod: GatewayPod, controller: Controller) -> None:
    before, asked, began = controller.planner.lists, list(controller.planner.asked), time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        assert {status for status, _, _ in pool.map(lambda _: call(pod.url, "GET", "/v1/models"), range(200))} == {200}
    assert controller.planner.lists - before <= 1 + (time.monotonic() - began) / FRESH
    assert controller.planner.asked == asked


def test_no_leader(tmp_path: Path) -> None:
    controller = Controller()
    pod = GatewayPod(tmp_path / "gateway", controller.address)
    try:
        controller.stop()
        status, answer, headers = call(pod.url, "GET", "/v1/models")
        assert status == 503
        assert f"the controller ({controller.address}) does not say which models there are: UNAVAILABLE" in answer["error"]
        assert headers["retry-after"] == "5"
        assert call(pod.url, "GET", "/openai/v1/models")[1]["error"]["code"] == "unavailable"
        with triton_grpc.InferenceServerClient(pod.address) as client, pytest.raises(InferenceServerException, match="does not say which") as caught:
            client.get_model_repository_index()
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        assert call(pod.url, "GET", "/v2/health/ready")[0] == 200, "what is routed is served all the same"
        again = Controller(port=controller.port)
        again.call(_set, again, ModelsTold([CAT]))
        wait_until(lambda: names(pod) == ["cat"], "the next leader is asked")
        again.stop()
    finally:
        pod.stop()


def test_a_server_that_asks_for_keys_is_asked_about_the_caller(pod: GatewayPod, controller: Controller, tmp_path: Path) -> None:
    onnx_models.identdyn(tmp_path / "cat.onnx")
    keys = ("--api-key", "read_only:reader-0123456789", "--api-key", "inference:runner-0123456789")
    with running(tmp_path / "daemon", "--host", "127.0.0.1", "--models-dir", str(tmp_path), *keys) as daemon:
        controller.settle({"cat": (endpoint(daemon),)})
        controller.call(_set, controller, ModelsTold([CAT], {"triton": "cat"}))
        wait_until(lambda: names(pod) == {"error": call(daemon.url, "POST", INDEX)[1]["error"]}, "nobody is told")
        good, bad = ({"authorization": f"Bearer {key}"} for key in ("reader-0123456789", "wrong-0123456789"))
        for method, path, headers in (("POST", INDEX, {}), ("GET", "/v1/models", {}), ("GET", "/openai/v1/models", SDK)):
            assert call(pod.url, method, path, headers=headers | good)[0] == 200
            for refused in (headers, headers | bad):
                assert call(pod.url, method, path, headers=refused)[:2] == call(daemon.url, method, path, headers=refused)[:2]
                assert call(pod.url, method, path, headers=refused)[0] in (401, 403)
        with triton_grpc.InferenceServerClient(pod.address) as client:
            assert [one.name for one in client.get_model_repository_index(headers=good).models] == ["cat"]
            with pytest.raises(InferenceServerException) as caught:
                client.get_model_repository_index()
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"


def test_nobody_is_there_to_be_asked_about_the_caller(pod: GatewayPod, controller: Controller) -> None:
    controller.settle({})
    for guards, text in (({"triton": ""}, "the Server triton asks callers for keys"), ({"triton": "cat"}, "this gateway has not heard of it")):
        controller.call(_set, controller, ModelsTold([CAT], guards))
        wait_until(lambda text=text: text in json.dumps(call(pod.url, "GET", "/v1/models")[1]), "it is told")
        assert call(pod.url, "GET", "/v1/models")[0] == 503
