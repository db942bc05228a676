"""Calls over gRPC that Envoy has no cluster for: whose model is named in their first message alone, or sleeps at zero, or that are for the gateway.

Messages are bytes here, whatever the method: only the name is looked for. A stream belongs to the model that its first message names.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc

from wakeful import __version__
from wakeful.cluster.gateway.bootstrap import MODEL_HEADERS, UNSTARTED
from wakeful.cluster.gateway.errors import render_grpc
from wakeful.cluster.gateway.forwarding import (
    EXTENSIONS,
    LARGEST_BODY,
    MODEL_HEADER,
    MOST_PASSES,
    PASSES,
    Passage,
    next_pass,
    unguarded,
)
from wakeful.cluster.gateway.lists import oip_state
from wakeful.errors import InvalidInput, WakefulError

OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_BODY),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)
CLIENT_OPTIONS = (*OPTIONS[:2], ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
_OIP, _HEALTH = "/inference.GRPCInferenceService/", "/grpc.health.v1.Health/"
_INDEX = _OIP + "RepositoryIndex"
_NAME_FIELD = {_OIP + "RepositoryModelLoad": 2, _OIP + "RepositoryModelUnload": 2}
"""Where a message has its model's name; of all others it is the first field."""
_TRUE = b"\x08\x01"
"""A message whose first field is true, or 1."""
_DROPPED = frozenset({"user-agent", "content-type", "te", *MODEL_HEADERS, PASSES})


class RpcHelper(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    def __init__(self, passage: Passage, envoy: grpc.aio.Channel) -> None:
        self._passage, self._envoy = passage, envoy
        self._own: dict[str, Callable[[Any], Awaitable[None]]] = {
            _OIP + "ServerLive": _say(_TRUE), _OIP + "ServerReady": _say(_TRUE), _OIP + "ServerMetadata": _say(_server_metadata()),
            _HEALTH + "Check": _say(_TRUE), _HEALTH + "Watch": _serving,
        }

    def service(self, details: Any) -> Any:
        method: str = details.method

        async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
            try:
                if method == _INDEX:
                    await self._index(requests, context)
                    return
                own = self._own.get(method)
                await (self._pass(method, requests, context) if own is None else own(context))
            except WakefulError as error:
                code, text, metadata = render_grpc(error)
                await context.abort(code, text, metadata)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _index(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """As over HTTP: of each Server that asks for keys one pod is asked the same, and its refusal is the caller's."""
        metadata = dict(context.invocation_metadata())
        if PASSES in metadata:
            next_pass(str(metadata.get(MODEL_HEADER, "")), str(metadata[PASSES]))
        asked = await anext(requests, b"")
        told = await self._passage.catalog.models()
        for server, model in told.guards.items():
            if not model:
                raise unguarded(server)
            try:
                metadata_there = _metadata_for(model, str(MOST_PASSES), context)
                await self._envoy.unary_unary(_INDEX)(asked, metadata=metadata_there, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", _without_unstarted(error.trailing_metadata()))
        only_ready = _number_in(asked, 2) != 0
        entries = [_texts(((1, model.name), (3, oip_state(model)), (4, model.reason))) for model in told.models if model.serves or not only_ready]
        await context.write(b"".join(_field(1, entry) for entry in entries))

    async def _pass(self, method: str, requests: AsyncIterator[bytes], context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        model = next((metadata[header] for header in MODEL_HEADERS if header in metadata), None)
        if model is None:
            await self._name(method, requests, context)
            return
        passes = next_pass(model, metadata.get(PASSES))
        if method == _OIP + "ModelReady":
            await context.write(b"")  # false: asking does not wake it
            return
        await self._passage.waker.routed(model)
        await self._relay(method, requests, context, _metadata_for(model, passes, context))

    async def _name(self, method: str, requests: AsyncIterator[bytes], context: Any) -> None:
        """Give a call the header that Envoy finds the model by. It comes back when it is routed nowhere."""
        first = await anext(requests, None)
        if first is None:
            raise InvalidInput("the stream has ended before its first message, which would name the model")
        self._passage.room.take(len(first))
        try:
            model = _name_in(first, _NAME_FIELD.get(method, 1))
            if not model:
                raise InvalidInput.field("model_name", f"the model's name, here or in the metadata {MODEL_HEADER}", "none")
            await self._relay(method, _after(first, requests), context, _metadata_for(model, next_pass(model, None), context))
        finally:
            self._passage.room.give(len(first))

    async def _relay(self, method: str, messages: AsyncIterator[bytes], context: Any, metadata: tuple[tuple[str, Any], ...]) -> None:
        call = self._envoy.stream_stream(method)(messages, metadata=metadata, timeout=context.time_remaining())
        try:
            async for message in call:
                await context.write(message)
            code, text, trailing = grpc.StatusCode.OK, await call.details(), await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            code, text, trailing = error.code(), error.details(), error.trailing_metadata()
        finally:
            call.cancel()
        trailing = _without_unstarted(trailing)
        if code is grpc.StatusCode.OK:
            context.set_trailing_metadata(trailing)
        else:
            await context.abort(code, text or "", trailing)


def _without_unstarted(trailing: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in trailing or () if name != UNSTARTED)


def _metadata_for(model: str, passes: str, context: Any) -> tuple[tuple[str, Any], ...]:
    kept = ((name, value) for name, value in context.invocation_metadata() if name not in _DROPPED and not name.startswith("grpc-"))
    return (*kept, (MODEL_HEADER, model), (PASSES, passes))


def _say(message: bytes) -> Callable[[Any], Awaitable[None]]:
    async def answer(context: Any) -> None:
        await context.write(message)

    return answer


async def _serving(context: Any) -> None:
    """As long as the caller wants to know: a gateway that does not serve is not there."""
    await context.write(_TRUE)
    await asyncio.Event().wait()


def _server_metadata() -> bytes:
    """ServerMetadataResponse: name, version and extensions."""
    return _texts(((1, "wakeful"), (2, __version__), *((3, extension) for extension in EXTENSIONS)))


def _texts(fields: Iterable[tuple[int, str]]) -> bytes:
    """A message of fields of text, of which empty ones are left out."""
    return b"".join(_field(number, text.encode()) for number, text in fields if text)


def _field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


async def _after(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for message in rest:
        yield message


def _name_in(message: bytes, number: int) -> str:
    """A field of text, found without reading the tensors. Empty: it is not there. Raises InvalidInput for what is no message."""
    found = _find(message, number)
    return found if isinstance(found, str) else ""


def _number_in(message: bytes, number: int) -> int:
    """A field that is a number, or true or false. 0: it is not there."""
    found = _find(message, number)
    return found if isinstance(found, int) else 0


def _find(message: bytes, number: int) -> str | int | None:
    position = 0
    try:
        while position < len(message):
            key, position = _varint(message, position)
            if key & 7 == 2:
                length, position = _varint(message, position)
                if key >> 3 == number:
                    return message[position:position + length].decode()
                position += length
            elif key & 7 == 0:
                value, position = _varint(message, position)
                if key >> 3 == number:
                    return value
            else:
                position += {1: 8, 5: 4}[key & 7]
    except (IndexError, KeyError, UnicodeDecodeError):
        raise InvalidInput("the first message cannot be read, and so not be found for which model it is") from None
    return None


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number, and where the next thing begins. Longer ones than protobuf has are no numbers."""
    number = shift = 0
    while shift < 70:
        byte = message[position]
        number, position, shift = number | (byte & 0x7F) << shift, position + 1, shift + 7
        if byte < 0x80:
            return number, position
    raise IndexError

