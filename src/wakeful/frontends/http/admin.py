"""What people and programs ask about the daemon and its models, and tell it to do: health, metadata, life cycle, metrics, events.

Handlers that have to wait are coroutines, run as tasks of the daemon; inference is elsewhere (`infer.py`).
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from typing import Any, get_args
from urllib.parse import parse_qs

import msgspec

from wakeful import __version__
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, Unavailable
from wakeful.frontends import oip_bodies
from wakeful.frontends.http import oip, snooze
from wakeful.frontends.http.connection import Connection, Handler
from wakeful.frontends.http.head import Head
from wakeful.models.portrait import Portrait
from wakeful.telemetry import events as event_log
from wakeful.telemetry.metrics import CONTENT_TYPE
from wakeful.tensors import Buffer

encode = msgspec.json.encode
Spawn = Callable[[Coroutine[Any, Any, None]], Any]
Waiting = Callable[[Connection, Head, Buffer], Coroutine[Any, Any, None]]


def waiting(spawn: Spawn, handler: Waiting) -> Handler:
    """A handler that waits, as one that does not: it goes on in a task, and its errors are answered like any other."""

    async def run(connection: Connection, head: Head, body: Buffer) -> None:
        try:
            await handler(connection, head, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it, and the log if it is a fault of ours
            connection.fail(error)
            error.__traceback__ = None  # its frames hold the body, and a future that holds the error: only the collector would find them

    def start(connection: Connection, head: Head, body: Buffer) -> None:
        spawn(run(connection, head, body))

    return start


class AdminHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ── the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def index(self, connection: Connection, head: Head, body: Buffer) -> None:
        """SnoozeML's client reads it; a person with a browser wants the pages."""
        if "text/html" in head.headers.get("accept", ""):
            connection.respond(302, [("location", "ui/")], b"")
            return
        connection.respond_json(encode({
            "name": "wakeful", "version": __version__, "models": len(self._engine.registry),
            "routes": ["/v2", "/v1/models", "/v1/events", "/health/live", "/health/ready", "/metrics", "/openapi.json", "/wakeful/v1/state"],
        }))

    def oip_server(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(oip_bodies.server_metadata(__version__)))

    def live(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(b'{"status":"live"}' if head.route.dialect == "snooze" else b'{"live":true}')

    def ready(self, connection: Connection, head: Head, body: Buffer) -> None:
        if not self._engine.condition.ready:
            raise Unavailable("the server is " + ("stopping" if self._engine.condition.draining else "starting"))
        connection.respond_json(b'{"status":"ready"}' if head.route.dialect == "snooze" else b'{"ready":true}')

    def metrics(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond(200, (), self._engine.metrics.render(), CONTENT_TYPE)

    def events(self, connection: Connection, head: Head, body: Buffer) -> None:
        query = parse_qs(head.query)
        kind = query.get("kind", [None])[0]
        if kind is not None and kind not in get_args(event_log.Kind):
            raise InvalidInput.field("kind", "one of " + ", ".join(get_args(event_log.Kind)), repr(kind))
        chosen = self._engine.events.list(
            since=_whole(query, "since", 0), limit=_whole(query, "limit", 1000), model=query.get("model", [None])[0], kind=kind  # type: ignore[arg-type]  # checked above
        )
        connection.respond_json(encode({"events": [asdict(event) for event in chosen]}))

    # ── Open Inference Protocol ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def oip_model(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        signature = await self._engine.signature(parameters["model"], parameters.get("version"))
        shown = self._engine.portrait(parameters["model"], parameters.get("version"))
        batching = {"merged": shown.merges, "max_batch_size": shown.max_rows, "reason": shown.batching}
        connection.respond_json(encode(oip_bodies.model_metadata(shown.name, shown.versions, signature, batching)))

    async def oip_config(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        signature = await self._engine.signature(parameters["model"], parameters.get("version"))
        shown = self._engine.portrait(parameters["model"], parameters.get("version"))
        connection.respond_json(encode(oip_bodies.model_config(shown.name, signature, shown.max_rows if shown.merges else 0, shown.steps)))

    def oip_model_ready(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        shown = self._engine.portrait(parameters["model"], parameters.get("version"))
        if not shown.ready:
            raise Unavailable(f"model {shown.name} is {shown.reason}")
        connection.respond_json(encode({"name": shown.name, "ready": True}))

    def oip_statistics(self, connection: Connection, head: Head, body: Buffer) -> None:
        """Of one version, of all of a model, or of all models."""
        name, version = head.route.parameters.get("model"), head.route.parameters.get("version")
        shown = self._engine.portraits(name) if name is None or version is None else [self._engine.portrait(name, version)]
        connection.respond_json(encode(oip_bodies.statistics(shown)))

    def oip_repository_index(self, connection: Connection, head: Head, body: Buffer) -> None:
        only_ready = oip.decode_repository_index(body)
        chosen = [shown for shown in self._engine.portraits() if shown.ready or not only_ready]
        connection.respond_json(encode(oip_bodies.repository_index(chosen)))

    async def oip_load(self, connection: Connection, head: Head, body: Buffer) -> None:
        model, config = head.route.parameters["model"], oip.decode_load(body)
        if config is None:
            await self._engine.load(model)
            connection.respond_json(b"{}")
        else:
            connection.respond_json(encode(oip_bodies.load_account(await self._engine.load_by(model, config))))

    async def oip_unload(self, connection: Connection, head: Head, body: Buffer) -> None:
        oip.decode_unload(body)
        await self._engine.unload(head.route.parameters["model"])
        connection.respond_json(b"{}")

    # ── SnoozeML ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def snooze_models(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(self._newest()))

    async def snooze_refresh(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._engine.refresh()
        connection.respond_json(encode({"models": self._newest()}))

    def _newest(self) -> list[snooze.ModelInfo]:
        """This API knows no versions."""
        return [info(shown) for shown in self._engine.portraits() if shown.newest]

    async def snooze_load(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.load, {"status": "loaded"})

    async def snooze_unload(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.unload, {"status": "unloaded"})

    async def snooze_pin(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.pin, {"status": "pinned", "pinned": True})

    async def snooze_unpin(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.unpin, {"status": "unpinned", "pinned": False})

    async def _verb(self, connection: Connection, head: Head, verb: Callable[[str], Awaitable[None]], answer: dict[str, object]) -> None:
        name = head.route.parameters["model"]
        await verb(name)
        connection.respond_json(encode({"model_id": name} | answer))


def _whole(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput.field(name, "a whole number", repr(text))
    return int(text)


def info(shown: Portrait) -> snooze.ModelInfo:
    return snooze.model_info(
        id=shown.name,
        state="idle" if shown.state == "asleep" else shown.state,
        onnx_path=shown.path,
        idle_timeout=shown.idle_timeout,
        max_batch_size=shown.max_batch_size,
        max_batch_delay=shown.max_delay,
        last_accessed=shown.last_used,
        description=shown.description,
        pinned=shown.pinned,
        memory_bytes=shown.resident_bytes,
    )
