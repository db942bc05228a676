"""Lists of models in the forms that the daemon gives its own: one table for each kind of client. A test holds them to the daemon's."""

from collections.abc import Callable, Iterable

import msgspec

from wakeful.cluster.wire import Standing
from wakeful.errors import InvalidInput

SDK_HEADER = "x-stainless-lang"
"""Of OpenAI's client libraries: SnoozeML's wants a bare array at the same path."""
INDEX = "/v2/repository/index"
_COMING = frozenset({"Progressing", "Waking"})


class _IndexAsk(msgspec.Struct):
    ready: bool = False


def form_of(method: str, path: str, headers: Iterable[str]) -> Callable[[list[Standing], bytes], bytes] | None:
    """What makes the body of the answer, of all models and of the request's body; None: no list is asked for."""
    if (method, path) == ("POST", INDEX):
        return index
    if method == "GET" and path in ("/v1/models", "/openai/v1/models"):
        by_openai = path.startswith("/openai/") or any(name.lower() == SDK_HEADER for name in headers)
        return openai if by_openai else snooze
    return None


def index(models: list[Standing], body: bytes) -> bytes:
    """Open Inference Protocol. Versions are not named: they are the files', and the daemon's to tell."""
    try:
        only_ready = bool(body) and msgspec.json.decode(body, type=_IndexAsk).ready
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"body: expected JSON such as {{\"ready\": true}}, got {error}") from None
    return msgspec.json.encode([
        {"name": model.name, "state": oip_state(model), "reason": model.reason} for model in models if model.serves or not only_ready
    ])


def oip_state(model: Standing) -> str:
    return "READY" if model.serves else "LOADING" if model.state in _COMING else "UNAVAILABLE"


def openai(models: list[Standing], _: bytes) -> bytes:
    entries = [{"id": model.name, "object": "model", "created": 0, "owned_by": "wakeful"} for model in models]
    return msgspec.json.encode({"object": "list", "data": entries})


def snooze(models: list[Standing], _: bytes) -> bytes:
    """Its client wants whole numbers: what a cluster has no single answer for is 0."""
    return msgspec.json.encode([
        {
            "id": model.name, "state": "ready" if model.serves else "loading" if model.state in _COMING else "idle", "onnx_path": "",
            "idle_timeout_secs": 0, "max_batch_size": 0, "max_batch_delay_ms": 0, "last_accessed_secs_ago": 0, "description": model.reason or None,
            "pinned": False, "memory_bytes": 0,
        } for model in models
    ])
