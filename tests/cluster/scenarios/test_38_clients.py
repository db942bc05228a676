"""Scenario 38: Triton's own clients, through a gateway to daemons in pods. They need not know that there is a cluster, and may say that they do."""

import queue
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests import onnx_models
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import GatewayParts

LARGE = np.arange(10 << 20, dtype=np.float32).reshape(1, -1)
"""40 MiB."""
ROW = np.array([[1, 2, 3, 4]], np.float32)
EXPECTED = (ROW * models.factor_of("m")).tolist()
HEADERS: list[dict[str, str]] = [{}, {"wakeful-model": "m"}, {"seldon-model": "m"}]


def test_tritonclient(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2), model("m", models.quick(cluster.directory, "m"), replicas=2),
        model("echo", _echo(cluster), replicas=2),
    )
    address = gateway.http.removeprefix("http://")
    with triton_http.InferenceServerClient(address, network_timeout=60.0) as http, triton_grpc.InferenceServerClient(gateway.grpc) as grpc:
        _is_there(http)
        _is_there(grpc)
        for headers in HEADERS:
            _asks(http, triton_http, headers)
            _asks(grpc, triton_grpc, headers)
            _streams(grpc, headers)
        for headers in ({}, {"wakeful-model": "echo"}):
            _sends_much(http, triton_http, headers)
            _sends_much(grpc, triton_grpc, headers)
        _asks_for_nobody(http, triton_http, "404")
        _asks_for_nobody(grpc, triton_grpc, "StatusCode.NOT_FOUND")
    _both_had_some(cluster, gateway)


def _echo(cluster: Cluster) -> str:
    place = cluster.directory / "echo"
    place.mkdir()
    onnx_models.identdyn(place / models.CONFIG_NAME)
    return f"file://{place}"


def _tensor(client: Any, values: np.ndarray) -> Any:
    return client.InferInput("x", list(values.shape), "FP32").set_data_from_numpy(values)


def _is_there(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m")
    assert not client.is_model_ready("nobody")


def _asks(client: Any, kind: Any, headers: Mapping[str, str]) -> None:
    assert client.infer("m", [_tensor(kind, ROW)], headers=dict(headers)).as_numpy("y").tolist() == EXPECTED
    told = client.get_model_metadata("m", headers=dict(headers))
    assert (told["name"] if kind is triton_http else told.name) == "m"


def _streams(client: triton_grpc.InferenceServerClient, headers: Mapping[str, str]) -> None:
    """Each is answered while the stream goes on."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)), headers=dict(headers))
    for number in range(20):
        client.async_stream_infer("m", [_tensor(triton_grpc, ROW * number)])
        result, error = answers.get(timeout=30)
        assert error is None
        assert result.as_numpy("y").tolist() == (np.array(EXPECTED) * number).tolist()
    client.stop_stream()


def _sends_much(client: Any, kind: Any, headers: Mapping[str, str]) -> None:
    assert np.array_equal(client.infer("echo", [_tensor(kind, LARGE)], headers=dict(headers)).as_numpy("y"), LARGE)


def _asks_for_nobody(client: Any, kind: Any, status: str) -> None:
    """The controller knows which names are near."""
    with pytest.raises(InferenceServerException, match="there is no model echos; did you mean echo") as caught:
        client.infer("echos", [_tensor(kind, ROW)])
    assert caught.value.status() == status


def _both_had_some(cluster: Cluster, gateway: GatewayParts) -> None:
    """Requests go to all replicas."""
    with cluster.load(gateway.http, ["m"], 50, grpc=gateway.grpc, named=False) as load:
        cluster.until(lambda: all(pod.metric("wakeful_requests_total", model="m", outcome="ok") > 5 for pod in cluster.pods("triton")))
    load.nothing_lost()
