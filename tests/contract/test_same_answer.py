"""The same model gives the same answer over every protocol, and inside a pipeline."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.contract.ways import OIP, SNOOZE, Arrays, Ask
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


def over_a_stream(daemon: Daemon, model: str, arrays: Arrays) -> Arrays:
    answers: queue.Queue[Any] = queue.Queue()
    inputs = []
    for name, array in arrays.items():
        inputs.append(triton_grpc.InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(array)
    with triton_grpc.InferenceServerClient(daemon.grpc) as client:
        client.start_stream(lambda result, error: answers.put(result))
        client.async_stream_infer(model, inputs)
        client.stop_stream()
    return {"output": answers.get(timeout=60).as_numpy("output")}


def with_typed_contents(daemon: Daemon, model: str, arrays: Arrays) -> Arrays:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        request.inputs.add(name=name, datatype="FP32", shape=array.shape).contents.fp32_contents.extend(array.ravel().tolist())
    with grpc.insecure_channel(daemon.grpc) as channel:
        response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    return {"output": np.frombuffer(response.raw_output_contents[0], "<f4").reshape(response.outputs[0].shape)}


WAYS: dict[str, Ask] = OIP | SNOOZE | {"grpc, a stream": over_a_stream, "grpc, typed": with_typed_contents}


@pytest.mark.parametrize("model", ["m", "inside"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_bits(daemon: Daemon, way: str, model: str) -> None:
    """A float32 survives JSON: enough digits are written."""
    answer = WAYS[way](daemon, model, {"input": GIVEN})["output"].astype(np.float32).reshape(2, 3)
    assert answer.tobytes() == OIP["grpc"](daemon, "m", {"input": GIVEN})["output"].tobytes()
