"""The settings written back as a file: every key with the value that counts, whatever it came from. Keys of callers, secrets and passwords of
endpoints are left out."""

import json
import re
from collections.abc import Mapping
from typing import Any

from wakeful.config.cluster import cluster_keys
from wakeful.config.kinds import KINDS
from wakeful.config.problems import masked
from wakeful.config.settings import (
    AuthSettings,
    ModelSettings,
    Padding,
    PipelineSettings,
    Settings,
    StreamSettings,
    TextSettings,
    WarmupSettings,
)


def effective(settings: Settings) -> str:
    """TOML from which `load` makes the same settings, but for those of callers. What is not set stands in a comment."""
    parts = [_table("[server]", server_keys(settings)), _table("[defaults]", bound_keys(settings)), _callers(settings.auth)]
    own = [model for model in settings.models if not KINDS[model.backend].serves_models]
    models = {model.id: model for model in own}  # of each the newest version: the others have the same keys
    parts += [_table("[[models]]", model_keys(model)) for model in models.values()]
    parts += [_table("[[pipelines]]", pipeline_keys(pipeline)) for pipeline in settings.pipelines]
    parts += [_table("[[streams]]", stream_keys(stream)) for stream in settings.streams]
    parts += [_table("[cluster]", cluster_keys(settings.cluster))] if settings.cluster else []
    return "\n".join(parts)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Keys whose values are not the same."""
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def server_keys(settings: Settings) -> dict[str, Any]:
    """[server], by its keys."""
    server, workers = settings.server, settings.server.workers
    return {
        "host": server.host, "insecure": server.insecure,
        "tls_cert": server.tls and str(server.tls.certificate), "tls_key": server.tls and str(server.tls.key),
        "port": server.port, "grpc_port": False if server.grpc_port is None else server.grpc_port,
        "max_body": server.max_body, "max_upload": server.max_upload, "max_header": server.max_header, "max_connections": server.max_connections,
        "allowed_hosts": list(server.allowed_hosts),
        "client_timeout_secs": server.client_timeout, "lame_duck_secs": server.lame_duck, "shutdown_grace_secs": server.grace,
        "keep_alive_secs": server.keep_alive, "log_format": server.log_format, "log_requests": server.log_requests,
        "cache_dir": str(settings.cache.directory), "cache_limit": settings.cache.limit,
        "worker_network": workers.network, "worker_new_privileges": workers.new_privileges, "worker_core_dumps": workers.core_dumps,
        "worker_largest_file": workers.largest_file, "worker_memory": workers.memory,
        "models_dir": None if settings.models_dir is None else str(settings.models_dir),
    }


def bound_keys(settings: Settings) -> dict[str, Any]:
    """What [defaults] bounds for the whole daemon, by its keys."""
    return {"memory_limit": _limit(settings.memory.limit), "max_loaded_models": settings.memory.max_loaded_models}


def model_keys(model: ModelSettings) -> dict[str, Any]:
    """An entry of [[models]], by its keys."""
    batching, replicas, life, admission, runtime = model.batching, model.replicas, model.life, model.admission, model.runtime
    count = {"max_replicas": replicas.max_replicas, "min_replicas": replicas.min_replicas} if replicas.fixed is None else {"replicas": replicas.fixed}
    return {
        "id": model.id, "path": str(model.place), "backend": model.backend, "description": model.description, "versions": model.versions,
        "max_batch_size": batching.max_rows, "max_batch_delay_ms": _milliseconds(batching.max_delay), "batch_policy": batching.policy,
        "batching": batching.merge, "target_p99_ms": _milliseconds(batching.target_p99), "pad": _pad_keys(batching.pad),
        "routing_strategy": replicas.routing.replace("-", "_"), "autoscale_queue_threshold": replicas.queue_threshold, **count,
        "idle_timeout_secs": life.idle_timeout, "min_residency_secs": life.min_residency, "pinned": life.pinned,
        "load_timeout_secs": life.load_timeout,
        "queue_limit": admission.queue_limit, "request_timeout_ms": _milliseconds(admission.request_timeout),
        "device": runtime.device, "threads": runtime.threads or "auto", "prepare": runtime.prepare, "memory_limit": runtime.memory_limit,
        "text": model.text and _text_keys(model.text),
        "warmup": [_warmup_keys(warmup) for warmup in model.warmup],
    }


def _text_keys(text: TextSettings) -> dict[str, Any]:
    return {
        "tokenizer": str(text.tokenizer), "pooling": text.pooling, "normalize": text.normalize, "max_tokens": text.max_tokens,
        "truncate": text.truncate, "max_batch_tokens": text.max_batch_tokens, "activation": text.activation,
    }


def pipeline_keys(pipeline: PipelineSettings) -> dict[str, Any]:
    """An entry of [[pipelines]], by its keys."""
    steps = [
        {"model": step.model, "version": step.version, "name": step.name, "inputs": step.inputs, "outputs": step.outputs} for step in pipeline.steps
    ]
    return {
        "id": pipeline.id, "description": pipeline.description, "inputs": pipeline.inputs, "outputs": pipeline.outputs, "steps": steps,
        "request_timeout_ms": _milliseconds(pipeline.request_timeout),
    }


def stream_keys(stream: StreamSettings) -> dict[str, Any]:
    """An entry of [[streams]], by its keys; of the endpoint what everybody may see."""
    endpoint = {"endpoint": masked(stream.endpoint)} if stream.endpoint_env is None else {"endpoint_env": stream.endpoint_env}
    return {
        "name": stream.name, "broker": stream.broker, **endpoint, "input_topic": stream.input_topic, "model_id": stream.model_id,
        "output_topic": stream.output_topic, "error_topic": stream.error_topic, "consumer_group": stream.consumer_group,
        "auto_create_topics": stream.auto_create_topics, "concurrency": stream.concurrency, "partitions": stream.partitions,
        "format": stream.format,
    }


def _callers(auth: AuthSettings) -> str:
    if not auth.enabled:
        return "# no [auth]: whoever reaches the port may do everything\n"
    who = [f"{key.role.name.lower()}{f' ({key.name})' if key.name else ''}" for key in auth.keys]
    lines = [f"# [auth]: {len(who)} keys, not shown: {', '.join(who)}"] if who else []
    lines += [f"# [auth.jwt]: {auth.jwt.algorithm}, secret not shown"] if auth.jwt else []
    return "\n".join([*lines, f"# protect_metrics = {written(auth.protect_metrics)}", ""])


def _table(title: str, values: Mapping[str, Any]) -> str:
    rows = [f"# {key} is not set" if value is None else f"{key} = {written(value)}" for key, value in values.items()]
    return "\n".join([title, *rows, ""])


def written(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {written(inner)}" for key, inner in value.items() if inner is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which else writes texts, numbers and truth values as TOML does


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key)


def _warmup_keys(warmup: WarmupSettings) -> dict[str, Any]:
    shapes = {name: list(shape) for name, shape in warmup.shapes.items()}
    file = None if warmup.file is None else str(warmup.file)
    return {"data": warmup.data, "rows": warmup.rows, "sizes": dict(warmup.sizes), "shapes": shapes, "file": file, "count": warmup.count}


def _pad_keys(pad: Padding | None) -> dict[str, Any] | None:
    return None if pad is None else {"axis": pad.axis, "value": float(pad.value), "mask": pad.mask, "buckets": list(pad.buckets)}


def _milliseconds(seconds: float | None) -> float | None:
    """Rounded to a nanosecond, so that 0.0025 s are 2.5 ms."""
    return None if seconds is None else round(1000 * seconds, 6)


def _limit(limit: float | None) -> int | str | None:
    """Bytes, or a share."""
    return f"{100 * limit:.10g}%" if isinstance(limit, float) else limit
