"""What the Open Inference Protocol, with Triton's extensions, tells of the server and its models: dictionaries, which REST sends as JSON and gRPC as
messages with the same fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from wakeful.clock import wall
from wakeful.config.foreign import Account
from wakeful.errors import InvalidInput
from wakeful.models.portrait import Portrait, ShownStep
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.telemetry.metrics import SUCCESS, Histogram

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics")

Body = dict[str, Any]


def server_metadata(version: str) -> Body:
    return {"name": "wakeful", "version": version, "extensions": EXTENSIONS}


def model_metadata(name: str, versions: Sequence[str], signature: Signature, batching: Mapping[str, object] | None = None) -> Body:
    """A free dimension is -1. Beyond the protocol: what the columns of a tensor stand for, and `batching`: are requests merged, and why (not)."""

    def entries(specs: Iterable[TensorSpec]) -> list[Body]:
        return [
            {"name": spec.name, "datatype": spec.datatype, "shape": _dims(spec)}
            | ({"parameters": {"columns": spec.columns}} if spec.columns else {})
            for spec in specs
        ]

    inputs, outputs = entries(signature.inputs), entries(signature.outputs)
    metadata = {"name": name, "versions": versions, "platform": signature.platform, "inputs": inputs, "outputs": outputs}
    return metadata | ({"batching": batching} if batching else {})


def model_config(name: str, signature: Signature, max_batch_size: int, steps: Iterable[ShownStep] = ()) -> Body:
    """What of Triton's configuration has a meaning here. `max_batch_size` is 0 for a model that is not batched; otherwise, as with Triton,
    `dims` leave out axis 0. `steps`: of a pipeline."""
    skipped = 1 if max_batch_size else 0

    def entries(specs: Iterable[TensorSpec], optional: bool) -> list[Body]:
        return [
            {"name": spec.name, "data_type": _config_type(spec.datatype), "dims": _dims(spec)[skipped:]}
            | ({"optional": spec.optional} if optional else {})
            for spec in specs
        ]

    return {
        "name": name,
        "platform": signature.platform,
        "backend": signature.platform.partition("_")[0],
        "max_batch_size": max_batch_size,
        "input": entries(signature.inputs, optional=True),
        "output": entries(signature.outputs, optional=False),
    } | ({"ensemble_scheduling": {"step": scheduling}} if (scheduling := list(map(_step, steps))) else {})


def _step(shown: ShownStep) -> Body:
    version = -1 if shown.version is None else shown.version
    return {"model_name": shown.model, "model_version": version, "input_map": dict(shown.takes), "output_map": dict(shown.gives)}


def _dims(spec: TensorSpec) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in spec.shape]


def _config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def statistics(models: Iterable[Portrait]) -> Body:
    return {"model_stats": [_statistics_of(model) for model in models]}


def _statistics_of(model: Portrait) -> Body:
    """Counts since the daemon began, times in nanoseconds. `inference_count` counts rows, `execution_count` runs; `last_inference` is milliseconds
    since 1970, 0: never. Triton's three phases of computing are one here: copying in and out is part of `compute_infer`."""
    stats = model.stats
    good = sum(count for (_, outcome), count in stats.requests.items() if outcome == SUCCESS)
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": 0 if model.last_used is None else int(1000 * (wall() - model.last_used)),
        "inference_count": int(stats.batch_rows.sum),
        "execution_count": stats.batch_rows.count,
        "inference_stats": {
            "success": _timing(good, stats.request_seconds.sum - stats.failures.sum),
            "fail": _timing(sum(stats.requests.values()) - good, stats.failures.sum),
            "queue": _timing_of(stats.queue_seconds),
            "compute_input": _timing(0, 0),
            "compute_infer": _timing_of(stats.run_seconds),
            "compute_output": _timing(0, 0),
        },
        "batch_stats": [],
    }


def _timing_of(histogram: Histogram) -> Body:
    return _timing(histogram.count, histogram.sum)


def _timing(count: int, seconds: float) -> Body:
    return {"count": count, "ns": int(1e9 * seconds)}


def repository_index(models: Iterable[Portrait]) -> list[Body]:
    return [{"name": model.name, "version": model.version, "state": _state(model), "reason": model.reason} for model in models]


def _state(model: Portrait) -> str:
    return "READY" if model.ready else "LOADING" if model.state == "loading" else "UNAVAILABLE"


def load_override(parameters: Mapping[str, object]) -> Body | None:
    """The settings that the parameters of a load hold, as Triton's `config` does; None if there are none.

    Raises InvalidInput for settings that are no JSON object, and for files: they would be gone with the server, where an upload stays.
    """
    for name in parameters:
        if name.startswith("file:"):
            raise InvalidInput(f"parameters.{name[:80]}: a load brings no files; POST /v1/models/upload puts one into the models directory")
    config = parameters.get("config")
    if config is None:
        return None
    try:
        decoded = msgspec.json.decode(config) if isinstance(config, str) else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput.field("parameters.config", "a JSON object", error) from None
    if not isinstance(decoded, dict):
        raise InvalidInput.field("parameters.config", "a JSON object, as text", repr(config))
    return decoded


def load_account(account: Account) -> Body:
    """What came of the settings that a load has brought. Beyond the protocol, whose answer is empty."""
    return {"honoured": list(account.honoured), "ignored": account.ignored}
