"""The unmodified `snoozeml` client over gRPC against a real daemon, whichever library serves it."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from snoozeml import AsyncSnoozeClient, SnoozeClient, exceptions

from tests.contract.conftest import TYPES
from tests.daemon import Daemon

ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def client(served: Daemon) -> Iterator[SnoozeClient]:
    with SnoozeClient(http_endpoint=served.url, grpc_endpoint=served.grpc, use_grpc=True) as client:
        yield client


def test_an_answer(client: SnoozeClient) -> None:
    answer = client.infer("ident", {"x": ROW})
    assert np.array_equal(answer["y"], ROW)
    assert answer.model_id == "ident"
    assert answer.duration_ms > 0


def test_nan_and_infinity_are_exact(client: SnoozeClient) -> None:
    """C35: over HTTP the client refuses them."""
    given = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000], "<u4").view("<f4").reshape(1, 4)
    assert np.asarray(client.infer("ident", {"x": given})["y"]).tobytes() == given.tobytes()


@pytest.mark.parametrize("datatype", TYPES)
def test_every_datatype_is_cast_both_ways(client: SnoozeClient, datatype: str) -> None:
    given = np.array([[0, 1]], np.float32)
    if datatype == "BF16":
        with pytest.raises(exceptions.InvalidInputError, match="the model takes BF16"):
            client.infer("types/BF16", {"x": given})
    else:
        assert np.asarray(client.infer(f"types/{datatype}", {"x": given})["y"]).tolist() == [[0, 1]]


def test_the_same_answer_as_over_http(client: SnoozeClient) -> None:
    given = np.array([[0.1, -2, 3e-20, 4e30]], np.float32)
    assert np.array_equal(client.infer("ident", {"x": given}, use_grpc=False)["y"], client.infer("ident", {"x": given}, use_grpc=True)["y"])


def test_metrics_count(client: SnoozeClient) -> None:
    before = client.get_metrics()
    client.infer("ident", {"x": ROW})
    with pytest.raises(exceptions.InvalidInputError):
        client.infer("ident", {"wrong": ROW})
    after = client.get_metrics()
    assert (after.requests_success, after.requests_error) == (before.requests_success + 1, before.requests_error + 1)


@pytest.mark.parametrize(("model", "inputs", "error"), [
    ("nobody", {"x": ROW}, exceptions.ModelNotFoundError),
    ("ident", {"x": ROW[:, :3]}, exceptions.ShapeMismatchError),
    ("ident", {"wrong": ROW}, exceptions.InvalidInputError),
    ("strid", {"x": ROW}, exceptions.InvalidInputError),
    ("hasty", {"x": ROW}, exceptions.InferenceTimeoutError),
    ("hungry", {"size": np.array([2**42], np.float32)}, exceptions.OutOfMemoryError),
    ("broken", {"x": ROW}, exceptions.SnoozeConnectionError),
])
def test_errors_are_the_clients_own(client: SnoozeClient, model: str, inputs: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        client.infer(model, inputs)


def test_a_full_queue_is_tried_again(served: Daemon) -> None:
    """The client retries RESOURCE_EXHAUSTED after the seconds of `retry-after`."""
    assert _outcomes(served, 40, max_retries=0) == {"answered", "ResourceExhaustedError"}
    assert _outcomes(served, 14, max_retries=5) == {"answered"}


def _outcomes(served: Daemon, calls: int, max_retries: int) -> set[str]:
    with (
        SnoozeClient(http_endpoint=served.url, grpc_endpoint=served.grpc, use_grpc=True, max_retries=max_retries) as client,
        ThreadPoolExecutor(calls) as callers,
    ):
        return set(callers.map(lambda _: _outcome(client), range(calls)))


def _outcome(client: SnoozeClient) -> str:
    try:
        client.infer("limited", {"x": ROW})
    except exceptions.SnoozeError as error:
        return type(error).__name__
    return "answered"


def test_the_callers_own_time(client: SnoozeClient) -> None:
    """The smaller of `client_timeout_ms` and gRPC's deadline."""
    with pytest.raises(exceptions.InferenceTimeoutError):
        client.infer("limited", {"x": np.ones((8, 4), np.float32)}, client_timeout_ms=1)


def test_a_large_tensor(client: SnoozeClient) -> None:
    """C41: more than gRPC's default of 4 MiB both ways."""
    image = np.ones((1, 640 * 640 * 3), np.float32)
    assert np.array_equal(client.infer("identdyn", {"x": image})["y"], image)


def test_async(served: Daemon) -> None:
    async def ask() -> None:
        async with AsyncSnoozeClient(http_endpoint=served.url, grpc_endpoint=served.grpc, use_grpc=True) as client:
            answers = await asyncio.gather(*[client.infer("ident", {"x": ROW * number}) for number in range(20)])
            assert [np.asarray(answer["y"])[0, 0] for answer in answers] == list(range(20))
            with pytest.raises(exceptions.ModelNotFoundError):
                await client.infer("nobody", {"x": ROW})

    asyncio.run(ask())


@pytest.mark.parametrize("service", ["", "snoozeml.v1.InferenceService", "inference.GRPCInferenceService"])
def test_health(served: Daemon, service: str) -> None:
    with grpc.insecure_channel(served.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_health_of_a_service_that_there_is_not(served: Daemon) -> None:
    with grpc.insecure_channel(served.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()
