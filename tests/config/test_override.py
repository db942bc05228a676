"""Settings that a load brings along."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wakeful.config.effective import differences, model_keys
from wakeful.config.kinds import KINDS
from wakeful.config.override import with_override
from wakeful.config.settings import ModelSettings, ReplicaSettings
from wakeful.errors import InvalidInput

BEFORE = ModelSettings("m", Path("/models/m.onnx"), replicas=ReplicaSettings(fixed=2))


def changed(config: dict[str, Any]) -> dict[str, object]:
    made, _ = with_override(BEFORE, config)
    keys = model_keys(made)
    return {key: keys.get(key) for key in differences(model_keys(BEFORE), keys)}


@pytest.mark.parametrize(("config", "keys"), [
    ({}, {}),
    ({"max_batch_size": 8}, {"max_batch_size": 8}),
    ({"max_batch_size": 0}, {"batching": "off"}),
    ({"dynamic_batching": {"max_queue_delay_microseconds": 2500}}, {"max_batch_delay_ms": 2.5}),
    ({"dynamic_batching": {"max_queue_delay_microseconds": "2500"}}, {"max_batch_delay_ms": 2.5}),
    ({"instance_group": [{"count": 3, "kind": "KIND_CPU"}]}, {"max_replicas": 3, "min_replicas": 0, "replicas": None, "device": "cpu"}),
    ({"parameters": {"intra_op_thread_count": {"string_value": "2"}}}, {"threads": 2}),
    ({"idle_timeout_secs": 5, "pad": {"axis": 1}, "description": "words"},
     {"idle_timeout_secs": 5, "description": "words", "pad": {"axis": 1, "value": 0.0, "mask": None, "buckets": []}}),
    ({"model_warmup": [{"batch_size": 2, "inputs": {"x": {"data_type": "TYPE_FP32", "dims": ["4"], "zero_data": True}}}]},
     {"warmup": [{"data": "zeros", "rows": 2, "sizes": {}, "shapes": {"x": [4]}, "file": None, "count": 1}]}),
    ({"backend": "onnxruntime", "max_batch_size": 8}, {"max_batch_size": 8}),
    ({"name": "m", "platform": "onnxruntime_onnx", "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["-1", "4"]}]}, {}),
])
def test_what_counts(config: dict[str, Any], keys: dict[str, object]) -> None:
    assert changed(config) == keys


def test_what_comes_of_each_field_is_told() -> None:
    _, account = with_override(BEFORE, {
        "max_batch_size": 8, "idle_timeout_secs": 5, "version_policy": {"all": {}}, "response_cache": {"enable": True}, "unheard": 1,
    })
    assert list(account.honoured) == ["idle_timeout_secs", "max_batch_size: 8"]
    assert [field.partition(" (")[0] for field in account.ignored] == ["version_policy", "response_cache", "unheard"]


@pytest.mark.parametrize("backend", list(KINDS))
def test_every_kind_of_model_takes_them(backend: str) -> None:
    made, account = with_override(replace(BEFORE, backend=backend), {"max_batch_size": 8, "backend": "tensorrt"})
    assert (made.batching.max_rows, made.backend) == (8, backend)
    assert "backend: tensorrt" in account.ignored[0]


def test_one_that_is_nested_without_end_is_refused() -> None:
    config: dict[str, Any] = {}
    for _ in range(5000):
        config = {"parameters": config}
    with pytest.raises(InvalidInput, match="nested too deep"):
        with_override(BEFORE, config)


@pytest.mark.parametrize(("config", "words"), [
    ({"max_batch_size": "many"}, "parameters.config: max_batch_size: expected a whole number, got 'many'"),
    ({"dynamic_batching": 3}, "parameters.config: dynamic_batching: expected a message, got 3"),
    ({"max_batch_size": 10**9}, r"parameters.config: `max_batch_size` must be 1e.06 or less"),
    ({"idle_timeout_secs": -1}, r"parameters.config: `idle_timeout_secs` must be 0 or more"),
    ({"path": "/etc/passwd"}, r"parameters.config: `path` follows from the file"),
    ({"pad": {"axi": 1}}, "parameters.config: .*`axi` is not a setting of pad"),
    ({"min_replicas": 5, "max_replicas": 2}, "parameters.config: min_replicas 5 is above max_replicas 2"),
])
def test_what_cannot_be_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        with_override(BEFORE, config)
