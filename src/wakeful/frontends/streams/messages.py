"""Requests and answers as JSON messages, as SnoozeML's streams have them. Tensors are those of SnoozeML's REST API (`http.snooze`).

A message is opened in two steps, so that a request whose inputs are wrong is answered under its own id.
"""

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from wakeful.errors import InvalidInput, WakefulError
from wakeful.frontends.http import snooze
from wakeful.frontends.http.json_body import NOT_PARSED, explain, parse
from wakeful.tensors import Tensor

LONGEST_ID = 256
MOST_AXES = 64
_TOPIC = re.compile(r"[A-Za-z0-9._:/{}@+=~-]{1,255}")
"""What `reply_to` may be: it is the sender's word, and becomes a name at the broker."""


class Call(NamedTuple):
    """A message whose envelope was read."""

    id: str
    model: str | None
    reply_to: str | None
    inputs: Callable[[], tuple[Tensor, ...]]
    """Decodes them. Raises InvalidInput that names the field."""
    timeout: float | None = None
    """Seconds that the sender waits; None: not said."""
    fault: InvalidInput | None = None
    """What is wrong with the envelope itself."""


class Form(Protocol):
    """How messages are written."""

    def open(self, payload: bytes) -> Call:
        """Raises InvalidInput for what is no request at all."""

    def answer(self, call: Call, model: str, outputs: Sequence[Tensor], duration_ms: float) -> bytes:
        """Raises InvalidInput for outputs that the form cannot carry."""


def failure(id: str, model: str, error: WakefulError, duration_ms: float) -> bytes:
    """An error. It is JSON in every form."""
    body = {"id": id, "model_id": model, "status": "error", "duration_ms": round(duration_ms, 3), "error": error.message, "code": error.code}
    return msgspec.json.encode({key: value.encode(errors="replace").decode() if isinstance(value, str) else value for key, value in body.items()})


def envelope(
    id: str | int | None, model: str | None, reply_to: str | None, inputs: Callable[[], tuple[Tensor, ...]], timeout: float | None = None
) -> Call:
    """What is blank counts as absent, and a request without an id gets one. What cannot be right is left out and told as the fault."""
    name, target = str("" if id is None else id).strip(), (reply_to or "").strip()
    fault = None
    if len(name) > LONGEST_ID:
        fault, name = InvalidInput.field("id", f"at most {LONGEST_ID} characters", f"{len(name)}"), name[:LONGEST_ID]
    if target and not _TOPIC.fullmatch(target):
        fault, target = InvalidInput.field("reply_to", "1 to 255 letters, digits or ._:/{}@+=~-", repr(target)), ""
    return Call(name or uuid.uuid4().hex, (model or "").strip() or None, target or None, inputs, timeout, fault)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Input(msgspec.Struct):
    name: str
    data: msgspec.Raw
    shape: snooze.Shape | None = None
    """Absent: as `data` is nested."""


class _Request(msgspec.Struct):
    inputs: msgspec.Raw
    id: str | int | None = None
    model_id: str | None = None
    reply_to: str | None = None


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_inputs = msgspec.json.Decoder(Annotated[list[_Input], msgspec.Meta(min_length=1)]).decode


class Json:
    def open(self, payload: bytes) -> Call:
        request = parse(_decode_request, payload)
        return envelope(request.id, request.model_id, request.reply_to, lambda: _tensors(request.inputs))

    def answer(self, call: Call, model: str, outputs: Sequence[Tensor], duration_ms: float) -> bytes:
        body = snooze.encode_infer(model, outputs, duration_ms)
        return b'{"id":%b,"status":"success",%b' % (msgspec.json.encode(call.id), body[1:])


def _tensors(raw: msgspec.Raw) -> tuple[Tensor, ...]:
    try:
        given = _decode_inputs(raw)
    except NOT_PARSED as error:
        raise explain(error, "inputs") from None
    shaped = (
        snooze.Input(entry.name, _shape_of(entry.data, f"inputs[{index}].data") if entry.shape is None else entry.shape, entry.data)
        for index, entry in enumerate(given)
    )
    return snooze.tensors_of(shaped)


def _shape_of(raw: msgspec.Raw, field: str) -> tuple[int, ...]:
    """The lengths of the first array on each level; whether the others are as long is seen when the numbers are read."""
    try:
        level: Any = msgspec.json.decode(raw)
    except NOT_PARSED as error:
        raise explain(error, field) from None
    shape: list[int] = []
    while isinstance(level, list) and len(shape) <= MOST_AXES:
        shape.append(len(level))
        level = level[0] if level else None
    if not 1 <= len(shape) <= MOST_AXES:
        raise InvalidInput.field(field, f"an array of at most {MOST_AXES} axes", "more" if shape else repr(level))
    return tuple(shape)
