"""The unmodified `tritonclient.grpc` package against a real daemon, whichever library serves it: everything that it offers and that has a meaning
here."""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.contract.conftest import MAX_BODY
from tests.contract.test_tritonclient import VALUES, array
from tests.daemon import Daemon, frozen, wait_until

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture(scope="module")
def client(served: Daemon) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.grpc) as client:
        yield client


def tensor(name: str, datatype: str, values: np.ndarray) -> triton.InferInput:
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def fp32(name: str, values: Any) -> triton.InferInput:
    return tensor(name, "FP32", np.array(values, np.float32))


def refused(client: triton.InferenceServerClient, *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(*arguments, **options)
    return str(caught.value.status()).removeprefix("StatusCode."), caught.value.message()


ROW = [[1, 2, 3, 4]]

# ── the server and its models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_server(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "wakeful"
    assert metadata.version
    assert {"model_repository", "statistics"} <= set(metadata.extensions)


def test_the_slower_library_is_told(served: Daemon) -> None:
    [ready] = served.events(kind="ready")
    assert ("pygrpc-native is not installed" in served.log) == (ready["figures"]["grpc_library"] == "grpcio")
    assert ready["figures"]["grpc_port"] == int(served.grpc.rpartition(":")[2])


def test_metadata_and_configuration_of_a_model_that_sleeps(served: Daemon, client: triton.InferenceServerClient) -> None:
    metadata = client.get_model_metadata("asleep", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}]
    assert metadata["versions"] == ["1"]
    config = client.get_model_config("asleep").config
    assert [(one.name, one.data_type) for one in config.input] == [("x", 11)]
    assert not client.is_model_ready("asleep")
    assert served.metric("wakeful_load_seconds_count", model="asleep") == 0


def test_what_is_told_is_what_rest_tells(served: Daemon, client: triton.InferenceServerClient) -> None:
    told = client.get_model_metadata("two_inputs", as_json=True)
    [rest] = [served.call("GET", "/v2/models/two_inputs")[1]]
    assert [(one["name"], one["datatype"], list(map(int, one["shape"]))) for one in told["inputs"]] == [
        (one["name"], one["datatype"], one["shape"]) for one in rest["inputs"]
    ]
    index = {row.name: row.state for row in client.get_model_repository_index().models}
    assert index == {row["name"]: row["state"] for row in served.call("POST", "/v2/repository/index")[1]}


def test_loading_and_unloading(served: Daemon, client: triton.InferenceServerClient) -> None:
    client.load_model("fixed1")
    assert client.is_model_ready("fixed1")
    assert client.is_model_ready("fixed1", "1")
    client.unload_model("fixed1")
    assert not client.is_model_ready("fixed1")
    with pytest.raises(InferenceServerException, match="no model is called"):
        client.load_model("nobody")


def test_a_load_brings_settings(served: Daemon, client: triton.InferenceServerClient) -> None:
    def rows() -> int:
        return int(client.get_model_config("two_inputs").config.max_batch_size)

    client.load_model("two_inputs", config='{"max_batch_size": 3, "response_cache": {"enable": true}}')
    assert rows() == 3
    assert "response_cache (" in served.wait_event("config", "two_inputs", text="not honoured")["text"]
    client.load_model("two_inputs", config=json.dumps(client.get_model_config("two_inputs", as_json=True)["config"]))
    assert rows() == 3
    client.load_model("two_inputs")
    assert rows() == 64
    for options, words in (({"config": "{"}, "a JSON object"), ({"config": "{}", "files": {"file:1/model.onnx": b"x"}}, "/v1/models/upload")):
        with pytest.raises(InferenceServerException, match=words):
            client.load_model("two_inputs", **options)


def test_statistics(client: triton.InferenceServerClient) -> None:
    def counts() -> tuple[int, int]:
        [row] = client.get_inference_statistics("org/ident").model_stats
        return row.inference_count, row.inference_stats.success.count

    client.infer("org/ident", [fp32("x", ROW * 3)])
    before = counts()
    client.infer("org/ident", [fp32("x", ROW * 3)])
    assert counts() == (before[0] + 3, before[1] + 1)
    assert {"ident", "org/ident"} <= {row.name for row in client.get_inference_statistics().model_stats}


# ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", [datatype for datatype in VALUES if datatype != "BYTES"])
def test_every_datatype(client: triton.InferenceServerClient, datatype: str) -> None:
    given = array(datatype)
    result = client.infer(f"types/{datatype}", [tensor("x", datatype, given)])
    assert result.as_numpy("y").tobytes() == given.tobytes()


def test_bfloat16(client: triton.InferenceServerClient) -> None:
    given = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    assert client.infer("types/BF16", [tensor("x", "BF16", given)]).as_numpy("y").astype(np.float32).tolist() == [[1.5, -2]]


def test_strings(client: triton.InferenceServerClient) -> None:
    """C39"""
    texts = ["", "€", "a\0b", "x" * 1_000_000]
    result = client.infer("strid", [tensor("x", "BYTES", np.array([text.encode() for text in texts], np.object_))])
    [name] = [output.name for output in result.get_response().outputs]
    assert [element.decode() for element in result.as_numpy(name)] == texts
    status, text = refused(client, "strid", [tensor("x", "BYTES", np.array([b"\xff\0"], np.object_))])
    assert (status, "UTF-8" in text) == ("INVALID_ARGUMENT", True)


def test_nan_and_infinity_are_exact(client: triton.InferenceServerClient) -> None:
    """C35"""
    given = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000], "<u4").view("<f4").reshape(1, 4)
    assert client.infer("ident", [tensor("x", "FP32", given)]).as_numpy("y").tobytes() == given.tobytes()
    assert np.array_equal(client.infer("log", [fp32("x", [1, 0, -1])]).as_numpy("y"), [0, -np.inf, np.nan], equal_nan=True)


def test_chosen_outputs_id_version_and_empty_tensors(client: triton.InferenceServerClient) -> None:
    names = [spec.name for spec in client.get_model_metadata("merging").outputs]
    [spec] = client.get_model_metadata("merging").inputs
    given = fp32(spec.name, np.ones([2, *spec.shape[1:]]))
    result = client.infer("merging", [given], model_version="1", request_id="7", outputs=[triton.InferRequestedOutput(names[1])])
    assert [output.name for output in result.get_response().outputs] == names[1:]
    assert (result.get_response().id, result.get_response().model_version) == ("7", "1")
    assert client.infer("ident", [fp32("x", np.zeros((0, 4)))]).as_numpy("y").shape == (0, 4)


def test_typed_contents(served: Daemon) -> None:
    """Contents that are not raw, as clients that generated their own stubs send them. Answers are raw, as Triton's are."""
    with grpc.insecure_channel(served.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="ident", id="7")
        given = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        given.contents.fp32_contents.extend([1, 2, 3, 4])
        response = stub.ModelInfer(request, timeout=60)
    assert np.frombuffer(response.raw_output_contents[0], "<f4").tolist() == [1, 2, 3, 4]
    assert (response.id, response.outputs[0].name, list(response.outputs[0].shape)) == ("7", "y", [1, 4])


def test_many_at_once(client: triton.InferenceServerClient) -> None:
    """C01: each gets exactly its rows."""
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for number in range(200):
        rows = np.full((1 + number % 3, 4), number, np.float32)
        client.async_infer("org/ident" if number % 2 else "ident", [tensor("x", "FP32", rows)], _into(answers, number))
    for _ in range(200):
        number, result, error = answers.get(timeout=60)
        assert error is None
        assert result.as_numpy("y").tolist() == np.full((1 + number % 3, 4), number, np.float32).tolist()


def _into(answers: "queue.Queue[tuple[int, Any, Any]]", number: int) -> Any:
    return lambda result, error: answers.put((number, result, error))


def test_aio(served: Daemon) -> None:
    async def ask() -> None:
        async with triton_aio.InferenceServerClient(served.grpc) as client:
            assert await client.is_server_ready()
            results = await asyncio.gather(*[client.infer("ident", [fp32("x", [[number] * 4])]) for number in range(50)])
            assert [result.as_numpy("y")[0, 0] for result in results] == list(range(50))
            with pytest.raises(InferenceServerException, match="no model is called"):
                await client.infer("nobody", [fp32("x", ROW)])

    asyncio.run(ask())


def test_compressed_requests(served: Daemon, client: triton.InferenceServerClient) -> None:
    """gzip by either library; deflate, of which pygrpc-native says that it does not know it."""
    assert client.infer("ident", [fp32("x", ROW)], compression_algorithm="gzip").as_numpy("y").tolist() == ROW
    if "grpcio" in json.dumps(served.events(kind="ready")):
        assert client.infer("ident", [fp32("x", ROW)], compression_algorithm="deflate").as_numpy("y").tolist() == ROW
    else:
        status, text = refused(client, "ident", [fp32("x", ROW)], compression_algorithm="deflate")
        assert (status, "`deflate`" in text) == ("UNIMPLEMENTED", True)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_answered_in_order_and_outlives_errors(served: Daemon) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(served.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(100):
            client.async_stream_infer("nobody" if number == 50 else "ident", [fp32("x", [[number] * 4])], request_id=str(number))
        client.stop_stream()
    told = [answers.get(timeout=60) for _ in range(100)]
    assert [result.get_response().id for result, error in told if error is None] == [str(number) for number in range(100) if number != 50]
    assert "no model is called" in told[50][1].message()
    assert all(result.as_numpy("y")[0, 0] == number for number, (result, error) in enumerate(told) if error is None)


def test_whoever_waits_for_the_final_answer_gets_it(served: Daemon) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(served.grpc) as client:
        client.start_stream(lambda result, error: answers.put(result))
        client.async_stream_infer("ident", [fp32("x", ROW)], enable_empty_final_response=True)
        assert answers.get(timeout=60).get_response().parameters["triton_final_response"].bool_param
        client.stop_stream()


@contextmanager
def held(served: Daemon) -> Iterator[None]:
    """The model `org/ident` sleeps, and cannot wake for the time of a block: whoever asks for it waits."""
    assert served.call("POST", "/v2/repository/models/org%2Fident/unload")[0] == 200
    with frozen(served.nursery()):
        yield


def left(served: Daemon) -> float:
    return served.metric("wakeful_requests_total", model="org/ident", protocol="oip-grpc", outcome="left")


def test_whoever_leaves_a_stream_is_not_run_for(served: Daemon) -> None:
    """C06"""
    before = left(served)
    with held(served), triton.InferenceServerClient(served.grpc) as client:
        client.start_stream(lambda result, error: None)
        for _ in range(2):
            client.async_stream_infer("org/ident", [fp32("x", ROW)])
        wait_until(lambda: served.metric("wakeful_queue_requests", model="org/ident") == 2, "both wait")
        client.stop_stream(cancel_requests=True)
    wait_until(lambda: left(served) == before + 2, "they were dropped")


def test_whoever_cancels_is_not_run_for(served: Daemon) -> None:
    """C06"""
    before = left(served)
    answers: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(served.grpc) as client:
        with held(served):
            calls = [client.async_infer("org/ident", [fp32("x", ROW)], lambda result, error: answers.put(error)) for _ in range(3)]
            wait_until(lambda: served.metric("wakeful_queue_requests", model="org/ident") == 3, "all wait")
            for call in calls[1:]:
                call.cancel()
        errors = [answers.get(timeout=60) for _ in calls]
    assert errors.count(None) == 1
    wait_until(lambda: left(served) == before + 2, "the others were dropped")


# ── errors, limits, deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("model", "inputs", "status", "word"), [
    ("nobody", [("x", "FP32", (1, 4))], "NOT_FOUND", "'nobody'"),
    ("ident", [("x", "FP32", (1, 3))], "INVALID_ARGUMENT", "[N,4]"),
    ("ident", [("z", "FP32", (1, 4))], "INVALID_ARGUMENT", "'z'"),
    ("ident", [("x", "INT64", (1, 4))], "INVALID_ARGUMENT", "FP32"),
    ("broken", [("x", "FP32", (1, 4))], "UNAVAILABLE", "broken.onnx is not a readable ONNX file"),
    ("hasty", [("x", "FP32", (1, 4))], "DEADLINE_EXCEEDED", "deadline"),
])
def test_every_fault_has_its_status(
    client: triton.InferenceServerClient, model: str, inputs: list[tuple[str, str, tuple[int, ...]]], status: str, word: str
) -> None:
    """C43: as over REST."""
    given = [tensor(name, datatype, np.zeros(shape, np.float32 if datatype == "FP32" else np.int64)) for name, datatype, shape in inputs]
    got = refused(client, model, given)
    assert (got[0], word in got[1]) == (status, True), got
    assert client.infer("ident", [fp32("x", ROW)]).as_numpy("y").tolist() == ROW


def test_faults_of_the_model(client: triton.InferenceServerClient) -> None:
    """C43: 64-bit division that ends the process, and memory that there is not."""
    numbers = [tensor("a", "INT64", np.array([-(2**63)])), tensor("b", "INT64", np.array([-1]))]
    status, text = refused(client, "quotient", numbers)
    assert (status, "SIGFPE" in text, "Traceback" in text) == ("INTERNAL", True, False)
    status, text = refused(client, "hungry", [tensor("size", "INT64", np.array([2**42]))])
    assert (status, "out of memory" in text) == ("RESOURCE_EXHAUSTED", True)


def test_a_version_that_there_is_not(client: triton.InferenceServerClient) -> None:
    assert refused(client, "ident", [fp32("x", ROW)], model_version="2")[0] == "NOT_FOUND"


def test_a_full_queue_is_refused_and_says_when_to_come_back(served: Daemon) -> None:
    """C43"""
    outcomes: list[tuple[str, Any]] = []
    done = threading.Event()

    def settled(call: Any) -> None:
        outcomes.append((call.code().name, dict(call.trailing_metadata() or ()).get("retry-after")))
        if len(outcomes) == 50:
            done.set()

    with grpc.insecure_channel(served.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="limited")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        request.raw_input_contents.append(bytes(16))
        for _ in range(50):
            stub.ModelInfer.future(request, timeout=60).add_done_callback(settled)
        assert done.wait(60)
    assert {code for code, _ in outcomes} == {"OK", "RESOURCE_EXHAUSTED"}
    assert all((after is not None) == (code != "OK") for code, after in outcomes)


@pytest.mark.parametrize("way", ["gRPC deadline", "timeout parameter"])
def test_the_smallest_deadline_counts(served: Daemon, client: triton.InferenceServerClient, way: str) -> None:
    """C06: it is counted as a timeout, and what waits beside it is run."""
    def counted() -> float:
        return served.metric("wakeful_requests_total", model="org/ident", protocol="oip-grpc", outcome="timeout")

    before = counted()
    row = [fp32("x", ROW)]
    waiting: queue.Queue[Any] = queue.Queue()
    limit = {"client_timeout": 0.02} if way == "gRPC deadline" else {"timeout": 20_000, "client_timeout": 60.0}
    with held(served):
        for _ in range(2):
            client.async_infer("org/ident", row, lambda result, error: waiting.put(error))
        assert refused(client, "org/ident", row, **limit)[0] == "DEADLINE_EXCEEDED"
        wait_until(lambda: counted() == before + 1, "it is counted")
    assert [waiting.get(timeout=60) for _ in range(2)] == [None, None]


@pytest.mark.parametrize(("extra", "status"), [(0, "OK"), (1, "RESOURCE_EXHAUSTED")])
def test_the_limit_is_exact(served: Daemon, extra: int, status: str) -> None:
    """C41: of the whole message."""
    request = service_pb2.ModelInferRequest(model_name="identdyn")
    given = request.inputs.add(name="x", datatype="FP32", shape=[1, MAX_BODY // 4 - 20])
    request.raw_input_contents.append(bytes(4 * given.shape[1]))
    request.id = "x"
    request.id = "x" * (MAX_BODY + extra - request.ByteSize() + 1)
    assert request.ByteSize() == MAX_BODY + extra
    with grpc.insecure_channel(served.grpc, options=UNLIMITED) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer").future(request.SerializeToString(), timeout=60)
        assert call.code().name == status
        if status == "OK":
            assert len(service_pb2.ModelInferResponse.FromString(call.result()).raw_output_contents[0]) == 4 * given.shape[1]


def test_more_than_a_client_takes_by_default_is_the_clients_limit(served: Daemon) -> None:
    """C41: the daemon takes and sends it; a client has to raise its own limit, as tritonclient has."""
    image = np.zeros((1, 640 * 640 * 3), np.float32)
    with triton.InferenceServerClient(served.grpc) as client:
        assert client.infer("identdyn", [tensor("x", "FP32", image)]).as_numpy("y").shape == image.shape
    request = service_pb2.ModelInferRequest(model_name="identdyn")
    request.inputs.add(name="x", datatype="FP32", shape=image.shape)
    request.raw_input_contents.append(image.tobytes())
    with grpc.insecure_channel(served.grpc) as channel, pytest.raises(grpc.RpcError, match="larger than max"):
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)


def test_what_there_is_not(served: Daemon) -> None:
    with triton.InferenceServerClient(served.grpc) as client, pytest.raises(InferenceServerException) as caught:
        client.get_trace_settings()
    assert "UNIMPLEMENTED" in str(caught.value.status())


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "RepositoryIndex"])
def test_a_message_that_is_none(served: Daemon, method: str) -> None:
    with grpc.insecure_channel(served.grpc) as channel, pytest.raises(grpc.RpcError, match="is no inference") as caught:
        channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(b"\x0a\xff", timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
