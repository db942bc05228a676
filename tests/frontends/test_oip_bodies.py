"""What is told of the server and its models, whatever the transport."""

import pytest

from wakeful.frontends import oip_bodies
from wakeful.models.portrait import Portrait, State
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.telemetry.metrics import ModelStats

SIGNATURE = Signature(
    (TensorSpec("x", "FP32", ("N", 4)), TensorSpec("s", "BYTES", (None, 1), optional=True)), (TensorSpec("y", "INT64", ("N",)),)
)


def test_model_metadata() -> None:
    assert oip_bodies.model_metadata("m", ["1"], SIGNATURE) == {
        "name": "m",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}, {"name": "s", "datatype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1]}],
    }


def test_model_metadata_can_tell_why_a_model_is_not_batched() -> None:
    batching = {"merged": False, "reason": "axis 0 is fixed"}
    assert oip_bodies.model_metadata("m", ["1"], SIGNATURE, batching)["batching"] == batching


@pytest.mark.parametrize(("rows", "x", "y"), [(0, [-1, 4], [-1]), (16, [4], [])])
def test_model_config(rows: int, x: list[int], y: list[int]) -> None:
    config = oip_bodies.model_config("m", SIGNATURE, rows)
    assert (config["name"], config["platform"], config["backend"], config["max_batch_size"]) == (
        "m",
        "onnxruntime_onnx",
        "onnxruntime",
        rows,
    )
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": x, "optional": False}
    assert config["input"][1]["data_type"] == "TYPE_STRING"
    assert config["output"] == [{"name": "y", "data_type": "TYPE_INT64", "dims": y}]


def test_server_metadata() -> None:
    metadata = oip_bodies.server_metadata("1.2")
    assert (metadata["name"], metadata["version"]) == ("wakeful", "1.2")
    assert "binary_tensor_data" in metadata["extensions"]


def shown(state: State, reason: str = "", stats: ModelStats | None = None, last_used: float | None = None) -> Portrait:
    return Portrait(
        "m", "1", ("1",), state, reason, merges=True, max_rows=8, batching="", path="", description=None, pinned=False, idle_timeout=1,
        max_batch_size=8, max_delay=0.01, last_used=last_used, resident_bytes=0, stats=stats or ModelStats("m"),
    )


def test_statistics() -> None:
    stats = ModelStats("m")
    stats.batch_rows.observe_all([4, 3])
    stats.queue_seconds.observe(0.5)
    stats.settled("oip", "ok", 2)
    stats.settled("oip", "timeout", 1)
    (told,) = oip_bodies.statistics([shown("ready", stats=stats)])["model_stats"]
    assert (told["name"], told["version"], told["inference_count"], told["execution_count"], told["last_inference"]) == ("m", "1", 7, 2, 0)
    second = 1_000_000_000
    assert told["inference_stats"] == {
        "success": {"count": 1, "ns": 2 * second}, "fail": {"count": 1, "ns": second}, "queue": {"count": 1, "ns": second // 2},
        "compute_input": {"count": 0, "ns": 0}, "compute_infer": {"count": 0, "ns": 0}, "compute_output": {"count": 0, "ns": 0},
    }


def test_last_inference_is_milliseconds_since_1970() -> None:
    (told,) = oip_bodies.statistics([shown("ready", last_used=3600)])["model_stats"]
    assert 1.6e12 < told["last_inference"] < 1e13


def test_repository_index() -> None:
    rows = oip_bodies.repository_index([shown("busy"), shown("loading", "loading"), shown("asleep", "failed: so")])
    assert [(row["state"], row["reason"]) for row in rows] == [("READY", ""), ("LOADING", "loading"), ("UNAVAILABLE", "failed: so")]
    assert rows[0] == {"name": "m", "version": "1", "state": "READY", "reason": ""}
