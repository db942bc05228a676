"""The same model gives the same answer over every protocol, and inside a pipeline."""

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from snoozeml import SnoozeClient
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.daemon import Daemon, running
from wakeful.config.models import DEMO_DIR

CONFIG = f"""
[[models]]
id = "m"
path = "{DEMO_DIR / 'demo-model.onnx'}"

[[pipelines]]
id = "inside"
steps = [{{ model = "m" }}]
outputs = ["output"]
"""
GIVEN = np.array([[0.1, -2, 3e-5, 4e3], [5.1, 3.5, 1.4, 0.2]], np.float32)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("same")
    (directory / "models.toml").write_text(CONFIG)
    with running(directory / "daemon", "--config", str(directory / "models.toml")) as daemon:
        yield daemon


def over_rest(daemon: Daemon, model: str, binary: bool) -> np.ndarray:
    given = triton_http.InferInput("input", list(GIVEN.shape), "FP32").set_data_from_numpy(GIVEN, binary_data=binary)
    with triton_http.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
        return as_array(client.infer(model, [given], outputs=[triton_http.InferRequestedOutput("output", binary_data=binary)]).as_numpy("output"))


def over_grpc(daemon: Daemon, model: str) -> np.ndarray:
    with triton_grpc.InferenceServerClient(daemon.grpc) as client:
        return as_array(client.infer(model, [raw()]).as_numpy("output"))


def over_a_stream(daemon: Daemon, model: str) -> np.ndarray:
    answers: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(daemon.grpc) as client:
        client.start_stream(lambda result, error: answers.put(result))
        client.async_stream_infer(model, [raw()])
        client.stop_stream()
    return as_array(answers.get(timeout=60).as_numpy("output"))


def raw() -> triton_grpc.InferInput:
    given = triton_grpc.InferInput("input", list(GIVEN.shape), "FP32")
    given.set_data_from_numpy(GIVEN)
    return given


def over_typed_grpc(daemon: Daemon, model: str) -> np.ndarray:
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="input", datatype="FP32", shape=GIVEN.shape).contents.fp32_contents.extend(GIVEN.ravel().tolist())
    with grpc.insecure_channel(daemon.grpc) as channel:
        response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    return np.frombuffer(response.raw_output_contents[0], "<f4").reshape(response.outputs[0].shape)


def over_snoozeml(daemon: Daemon, model: str, use_grpc: bool) -> np.ndarray:
    with SnoozeClient(http_endpoint=daemon.url, grpc_endpoint=daemon.grpc, use_grpc=use_grpc) as client:
        return as_array(client.infer(model, {"input": GIVEN})["output"])


def as_array(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


WAYS: dict[str, Callable[[Daemon, str], np.ndarray]] = {
    "OIP over REST, JSON": lambda daemon, model: over_rest(daemon, model, binary=False),
    "OIP over REST, binary": lambda daemon, model: over_rest(daemon, model, binary=True),
    "OIP over gRPC": over_grpc,
    "OIP over gRPC, typed": over_typed_grpc,
    "OIP over gRPC, a stream": over_a_stream,
    "SnoozeML over REST": lambda daemon, model: over_snoozeml(daemon, model, use_grpc=False),
    "SnoozeML over gRPC": lambda daemon, model: over_snoozeml(daemon, model, use_grpc=True),
}


@pytest.mark.parametrize("model", ["m", "inside"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_bits(daemon: Daemon, way: str, model: str) -> None:
    """A float32 survives JSON: enough digits are written."""
    answer = WAYS[way](daemon, model)
    assert answer.shape == (2, 3)
    assert answer.tobytes() == over_grpc(daemon, "m").tobytes()
