"""The daemon is told to stop while it serves gRPC: what was accepted is answered, late calls are told that they did not start."""

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests import onnx_models
from tests.daemon import Daemon, frozen, running, wait_until
from tests.grpc_libraries import without_native

MODELS = """
[server]
shutdown_grace_secs = {grace}
lame_duck_secs = {lame_duck}

[defaults]
prepare = "off"

[[models]]
id = "m"
path = "ident.onnx"
batching = "off"
max_replicas = 1

[[models]]
id = "large"
path = "identdyn.onnx"
"""
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(params=["pygrpc-native", "grpcio"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str] | None:
    onnx_models.ident(tmp_path / "ident.onnx")
    onnx_models.identdyn(tmp_path / "identdyn.onnx")
    return without_native(tmp_path) if request.param == "grpcio" else None


def options(directory: Path, *, grace: float = 30, lame_duck: float = 0) -> list[str]:
    (directory / "models.toml").write_text(MODELS.format(grace=grace, lame_duck=lame_duck))
    return ["--config", str(directory / "models.toml")]


def request(model: str = "m", number: float = 1, width: int = 4) -> Any:
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="x", datatype="FP32", shape=[1, width])
    made.raw_input_contents.append(np.full(width, number, "<f4").tobytes())
    return made


class Caller:
    """A channel with stubs."""

    def __init__(self, daemon: Daemon) -> None:
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(daemon.grpc, options=unlimited)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def test_what_waits_is_answered_and_what_comes_late_has_not_started(tmp_path: Path, env: dict[str, str] | None) -> None:
    """C49"""
    with running(tmp_path / "daemon", *options(tmp_path), env=env) as daemon, Caller(daemon) as caller:
        with frozen(daemon.wake("m")):
            calls = [caller.stub.ModelInfer.future(request(number=number), timeout=60) for number in range(20)]
            wait_until(lambda: daemon.metric("wakeful_queue_requests", model="m") > 10, "they wait")
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: _late(caller) is not None, "calls are refused")
            late = _late(caller)
            assert late is not None
            assert _unstarted(late)
            assert "stopping" in late.details()
        accepted = [(number, call) for number, call in enumerate(calls) if call.exception() is None]
        assert [np.frombuffer(call.result().raw_output_contents[0], "<f4")[0] for _, call in accepted] == [number for number, _ in accepted]
        assert len(accepted) > 10
        assert all(_unstarted(call) for call in calls if call.exception() is not None)
        assert daemon.process.wait(60) == 0
        assert "cut off" not in daemon.log


def _unstarted(call: Any) -> bool:
    """Was it refused so that another daemon may have it?"""
    metadata = [tuple(pair) for pair in call.trailing_metadata()]
    return call.code() is grpc.StatusCode.UNAVAILABLE and ("x-wakeful-unstarted", "1") in metadata


def _late(caller: Caller) -> Any:
    """The error of a call that asks for nothing, once there is one."""
    try:
        caller.stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=60)
    except grpc.RpcError as error:
        return error
    return None


def test_health_goes_first(tmp_path: Path, env: dict[str, str] | None) -> None:
    """C49: not ready, and yet served for the lame-duck time; who watches is told."""
    with running(tmp_path / "daemon", *options(tmp_path, lame_duck=60), env=env) as daemon, Caller(daemon) as caller:
        seen: list[int] = []
        watch = caller.health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        watcher = threading.Thread(target=lambda: _collect(watch, seen))
        watcher.start()
        wait_until(lambda: seen == [SERVING], "it is told")
        assert caller.stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=60).ready
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: caller.health.Check(health_pb2.HealthCheckRequest(), timeout=60).status == NOT_SERVING, "it is not ready")
        assert not caller.stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=60).ready
        assert caller.stub.ModelInfer(request(), timeout=60).model_name == "m"
        daemon.process.send_signal(signal.SIGTERM)  # ends the wait
        assert daemon.process.wait(60) == 0
        watcher.join(60)
        assert seen == [SERVING, NOT_SERVING]


def _collect(watch: Any, seen: list[int]) -> None:
    with suppress(grpc.RpcError):  # it ends with the daemon
        for answer in watch:
            seen.append(answer.status)  # noqa: PERF401 - each is looked at as it comes


def test_a_large_answer_goes_out_whole(tmp_path: Path, env: dict[str, str] | None) -> None:
    """What is on its way to a client is waited for."""
    width = 4_000_000
    with running(tmp_path / "daemon", *options(tmp_path), env=env) as daemon, Caller(daemon) as caller:
        with frozen(daemon.wake("large")):
            call = caller.stub.ModelInfer.future(request("large", width=width), timeout=60)
            wait_until(lambda: not _idle(daemon), "it is there")
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in daemon.log, "it has heard")
        assert len(call.result().raw_output_contents[0]) == 4 * width
        assert daemon.process.wait(60) == 0


def _idle(daemon: Daemon) -> bool:
    return all(model["state"] != "busy" for model in daemon.call("GET", "/v1/models")[1])


def test_a_stream_ends_after_its_answers(tmp_path: Path, env: dict[str, str] | None) -> None:
    """C49: and does not hold the daemon up, though its client has not ended it; who sent more is told that it was not taken."""
    with running(tmp_path / "daemon", *options(tmp_path), env=env) as daemon, Caller(daemon) as caller:
        more = threading.Event()

        def requests() -> Iterator[Any]:
            for number in range(5):
                yield request(number=number)
            more.wait(60)

        with frozen(daemon.wake("m")):
            stream = caller.stub.ModelStreamInfer(requests(), timeout=60)
            wait_until(lambda: daemon.metric("wakeful_queue_requests", model="m") > 2, "they wait")
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in daemon.log, "it has heard")
        answers = [np.frombuffer(next(stream).infer_response.raw_output_contents[0], "<f4")[0] for _ in range(5)]
        assert answers == list(range(5))
        with pytest.raises(grpc.RpcError, match="the server is stopping"):
            next(stream)
        assert stream.code() is grpc.StatusCode.UNAVAILABLE
        more.set()
        assert daemon.process.wait(60) == 0


def test_a_call_that_takes_too_long_is_cut_and_that_is_said(tmp_path: Path, env: dict[str, str] | None) -> None:
    """C49: every wait has an end."""
    with running(tmp_path / "daemon", *options(tmp_path, grace=0.2), env=env) as daemon, Caller(daemon) as caller:
        with frozen(daemon.wake("m")):
            call = caller.stub.ModelInfer.future(request(), timeout=60)
            wait_until(lambda: not _idle(daemon), "it is there")
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(60) == 1
        assert call.code() is grpc.StatusCode.UNAVAILABLE
        assert "1 requests are cut off" in daemon.log
