"""Inference over HTTP, in both dialects: decode, one engine verb, encode. Nothing here waits."""

from collections.abc import Sequence

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, WakefulError
from wakeful.frontends.http import oip, snooze
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.head import Head
from wakeful.inference import FOREVER, InferRequest
from wakeful.models.registry import VERSION
from wakeful.tensors import Buffer, Tensor

JSON_LENGTH = "inference-header-content-length"


class HttpRequest(InferRequest):
    """A request whose answer goes to a connection."""

    __slots__ = ("connection",)

    connection: Connection

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        try:
            self.write(outputs)
        except WakefulError as error:  # an output that this dialect cannot carry
            self.connection.fail(error)

    def write(self, outputs: Sequence[Tensor]) -> None:
        raise NotImplementedError

    def refuse(self, error: WakefulError) -> None:
        self.connection.fail(error)


class OipRequest(HttpRequest):
    __slots__ = ("binary",)

    binary: oip.Binary

    def write(self, outputs: Sequence[Tensor]) -> None:
        body, json_length = oip.encode_infer(self.model, VERSION, self.id, outputs, self.binary)
        if json_length is None:
            self.connection.respond_json(body)
        else:
            self.connection.respond(200, [(JSON_LENGTH, str(json_length))], body, "application/octet-stream")


class SnoozeRequest(HttpRequest):
    __slots__ = ()

    def write(self, outputs: Sequence[Tensor]) -> None:
        self.connection.respond_json(snooze.encode_infer(self.model, outputs, 1000 * (monotonic() - self.arrived)))


class InferHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def oip(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        parameters = head.route.parameters
        model = parameters["model"]
        try:
            json_length = head.headers.get(JSON_LENGTH)
            wish = oip.decode_infer(body, None if json_length is None else _number(json_length))
        except WakefulError as error:
            self._engine.refused(model, "oip", error, monotonic() - arrived)
            raise
        request = OipRequest(
            model, wish.inputs, arrived=arrived, outputs=wish.outputs, id=wish.id, parameters=wish.parameters,
            deadline=FOREVER if wish.timeout is None else arrived + wish.timeout / 1e6, protocol="oip",
        )
        request.binary = wish.binary
        request.connection = connection
        connection.waiter = request
        self._engine.infer(request, parameters.get("version"))

    def snooze(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        model = head.route.parameters["model"]
        try:
            inputs = snooze.decode_infer(body)
        except WakefulError as error:
            self._engine.refused(model, "snooze", error, monotonic() - arrived)
            raise
        request = SnoozeRequest(model, inputs, arrived=arrived, coerce=True, protocol="snooze")
        request.connection = connection
        connection.waiter = request
        self._engine.infer(request)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput.field(JSON_LENGTH, "a number of bytes", repr(text))
    return int(text)
