"""Inference over HTTP, in both dialects: decode, one engine verb, encode. Nothing here waits."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, WakefulError
from wakeful.frontends.http import oip, snooze
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.oip import Infer
from wakeful.inference import FOREVER, InferRequest
from wakeful.models.registry import VERSION
from wakeful.tensors import Buffer, Tensor

JSON_LENGTH = "inference-header-content-length"
DECODED_HERE = 1 << 20
"""Bytes of a body that take the loop a few milliseconds at most. More is decoded in a thread."""

T = TypeVar("T")


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
        self._decode(connection, partial(_decode_oip, head, body), partial(self._oip, connection, head, monotonic()), len(body))

    def snooze(self, connection: Connection, head: Head, body: Buffer) -> None:
        self._decode(connection, partial(snooze.decode_infer, body), partial(self._snooze, connection, head, monotonic()), len(body))

    def _decode(self, connection: Connection, decode: Callable[[], T], then: Callable[[Callable[[], T]], None], size: int) -> None:
        if size > DECODED_HERE:
            connection.elsewhere(decode, then)
        else:
            then(decode)

    def _oip(self, connection: Connection, head: Head, arrived: float, decoded: Callable[[], Infer]) -> None:
        parameters = head.route.parameters
        model = parameters["model"]
        try:
            wish = decoded()
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

    def _snooze(self, connection: Connection, head: Head, arrived: float, decoded: Callable[[], tuple[Tensor, ...]]) -> None:
        model = head.route.parameters["model"]
        try:
            inputs = decoded()
        except WakefulError as error:
            self._engine.refused(model, "snooze", error, monotonic() - arrived)
            raise
        request = SnoozeRequest(model, inputs, arrived=arrived, coerce=True, protocol="snooze")
        request.connection = connection
        connection.waiter = request
        self._engine.infer(request)


def _decode_oip(head: Head, body: Buffer) -> Infer:
    text = head.headers.get(JSON_LENGTH)
    if text is None:
        return oip.decode_infer(body)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput.field(JSON_LENGTH, "a number of bytes", repr(text))
    return oip.decode_infer(body, int(text))
