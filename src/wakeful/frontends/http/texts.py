"""OpenAI's API and reranking over HTTP: decode, one verb, encode. Each call is a task: it takes many requests, and what takes long is done in a
thread."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import WakefulError
from wakeful.frontends.http import openai
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.elsewhere import here_or_elsewhere
from wakeful.frontends.http.head import Head
from wakeful.models.portrait import Portrait
from wakeful.tensors import Buffer
from wakeful.text.call import Call
from wakeful.text.texts import Texts

T = TypeVar("T")

PROTOCOL = "openai"
CUT = "x-wakeful-truncated"
"""Header of an answer: how many of its texts were longer than the model takes, and were cut."""
DECODED_HERE = 256 << 10
"""Bytes of a body that take the loop a millisecond."""
ENCODED_HERE = 16 << 10
"""Numbers of an answer, likewise."""


class TextHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._texts = Texts(engine)

    async def embeddings(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        wish = await self._decoded(openai.decode_embed, body, arrived)
        connection.waiter = call = Call(self._engine, wish.model, PROTOCOL, arrived)
        result = await self._texts.embed(call, wish.texts, wish.dimensions)
        encode = partial(openai.encode_embedded, wish.model, result, base64=wish.base64)
        numbers = sum(len(vector) for vector in result.vectors)
        _respond(connection, await here_or_elsewhere(encode, numbers, ENCODED_HERE), result.cut)

    async def rerank(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        wish = await self._decoded(openai.decode_rerank, body, arrived)
        connection.waiter = call = Call(self._engine, wish.model, PROTOCOL, arrived)
        result = await self._texts.rerank(call, wish.query, wish.documents)
        _respond(connection, openai.encode_reranked(wish, result), result.cut)

    def models(self, connection: Connection, head: Head, body: Buffer) -> None:
        """This API knows no versions."""
        chosen = [shown for shown in self._engine.portraits() if shown.newest and not shown.helps]
        connection.respond_json(openai.encode_models([*map(_entry, chosen)]))

    def model(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(msgspec.json.encode(_entry(self._engine.portrait(head.route.parameters["model"]))))

    async def _decoded(self, decode: Callable[[Buffer], T], body: Buffer, arrived: float) -> T:
        try:
            return await here_or_elsewhere(partial(decode, body), len(body), DECODED_HERE)
        except WakefulError as error:
            self._engine.refused("", PROTOCOL, error, monotonic() - arrived)
            raise


def _respond(connection: Connection, body: bytes, cut: int) -> None:
    if cut:
        connection.respond(200, [(CUT, str(cut))], body)
    else:
        connection.respond_json(body)


def _entry(shown: Portrait) -> Mapping[str, object]:
    """With the time at which its file was written; 0 where there is none, as for a pipeline."""
    created = 0
    if shown.path:
        with suppress(OSError):
            created = int(Path(shown.path).stat().st_mtime)
    return openai.model_entry(shown.name, created)
