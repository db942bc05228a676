"""Calls over gRPC that Envoy has no cluster for: whose model is named in their first message alone, or sleeps at zero, or that are for the gateway.

Messages are bytes here, whatever the method: only the name is looked for. A stream belongs to the model that its first message names.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from wakeful import __version__
from wakeful.cluster.gateway.bootstrap import MODEL_HEADERS, UNSTARTED
from wakeful.cluster.gateway.errors import render_grpc
from wakeful.cluster.gateway.forwarding import LARGEST_BODY, MODEL_HEADER, PASSES, Passage, next_pass
from wakeful.errors import InvalidInput, WakefulError

OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_BODY),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)
CLIENT_OPTIONS = (*OPTIONS[:2], ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
_OIP, _HEALTH = "/inference.GRPCInferenceService/", "/grpc.health.v1.Health/"
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
                own = self._own.get(method)
                await (self._pass(method, requests, context) if own is None else own(context))
            except WakefulError as error:
                code, text, metadata = render_grpc(error)
                await context.abort(code, text, metadata)

        return grpc.stream_stream_rpc_method_handler(handle)

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
        trailing = tuple((name, value) for name, value in trailing or () if name != UNSTARTED)
        if code is grpc.StatusCode.OK:
            context.set_trailing_metadata(trailing)
        else:
            await context.abort(code, text or "", trailing)


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
    """ServerMetadataResponse: name and version."""
    return b"".join(bytes([number << 3 | 2, len(text)]) + text.encode() for number, text in ((1, "wakeful"), (2, __version__)))


async def _after(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for message in rest:
        yield message


def _name_in(message: bytes, number: int) -> str:
    """A field of text, found without reading the tensors. Empty: it is not there. Raises InvalidInput for what is no message."""
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
                _, position = _varint(message, position)
            else:
                position += {1: 8, 5: 4}[key & 7]
    except (IndexError, KeyError, UnicodeDecodeError):
        raise InvalidInput("the first message cannot be read, and so not be found for which model it is") from None
    return ""


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number, and where the next thing begins. Longer ones than protobuf has are no numbers."""
    number = shift = 0
    while shift < 70:
        byte = message[position]
        number, position, shift = number | (byte & 0x7F) << shift, position + 1, shift + 7
        if byte < 0x80:
            return number, position
    raise IndexError

