"""Requests and answers as messages of snoozeml.v1. An answer has no room for the request's id, nor for an error."""

from collections.abc import Sequence
from functools import partial

from wakeful.frontends.grpc import snooze
from wakeful.frontends.grpc.messages import parse
from wakeful.frontends.streams.messages import Call, envelope
from wakeful.tensors import Tensor


class Protobuf:
    def open(self, payload: bytes) -> Call:
        request = parse(snooze.Request, payload)
        extra = request.parameters
        timeout = request.client_timeout_ms / 1000 if request.HasField("client_timeout_ms") else None
        id = extra.get("id") or extra.get("correlation_id")
        return envelope(id, request.model_id, extra.get("reply_to"), partial(snooze.inputs_of, request), timeout)

    def answer(self, call: Call, model: str, outputs: Sequence[Tensor], duration_ms: float) -> bytes:
        return snooze.encode_infer(model, outputs, duration_ms)
