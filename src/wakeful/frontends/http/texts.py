"""OpenAI's API and reranking over HTTP: decode, one verb, encode. Each call is a task: it takes many requests, and what takes long is done in a
thread."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from wakeful.clock import monotonic
from wakeful.config.kinds import KINDS
from wakeful.engine import Engine
from wakeful.errors import WakefulError
from wakeful.frontends.http import openai
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.head import Head
from wakeful.models.model import Model
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
        large = sum(len(vector) for vector in result.vectors) > ENCODED_HERE
        _respond(connection, await asyncio.to_thread(encode) if large else encode(), result.cut)

    async def rerank(self, connection: Connection, head: Head, body: Buffer) -> None:
        arrived = monotonic()
        wish = await self._decoded(openai.decode_rerank, body, arrived)
        connection.waiter = call = Call(self._engine, wish.model, PROTOCOL, arrived)
        result = await self._texts.rerank(call, wish.query, wish.documents)
        _respond(connection, openai.encode_reranked(wish, result), result.cut)

    def models(self, connection: Connection, head: Head, body: Buffer) -> None:
        """Without the tokenizers, which nobody asks by themselves."""
        models = (model for model in self._engine.registry.newest() if not KINDS[model.settings.backend].serves_models)
        pipelines = (_pipeline_entry(pipeline.id) for pipeline in self._engine.pipelines)
        connection.respond_json(openai.encode_models([*map(_entry, models), *pipelines]))

    def model(self, connection: Connection, head: Head, body: Buffer) -> None:
        name = head.route.parameters["model"]
        entry = _pipeline_entry(name) if name in self._engine.pipelines else _entry(self._engine.registry.get(name))
        connection.respond_json(msgspec.json.encode(entry))

    async def _decoded(self, decode: Callable[[Buffer], T], body: Buffer, arrived: float) -> T:
        try:
            return await asyncio.to_thread(decode, body) if len(body) > DECODED_HERE else decode(body)
        except WakefulError as error:
            self._engine.refused("", PROTOCOL, error, monotonic() - arrived)
            raise


def _respond(connection: Connection, body: bytes, cut: int) -> None:
    if cut:
        connection.respond(200, [(CUT, str(cut))], body)
    else:
        connection.respond_json(body)


def _entry(model: Model) -> Mapping[str, object]:
    return openai.model_entry(model.id, _written(model.settings.path))


def _pipeline_entry(name: str) -> Mapping[str, object]:
    return openai.model_entry(name, 0)


def _written(path: Path) -> int:
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return 0
