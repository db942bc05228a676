"""Inference over HTTP, in both dialects: decode, one engine verb, encode. Nothing here waits."""

from collections.abc import Callable, Sequence
from functools import partial

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, WakefulError
from wakeful.frontends.http import oip, snooze
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.elsewhere import elsewhere
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.oip import Infer
from wakeful.frontends.http.turns import Turns
from wakeful.inference import FOREVER, InferRequest
from wakeful.tensors import Buffer, Tensor

JSON_LENGTH = "inference-header-content-length"
DECODED_HERE = 1 << 20
"""Bytes of a body that take the loop a few milliseconds at most. More is decoded in a thread."""
ENCODED_HERE = 256 << 10
"""Bytes of outputs, which become several times as many in JSON, likewise."""


class HttpRequest(InferRequest, kw_only=True):
    """A request whose answer goes to a connection. An output that the dialect cannot carry becomes its error."""

    connection: Connection
    binary: oip.Binary = False

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        """What takes long is encoded in a thread, from a copy."""
        if self.binary is not True and _are_large(outputs):
            kept = [output._replace(data=bytes(output.data)) for output in outputs]
            elsewhere(partial(self.encode, kept), lambda encoded: self.send(*encoded()), self.connection.go_on)
            return
        try:
            body, json_length = self.encode(outputs)
        except WakefulError as error:
            self.connection.fail(error)
        else:
            self.send(body, json_length)

    def encode(self, outputs: Sequence[Tensor]) -> tuple[bytes, int | None]:
        """The body, and how much of it is JSON where not all is."""
        raise NotImplementedError

    def send(self, body: bytes, json_length: int | None) -> None:
        if json_length is None:
            self.connection.respond_json(body)
        else:
            self.connection.respond(200, [(JSON_LENGTH, str(json_length))], body, "application/octet-stream")

    def refuse(self, error: WakefulError) -> None:
        self.connection.fail(error)


def _are_large(outputs: Sequence[Tensor]) -> bool:
    size = 0
    for output in outputs:
        size += len(output.data)
    return size > ENCODED_HERE


class OipRequest(HttpRequest, kw_only=True):
    def encode(self, outputs: Sequence[Tensor]) -> tuple[bytes, int | None]:
        return oip.encode_infer(self.model, self.version, self.id, outputs, self.binary)


class SnoozeRequest(HttpRequest, kw_only=True):
    def encode(self, outputs: Sequence[Tensor]) -> tuple[bytes, int | None]:
        return snooze.encode_infer(self.model, outputs, 1000 * (monotonic() - self.arrived)), None


class InferHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns()

    def oip(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        json_length = head.headers.get(JSON_LENGTH)
        decode = partial(oip.decode_infer, body) if json_length is None else partial(_decode_mixed, body, json_length)
        if len(body) > DECODED_HERE:
            elsewhere(decode, partial(self._oip, connection, head, arrived), connection.go_on)
        elif self._turns.free(arrived):
            self._oip(connection, head, arrived, decode)
        else:
            self._turns.later(connection, partial(self._oip, connection, head, arrived, decode))

    def snooze(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        decode = partial(snooze.decode_infer, body)
        if len(body) > DECODED_HERE:
            elsewhere(decode, partial(self._snooze, connection, head, arrived), connection.go_on)
        elif self._turns.free(arrived):
            self._snooze(connection, head, arrived, decode)
        else:
            self._turns.later(connection, partial(self._snooze, connection, head, arrived, decode))

    def _oip(self, connection: Connection, head: Head, arrived: float, decoded: Callable[[], Infer]) -> None:
        parameters = head.route.parameters
        model = parameters["model"]
        try:
            wish = decoded()
        except WakefulError as error:
            self._engine.refused(model, "oip", error, monotonic() - arrived)
            raise
        deadline = FOREVER if wish.timeout is None else arrived + wish.timeout / 1e6
        connection.waiter = request = OipRequest(
            model, wish.inputs, arrived, deadline, wish.outputs, wish.id, wish.parameters, False, "oip",
            connection=connection, binary=wish.binary,
        )
        self._engine.infer(request, parameters.get("version"))

    def _snooze(self, connection: Connection, head: Head, arrived: float, decoded: Callable[[], tuple[Tensor, ...]]) -> None:
        model = head.route.parameters["model"]
        try:
            inputs = decoded()
        except WakefulError as error:
            self._engine.refused(model, "snooze", error, monotonic() - arrived)
            raise
        connection.waiter = request = SnoozeRequest(model, inputs, arrived, coerce=True, protocol="snooze", connection=connection)
        self._engine.infer(request)


def _decode_mixed(body: Buffer, json_length: str) -> Infer:
    if not (json_length.isascii() and json_length.isdigit() and len(json_length) <= 18):
        raise InvalidInput.field(JSON_LENGTH, "a number of bytes", repr(json_length))
    return oip.decode_infer(body, int(json_length))
