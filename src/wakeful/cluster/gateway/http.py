"""Requests over HTTP/1.1 that Envoy has no cluster for: named by their body, for a model that sleeps at zero or is not there, or for the gateway.

A body that need not be read stays with the caller until its model is routed; then it streams through.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from wakeful import __version__
from wakeful.cluster.gateway.bootstrap import MODEL_HEADERS, UNSTARTED
from wakeful.cluster.gateway.errors import dialect_of, render
from wakeful.cluster.gateway.forwarding import EXTENSIONS, LARGEST_BODY, MODEL_HEADER, MOST_PASSES, PASSES, Passage, next_pass, unguarded
from wakeful.cluster.gateway.lists import form_of
from wakeful.cluster.wire import Standing
from wakeful.errors import InvalidInput, NotFound, TooLarge, Unavailable, WakefulError

HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"})
_PREFIXES = ("/v2/models/", "/v1/models/", "/openai/v1/models/")
LARGEST_ASK = 64 << 10
"""Bytes of a body that asks for a list."""
_OWN: dict[str, object] = {
    "/v2/health/live": {"live": True}, "/v2/health/ready": {"ready": True}, "/health/live": {"status": "live"}, "/health/ready": {"status": "ready"},
    "/v2": {"name": "wakeful", "version": __version__, "extensions": EXTENSIONS},
}
"""Answered by the gateway itself: it takes requests, whatever its models do."""


class _Named(msgspec.Struct):
    """Of bodies that say for whom they are: OpenAI's and others."""

    model: str | None = None
    model_name: str | None = None


class HttpHelper:
    def __init__(self, passage: Passage, session: aiohttp.ClientSession) -> None:
        """`session` must neither decompress nor time out."""
        self._passage, self._session = passage, session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if request.method in ("GET", "HEAD") and request.path in _OWN:
                return web.Response(body=json.dumps(_OWN[request.path], separators=(",", ":")).encode(), content_type="application/json")
            form = form_of(request.method, request.path, request.headers)
            return await (self._pass(request) if form is None else self._list(request, form))
        except WakefulError as error:
            return _answer(error, request)
        except aiohttp.ClientError as error:
            return _answer(Unavailable(f"the gateway's Envoy does not answer: {error}", retry_after=1.0), request)

    async def _list(self, request: web.BaseRequest, form: Callable[[list[Standing], bytes], bytes]) -> web.StreamResponse:
        """Whoever may read the list of each Server that asks for keys: of each, one pod is asked the same."""
        if PASSES in request.headers:
            next_pass(request.headers.get(MODEL_HEADER, ""), request.headers[PASSES])
        body = b"".join([chunk async for chunk in _at_most(LARGEST_ASK, request)])
        told = await self._passage.catalog.models()
        for server, model in told.guards.items():
            if not model:
                raise unguarded(server)
            async with self._sent(request, model, str(MOST_PASSES), body) as answer:
                if answer.status >= 400:
                    return await _passed(request, answer)
        return web.Response(body=form(told.models, body), content_type="application/json")

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        model = _model_of(request)
        if model is not None:
            if request.method in ("GET", "HEAD") and request.path.endswith("/ready"):
                raise Unavailable(f"no replica has model {model}: it sleeps, or there is none")  # asking does not wake it
            next_pass(model, request.headers.get(PASSES))
            await self._passage.waker.routed(model)
            return await self._forward(request, model, request.content.iter_any() if request.can_read_body else None)
        return await self._name(request)

    async def _name(self, request: web.BaseRequest) -> web.StreamResponse:
        """Give a request the header that Envoy finds the model by. It comes back when it is routed nowhere."""
        taken = 0
        try:
            body = bytearray()
            async for chunk in request.content.iter_any() if request.can_read_body else _nothing():
                self._passage.room.take(len(chunk))
                taken += len(chunk)
                if taken > LARGEST_BODY:
                    raise TooLarge(
                        f"the body has more than {LARGEST_BODY >> 20} MiB, and names its model in it alone; name it in the header {MODEL_HEADER}",
                    )
                body += chunk
            return await self._forward(request, _named_in(body, request), bytes(body))
        finally:
            self._passage.room.give(taken)

    async def _forward(self, request: web.BaseRequest, model: str, body: AsyncIterator[bytes] | bytes | None) -> web.StreamResponse:
        async with self._sent(request, model, next_pass(model, request.headers.get(PASSES)), body) as answer:
            return await _passed(request, answer)

    def _sent(
        self, request: web.BaseRequest, model: str, passes: str, body: AsyncIterator[bytes] | bytes | None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP)
        headers[PASSES] = passes
        headers[MODEL_HEADER] = model
        url = URL(f"http://{self._passage.envoy}{request.raw_path}", encoded=True)
        return self._session.request(request.method, url, headers=headers, data=body, allow_redirects=False)


async def _passed(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    passed = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() not in HOP_BY_HOP and name.lower() != UNSTARTED:
            passed.headers.add(name, value)
    await passed.prepare(request)
    async for chunk in answer.content.iter_any():
        await passed.write(chunk)
    await passed.write_eof()
    return passed


async def _at_most(most: int, request: web.BaseRequest) -> AsyncIterator[bytes]:
    """A body that has no reason to be larger."""
    taken = 0
    async for chunk in request.content.iter_any() if request.can_read_body else _nothing():
        taken += len(chunk)
        if taken > most:
            raise TooLarge(f"the body has more than {most >> 10} KiB, and asks for nothing but a list")
        yield chunk


def _model_of(request: web.BaseRequest) -> str | None:
    """As Envoy finds it, beside the body."""
    for header in MODEL_HEADERS:
        if header in request.headers:
            return request.headers[header]
    for prefix in _PREFIXES:
        if request.path.startswith(prefix):
            return unquote(request.path.removeprefix(prefix).split("/", 1)[0]) or None
    return None


def _named_in(body: bytearray, request: web.BaseRequest) -> str:
    if not body:
        raise NotFound(f"there is nothing at {request.path} of the gateway; a model is named in the path, as in /v2/models/NAME/infer, in the header "
                       f"{MODEL_HEADER}, or as \"model\" in a JSON body")
    try:
        named = msgspec.json.decode(body, type=_Named)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"body: expected JSON that names its model as \"model\", got {error}") from None
    if (model := named.model or named.model_name) is None:
        raise InvalidInput.field("model", "the model's name", "none; it may stand in the header " + MODEL_HEADER)
    return model


def _answer(error: WakefulError, request: web.BaseRequest) -> web.Response:
    status, headers, body = render(error, dialect_of(request.path))
    response = web.Response(status=status, headers=headers, body=body)
    if not request.content.at_eof():
        response.force_close()  # what is left of the body nobody reads
    return response


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
