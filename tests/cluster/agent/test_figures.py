"""Lag is the same of every protocol, and what the daemon does to a delivered model by itself is told."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests import onnx_models, tokenizer_files
from tests.cluster.agent.controller import Controller, controlling, pod, wanted
from tests.daemon import Daemon, frozen, wait_until
from wakeful.cluster.wire import Report, UseNow

Pod = tuple[Controller, Daemon]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    directory = tmp_path_factory.mktemp("figures")
    (directory / "c.toml").touch()
    onnx_models.ident(directory / "plain.onnx")
    (directory / "encoder").mkdir()
    onnx_models.token_encoder(directory / "encoder" / "model.onnx")
    tokenizer_files.words(directory / "encoder" / "tokenizer.json")
    with controlling() as controller:
        controller.models = {
            "plain": wanted(directory / "plain.onnx", serving={"max_replicas": 1}), "encoder": wanted(directory / "encoder"),
            "frail": wanted(directory / "plain.onnx", "r2"),
        }
        with pod(directory / "pod", controller, options=["--config", str(directory / "c.toml")]) as daemon:
            for name in controller.models:
                controller.wait_state(name, "ready")
            yield controller, daemon


def by_http(daemon: Daemon) -> None:
    assert daemon.infer("plain", "x", [1.0, 2.0, 3.0, 4.0], [1, 4])[0] == 200


def by_grpc(daemon: Daemon) -> None:
    made = service_pb2.ModelInferRequest(model_name="plain")
    made.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    made.raw_input_contents.append(np.zeros(4, "<f4").tobytes())
    with grpc.insecure_channel(daemon.grpc) as channel:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(made, timeout=60)


def texts(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v1/embeddings", {"model": "encoder", "input": ["hello world", "hello", "world"]})[0] == 200


def settled(controller: Controller, model: str) -> UseNow:
    """What the agent says of use when it has had time to say it."""
    count = len(controller.of(Report)) + 3
    controller.wait(lambda: len(controller.of(Report)) > count, "some periods have passed")
    return controller.use[model]


@pytest.mark.parametrize(("call", "model"), [(by_http, "plain"), (by_grpc, "plain"), (texts, "encoder")])
def test_a_call_is_in_flight_from_its_arrival_to_its_answer(served: Pod, call: Any, model: str) -> None:
    controller, daemon = served
    call(daemon)  # so that all its processes are there
    before = settled(controller, model)
    with frozen(*daemon.replicas()):
        calls = [threading.Thread(target=call, args=(daemon,)) for _ in range(2)]
        for one in calls:
            one.start()
        controller.wait(lambda: controller.use[model].lag > 1.95, "both count, each once, for the whole of a period")
        now = controller.use[model]
        assert (now.arrived - before.arrived, now.completed - before.completed) == (2, 0)
    for one in calls:
        one.join()
    controller.wait(lambda: controller.use[model].completed == before.completed + 2, "both have ended")
    controller.wait(lambda: controller.use[model].lag == 0, "none is in flight")
    assert controller.use[model].last_used > before.last_used


def test_the_wait_for_a_reload_counts(served: Pod) -> None:
    controller, daemon = served
    daemon.call("POST", "/v2/repository/models/plain/unload")
    before = settled(controller, "plain")
    with frozen(*(pid for pid, role in daemon.children().items() if role == "nursery")):
        calls = [threading.Thread(target=by_http, args=(daemon,)) for _ in range(3)]
        for one in calls:
            one.start()
        controller.wait(lambda: controller.use["plain"].lag > 2.95, "they wait for the model to wake")
    for one in calls:
        one.join()
    controller.wait(lambda: controller.use["plain"].completed == before.completed + 3, "all have ended")
    assert controller.held["plain"].state == "ready"


def test_a_new_configuration_and_a_look_at_the_directory_leave_delivered_models_alone(served: Pod) -> None:
    controller, daemon = served
    before = len(daemon.events())
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_event("config", text="the configuration was applied", since=daemon.events()[before - 1]["seq"])
    daemon.call("POST", "/v2/repository/index", {})
    daemon.call("POST", "/v1/models/refresh")
    by_http(daemon)
    texts(daemon)
    assert {held.state for held in controller.held.values()} == {"ready"}


def test_a_model_whose_processes_die_again_and_again_is_told(served: Pod) -> None:
    controller, daemon = served
    for _ in range(3):
        since = daemon.events()[-1]["seq"]
        daemon.call("POST", "/v2/repository/models/frail/unload")
        os.kill(daemon.wake("frail"), signal.SIGSEGV)
        daemon.wait_event("restart", since=since)
    held = controller.wait_state("frail", "failed", "r2")
    assert "died 3 times" in held.error
    assert "SIGSEGV" in held.error


def test_a_tokenizer_goes_with_the_last_model_that_has_it(served: Pod) -> None:
    controller, daemon = served
    tokenizers = [event for event in daemon.events(kind="config") if event["model"].startswith("tokenizers/")]
    assert len(tokenizers) == 1
    controller.want(encoder=None)
    controller.wait(lambda: "encoder" not in controller.held, "it is gone")
    daemon.wait_event("config", text="no model uses it any more")
    wait_until(lambda: daemon.call("GET", "/v1/models")[0] == 200, "it serves on")
