"""The unmodified `tritonclient.http` package against a real daemon: everything that it offers and that has a meaning here."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from tests.daemon import Daemon, wait_until

VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, False, True],
    "UINT8": [0, 255, 1, 7],
    "UINT16": [0, 2**16 - 1, 1, 7],
    "UINT32": [0, 2**32 - 1, 1, 7],
    "UINT64": [0, 2**64 - 1, 2**53 + 1, 7],
    "INT8": [-(2**7), 2**7 - 1, 0, -1],
    "INT16": [-(2**15), 2**15 - 1, 0, -1],
    "INT32": [-(2**31), 2**31 - 1, 0, -1],
    "INT64": [-(2**63), 2**63 - 1, 2**53 + 1, -1],
    "FP16": [-65504.0, 0.1, 6e-8, 1.5],
    "FP32": [-3.4028235e38, 0.1, 1e-45, 1.5],
    "FP64": [-1.7976931348623157e308, 0.1, 5e-324, 1.5],
    "BYTES": [b"", "€ żółć 日本 🜁".encode(), b"a\0b", b"plain"],
}
"""Four elements each, the ends of the range among them."""


def array(datatype: str) -> np.ndarray:
    return np.array(VALUES[datatype], triton_to_np_dtype(datatype)).reshape(2, 2)


def tensor(name: str, datatype: str, values: np.ndarray, binary: bool = True) -> triton.InferInput:
    return triton.InferInput(name, list(values.shape), datatype).set_data_from_numpy(values, binary_data=binary)


def fp32(name: str, values: Any, binary: bool = True) -> triton.InferInput:
    return tensor(name, "FP32", np.array(values, np.float32), binary)


def wanted(*names: str, binary: bool = True) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"{daemon.host}:{daemon.port}", concurrency=16) as client:
        yield client


def refused(client: triton.InferenceServerClient, *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(*arguments, **options)
    return caught.value.status(), caught.value.message()


def index_row(client: triton.InferenceServerClient, model: str) -> dict[str, str]:
    rows: list[dict[str, str]] = client.get_model_repository_index()
    return next(row for row in rows if row["name"] == model)


# ── the server and its models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_server(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata["name"] == "wakeful"
    assert metadata["version"]
    assert {"binary_tensor_data", "model_repository"} <= set(metadata["extensions"])


def test_metadata_of_a_model_that_sleeps_is_known_and_does_not_wake_it(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    for version in ("", "1"):
        metadata = client.get_model_metadata("asleep", version)
        assert metadata["name"] == "asleep"
        assert metadata["versions"] == ["1"]
        assert metadata["platform"].startswith("onnx")
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]
        config = client.get_model_config("asleep", version)
        assert config["input"][0]["data_type"] == "TYPE_FP32"
        assert not client.is_model_ready("asleep", version)
    assert index_row(client, "asleep")["state"] == "UNAVAILABLE"
    assert not [event for event in daemon.events(model="asleep") if event["kind"] == "load"]


def test_metadata_tells_optional_inputs_and_fixed_sizes(client: triton.InferenceServerClient) -> None:
    assert client.get_model_metadata("fixed1")["inputs"][0]["shape"] == [1, 4]
    assert client.get_model_metadata("scalar")["inputs"][0]["shape"] == []
    inputs = {entry["name"]: entry for entry in client.get_model_config("optional_input")["input"]}
    assert not inputs["x"]["optional"]
    assert inputs["scale"]["optional"]


def test_every_datatype_is_told(client: triton.InferenceServerClient) -> None:
    told = {entry["name"]: entry["datatype"] for entry in client.get_model_metadata("all_types")["inputs"]}
    assert told == {f"in_{datatype}": datatype for datatype in VALUES}
    assert client.get_model_metadata("types/BF16")["outputs"][0]["datatype"] == "BF16"


def test_load_unload_and_the_index(client: triton.InferenceServerClient) -> None:
    client.load_model("two_inputs")
    assert client.is_model_ready("two_inputs")
    assert client.is_model_ready("two_inputs", "1")
    assert index_row(client, "two_inputs")["state"] == "READY"
    assert client.get_model_config("two_inputs")["max_batch_size"] == 64
    client.load_model("two_inputs")
    client.unload_model("two_inputs", unload_dependents=True)
    assert not client.is_model_ready("two_inputs")
    assert index_row(client, "two_inputs")["state"] == "UNAVAILABLE"
    client.unload_model("two_inputs")


def rows_of(client: triton.InferenceServerClient, model: str) -> int:
    rows: int = client.get_model_metadata(model)["batching"]["max_batch_size"]
    return rows


def test_settings_that_a_load_brings_count_until_the_next_one(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    client.load_model("two_inputs")
    loads = [event for event in daemon.events(model="two_inputs") if event["kind"] == "load"]
    config = {"max_batch_size": 3, "dynamic_batching": {"max_queue_delay_microseconds": 100}, "response_cache": {"enable": True}}
    client.load_model("two_inputs", config=json.dumps(config))
    assert rows_of(client, "two_inputs") == 3
    event = daemon.wait_event("config", "two_inputs", text="until the next load or refresh")
    assert "not honoured: response_cache (" in event["text"]
    client.load_model("two_inputs", config=json.dumps({"max_batch_size": 5}))
    assert rows_of(client, "two_inputs") == 5
    client.unload_model("two_inputs")
    assert rows_of(client, "two_inputs") == 5
    client.load_model("two_inputs")
    assert rows_of(client, "two_inputs") == 64
    assert len([event for event in daemon.events(model="two_inputs") if event["kind"] == "load"]) == len(loads) + 3
    client.load_model("two_inputs", config=json.dumps(client.get_model_config("two_inputs")))
    daemon.call("POST", "/v1/models/refresh")
    client.unload_model("two_inputs")


@pytest.mark.parametrize(("options", "words"), [
    ({"config": "{"}, "parameters.config: expected a JSON object"),
    ({"config": "[]"}, "parameters.config: expected a JSON object"),
    ({"config": json.dumps({"max_batch_size": -1.5})}, "parameters.config: max_batch_size: expected a whole number"),
    ({"config": json.dumps({"max_replicas": -1})}, "parameters.config: `max_replicas` must be 0 or more"),
    ({"config": "{}", "files": {"file:1/model.onnx": b"x"}}, "parameters.file:1/model.onnx: .* /v1/models/upload"),
])
def test_settings_that_cannot_be_change_nothing(client: triton.InferenceServerClient, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceServerException, match=words):
        client.load_model("two_inputs", **options)
    assert rows_of(client, "two_inputs") == 64


def test_nobody_is_loaded_by_settings(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="nobody"):
        client.load_model("nobody", config="{}")


def test_statistics_count(client: triton.InferenceServerClient) -> None:
    def statistics() -> dict[str, Any]:
        (row,) = client.get_inference_statistics("constout", "1")["model_stats"]
        assert isinstance(row, dict)
        return row

    before = statistics()
    client.infer("constout", [fp32("x", [[1], [2], [3]])])
    after = statistics()
    assert after["inference_count"] == before["inference_count"] + 3
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["last_inference"] > before["last_inference"]
    names = {row["name"] for row in client.get_inference_statistics()["model_stats"]}
    assert {"constout", "org/ident", "asleep"} <= names


# ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_every_datatype_comes_back_bit_by_bit(client: triton.InferenceServerClient, binary_in: bool, binary_out: bool) -> None:
    inputs = [tensor(f"in_{datatype}", datatype, array(datatype), binary_in) for datatype in VALUES]
    result = client.infer("all_types", inputs, outputs=wanted(*(f"out_{datatype}" for datatype in VALUES), binary=binary_out))
    for datatype in VALUES:
        got, sent = result.as_numpy(f"out_{datatype}"), array(datatype)
        assert result.get_output(f"out_{datatype}")["datatype"] == datatype
        if datatype == "BYTES" and not binary_out:
            got = np.array([element.encode() for element in got.flat], object).reshape(got.shape)
        assert got.shape == sent.shape
        assert got.dtype == sent.dtype
        assert got.tolist() == sent.tolist() if datatype == "BYTES" else got.tobytes() == sent.tobytes()


@pytest.mark.parametrize("binary_out", [True, False])
def test_bf16(client: triton.InferenceServerClient, binary_out: bool) -> None:
    sent = np.array([[1.5, -2], [3e38, 1e-38]], ml_dtypes.bfloat16)
    result = client.infer("types/BF16", [tensor("x", "BF16", sent)], outputs=wanted("y", binary=binary_out))
    assert result.as_numpy("y").tobytes() == sent.tobytes()


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_texts(client: triton.InferenceServerClient, binary_in: bool, binary_out: bool) -> None:
    """C39: the same texts on all ways, a megabyte, a NUL and an empty one among them."""
    texts = ["", "€", "a\0b", "\0", "é" * 500_000, " spaces ", 'quote " backslash \\ newline \n', "🜁"]
    sent = np.array([text.encode() for text in texts], object)
    result = client.infer("strid", [tensor("x", "BYTES", sent, binary_in)], outputs=wanted("y", binary=binary_out))
    assert [got.decode() if binary_out else got for got in result.as_numpy("y")] == texts


def test_bytes_that_are_no_text_are_refused(client: triton.InferenceServerClient) -> None:
    """C39: ONNX Runtime's strings are UTF-8; other bytes must not come back as something else."""
    status, message = refused(client, "strid", [tensor("x", "BYTES", np.array([b"\xff\x00"], object))])
    assert status == "400"
    assert "x" in message
    assert "UTF-8" in message


def test_outputs_come_as_asked(client: triton.InferenceServerClient) -> None:
    def names(**options: Any) -> list[str]:
        response = client.infer("constout", [fp32("x", [[1], [2]])], **options).get_response()
        return [output["name"] for output in response["outputs"]]

    assert names() == ["y", "c"]
    assert names(outputs=wanted("c", "y")) == ["c", "y"]
    assert names(outputs=wanted("c")) == ["c"]
    mixed = client.infer("constout", [fp32("x", [[1], [2]])], outputs=wanted("c", binary=False) + wanted("y"))
    assert mixed.as_numpy("c").tolist() == [1, 2]
    assert mixed.as_numpy("y").tolist() == [[1], [2]]
    assert "data" in mixed.get_output("c")
    assert mixed.get_output("y")["parameters"] == {"binary_data_size": 8}
    status, message = refused(client, "constout", [fp32("x", [[1]])], outputs=wanted("nonsense"))
    assert (status, "nonsense" in message) == ("400", True)
    status, message = refused(client, "constout", [fp32("x", [[1]])], outputs=[triton.InferRequestedOutput("y", class_count=3)])
    assert (status, "classification" in message) == ("400", True)


def test_ids_and_names_are_echoed(client: triton.InferenceServerClient) -> None:
    response = client.infer("org/ident", [fp32("x", [[1, 2, 3, 4]])], model_version="1", request_id="ä 1").get_response()
    assert response["id"] == "ä 1"
    assert response["model_name"] == "org/ident"
    assert response["model_version"] == "1"
    assert "id" not in client.infer("org/ident", [fp32("x", [[1, 2, 3, 4]])]).get_response()


def test_inputs_are_known_by_name(client: triton.InferenceServerClient) -> None:
    a, b = fp32("a", [[5, 6]]), fp32("b", [[1, 2]], binary=False)
    assert client.infer("two_inputs", [a, b]).as_numpy("y").tolist() == [[4, 4]]
    assert client.infer("two_inputs", [b, a]).as_numpy("y").tolist() == [[4, 4]]


def test_optional_inputs(client: triton.InferenceServerClient) -> None:
    x = fp32("x", [[1, 2]])
    assert client.infer("optional_input", [x]).as_numpy("y").tolist() == [[2, 4]]
    assert client.infer("optional_input", [fp32("scale", [10]), x]).as_numpy("y").tolist() == [[10, 20]]


def test_scalars_and_empty_batches(client: triton.InferenceServerClient) -> None:
    scalar = client.infer("scalar", [fp32("x", 7.5)]).as_numpy("y")
    assert (scalar.shape, float(scalar)) == ((), 7.5)
    for binary in (True, False):
        empty = client.infer("ident", [fp32("x", np.empty((0, 4)), binary)], outputs=wanted("y", binary=binary)).as_numpy("y")
        assert empty.shape == (0, 4)


def test_weights_in_a_file_of_their_own(client: triton.InferenceServerClient) -> None:
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    whole = client.infer("external", [fp32("x", x)]).as_numpy("y")
    alone = np.concatenate([client.infer("external", [fp32("x", x[row : row + 1])]).as_numpy("y") for row in range(3)])
    assert whole.shape == (3, 512)
    assert np.abs(whole).max() > 0
    np.testing.assert_allclose(whole, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_large_tensors_both_ways(client: triton.InferenceServerClient, binary: bool) -> None:
    """C41: 5 MB as bytes, and 5 MB as text."""
    x = np.random.default_rng(0).integers(0, 2**20, (2, 600_000 if binary else 250_000)).astype(np.float32) / 8
    result = client.infer("identdyn", [fp32("x", x, binary)], outputs=wanted("y", binary=binary))
    assert np.array_equal(result.as_numpy("y"), x)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_bodies(client: triton.InferenceServerClient, algorithm: str, binary: bool) -> None:
    """C40"""
    x = np.arange(40_000, dtype=np.float32).reshape(10_000, 4)
    result = client.infer(
        "ident", [fp32("x", x, binary)], outputs=wanted("y", binary=binary),
        request_compression_algorithm=algorithm, response_compression_algorithm=algorithm,
    )
    assert np.array_equal(result.as_numpy("y"), x)


@pytest.mark.parametrize("binary", [True, False])
def test_what_is_no_number(client: triton.InferenceServerClient, binary: bool) -> None:
    """C35: 0, -Infinity and NaN: bit by bit as binary data; JSON has no such numbers, and says null."""
    result = client.infer("log", [fp32("x", [1, 0, -1])], outputs=wanted("y", binary=binary))
    assert np.array_equal(result.as_numpy("y"), np.array([0, -np.inf if binary else np.nan, np.nan], np.float32), equal_nan=True)
    if not binary:
        assert result.get_output("y")["data"] == [0.0, None, None]


def test_what_is_no_number_is_refused_in_json(client: triton.InferenceServerClient) -> None:
    """C35"""
    for value in (np.nan, np.inf):
        status, message = refused(client, "log", [fp32("x", [1, value], binary=False)])
        assert status == "400"
        assert "inputs[0].data" in message


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_neighbours_in_a_batch_keep_their_rows_ids_and_wishes(daemon: Daemon) -> None:
    """Some 200 requests at once, of one to three rows; a fifth of them asks for an output that does not exist, and only those fail."""
    wishes: list[tuple[str, list[str]]] = [("a", ["z"]), ("b", ["y"]), ("", []), ("d", ["z", "y"]), ("e", ["unknown"])]

    async def ask(client: triton_aio.InferenceServerClient, number: int) -> None:
        id, names = wishes[number % len(wishes)]
        x = np.full((1 + number % 3, 1), number, np.float32)
        outputs = wanted(*names) if names else None
        asked = client.infer("merging", [fp32("x", x)], request_id=id, outputs=outputs, parameters={"mine": number})
        if names == ["unknown"]:
            with pytest.raises(InferenceServerException, match="unknown"):
                await asked
            return
        result = await asked
        response = result.get_response()
        assert response.get("id", "") == id
        assert [output["name"] for output in response["outputs"]] == (names or ["y", "z"])
        for output in response["outputs"]:
            assert np.array_equal(result.as_numpy(output["name"]), x if output["name"] == "y" else -x)

    async def use() -> None:
        async with triton_aio.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
            await client.load_model("merging")
            await asyncio.gather(*(ask(client, number) for number in range(200)))

    runs = daemon.metric("wakeful_batch_rows_count", model="merging")
    asyncio.run(use())
    assert 0 < daemon.metric("wakeful_batch_rows_count", model="merging") - runs < 160, "some of the 160 good requests shared a run"


def test_answers_in_flight_are_not_mixed_up(client: triton.InferenceServerClient) -> None:
    x = [np.full((1 + number % 3, 4), number, np.float32) for number in range(50)]
    pending = [client.async_infer("ident", [fp32("x", rows)], request_id=str(number)) for number, rows in enumerate(x)]
    for number, answer in enumerate(pending):
        result = answer.get_result()
        assert result.get_response()["id"] == str(number)
        assert np.array_equal(result.as_numpy("y"), x[number])


def test_the_asynchronous_client(daemon: Daemon) -> None:
    async def use() -> None:
        async with triton_aio.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert (await client.get_model_metadata("fixed1"))["name"] == "fixed1"
            assert {"fixed1", "org/ident"} <= {row["name"] for row in await client.get_model_repository_index()}
            await client.load_model("fixed1")
            results = await asyncio.gather(*(
                client.infer("fixed1", [fp32("x", [[number] * 4])], request_compression_algorithm="gzip") for number in range(20)
            ))
            assert [result.as_numpy("y").tolist() for result in results] == [[[number] * 4] for number in range(20)]
            with pytest.raises(InferenceServerException, match="nobody"):
                await client.infer("nobody", [fp32("x", [[1]])])
            await client.unload_model("fixed1")

    asyncio.run(use())


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "inputs", "options", "status", "words"),
    [
        ("nobody", [fp32("x", [[1]])], {}, "404", ["nobody"]),
        ("../../etc/passwd", [fp32("x", [[1]])], {}, "404", []),
        ("ident", [fp32("x", [[1, 2, 3, 4]])], {"model_version": "7"}, "404", ["ident", "'7'"]),
        ("ident", [fp32("x", [[1, 2, 3]])], {}, "400", ["shape", "input x", "[N,4]", "[1,3]"]),
        ("ident", [fp32("x", [1, 2, 3, 4])], {}, "400", ["shape", "input x", "[N,4]", "[4]"]),
        ("ident", [tensor("x", "FP64", np.zeros((1, 4)))], {}, "400", ["input x", "FP32", "FP64"]),
        ("ident", [fp32("z", [[1, 2, 3, 4]])], {}, "400", ["inputs", "'z'"]),
        ("ident", [fp32("x", [[1, 2, 3, 4]]), fp32("z", [1])], {}, "400", ["inputs", "'z'"]),
        ("ident", [fp32("x", [[1, 2, 3, 4]])] * 2, {}, "400", ["inputs[1].name", "'x'"]),
        ("two_inputs", [fp32("a", [[1, 2]])], {}, "400", ["inputs", "'b'"]),
        ("fixed1", [fp32("x", np.zeros((2, 4)))], {}, "400", ["shape", "[1,4]", "[2,4]"]),
        ("gather10", [tensor("i", "INT64", np.array([99]))], {}, "400", []),
        ("ident", [fp32("x", [[1, 2, 3, 4]])], {"timeout": -1}, "400", ["timeout"]),
    ],
)
def test_refusals_tell_what_is_wrong(
    client: triton.InferenceServerClient, model: str, inputs: list[Any], options: dict[str, Any], status: str, words: list[str]
) -> None:
    """C43"""
    for _ in range(2):  # the same whether the model slept or not
        got, message = refused(client, model, inputs, **options)
        assert got == status
        assert not [word for word in words if word not in message], message
        assert "Traceback" not in message


def test_shared_memory_is_refused(client: triton.InferenceServerClient) -> None:
    x = triton.InferInput("x", [1, 4], "FP32").set_shared_memory("region", 16)
    status, message = refused(client, "ident", [x])
    assert status == "400"
    assert "shared memory" in message
    with pytest.raises(InferenceServerException) as caught:
        client.get_system_shared_memory_status()
    assert caught.value.status() == "404"


def test_a_place_in_a_sequence_and_a_priority_change_nothing(client: triton.InferenceServerClient) -> None:
    result = client.infer("ident", [fp32("x", [[1, 2, 3, 4]])], sequence_id=7, sequence_start=True, sequence_end=True, priority=1)
    assert result.as_numpy("y").tolist() == [[1, 2, 3, 4]]


def test_a_body_over_the_limit(client: triton.InferenceServerClient) -> None:
    """C40, C41"""
    status, message = refused(client, "identdyn", [fp32("x", np.zeros((1, 2_100_000)))])
    assert status == "413"
    assert "max_body" in message
    status, message = refused(client, "identdyn", [fp32("x", np.zeros((1, 2_100_000)))], request_compression_algorithm="gzip")
    assert (status, "inflated" in message) == ("413", True)
    assert client.is_server_live()


def test_a_model_that_cannot_be_loaded(client: triton.InferenceServerClient) -> None:
    """C43"""
    for _ in range(2):
        status, message = refused(client, "broken", [fp32("x", [[1, 2, 3, 4]])])
        assert status == "503"
        assert "broken.onnx" in message
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("broken")
    assert caught.value.status() == "503"
    assert index_row(client, "broken")["state"] == "UNAVAILABLE"
    assert "failed" in index_row(client, "broken")["reason"]
    assert client.is_server_ready()


def test_a_timeout_ends_the_wait(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    """One microsecond is over before the model has even been asked."""
    assert refused(client, "narrow", [fp32("x", [[1, 2, 3, 4]])], timeout=1)[0] == "504"
    result = client.infer("narrow", [fp32("x", [[1, 2, 3, 4]])], timeout=60_000_000)
    assert result.as_numpy("y").tolist() == [[1, 2, 3, 4]]


def test_a_full_queue_refuses_at_once(daemon: Daemon) -> None:
    """C43"""
    async def use() -> list[Any]:
        async with triton_aio.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
            await client.load_model("narrow")
            asked = [client.infer("narrow", [fp32("x", [[1, 2, 3, 4]])]) for _ in range(30)]
            return await asyncio.gather(*asked, return_exceptions=True)

    outcomes = asyncio.run(use())
    refusals = [outcome for outcome in outcomes if isinstance(outcome, InferenceServerException)]
    assert 0 < len(refusals) < 30
    assert {refusal.status() for refusal in refusals} == {"429"}
    assert all("queue_limit" in refusal.message() for refusal in refusals)
    assert all(outcome.as_numpy("y").tolist() == [[1, 2, 3, 4]] for outcome in outcomes if outcome not in refusals)
    wait_until(lambda: daemon.metric("wakeful_queue_requests", model="narrow") == 0, "the queue is empty")
