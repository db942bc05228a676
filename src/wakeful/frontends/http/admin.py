"""What people and programs ask about the daemon and its models, and tell it to do: health, metadata, life cycle, metrics, events.

Handlers that have to wait are coroutines, run as tasks of the daemon; inference is elsewhere (`infer.py`).
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from typing import Any, get_args
from urllib.parse import parse_qs

import msgspec

from wakeful import __version__
from wakeful.clock import monotonic, wall
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, Unavailable, WakefulError
from wakeful.frontends.http import oip, snooze
from wakeful.frontends.http.connection import Connection, Handler
from wakeful.frontends.http.head import Head
from wakeful.models.model import Model
from wakeful.models.registry import VERSION
from wakeful.telemetry import events as event_log
from wakeful.telemetry.metrics import CONTENT_TYPE, SUCCESS
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

    def start(connection: Connection, head: Head, body: Buffer) -> None:
        spawn(run(connection, head, body))

    return start


def state_of(model: Model) -> snooze.State:
    """In SnoozeML's four words."""
    if model.group.ready():
        return "busy" if model.batcher.busy else "ready"
    return "loading" if model.group.starting else "idle"


class AdminHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ── the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def index(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode({
            "name": "wakeful", "version": __version__, "models": len(self._engine.registry),
            "routes": ["/v2", "/v1/models", "/v1/events", "/health/live", "/health/ready", "/metrics", "/openapi.json"],
        }))

    def oip_server(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(oip.server_metadata(__version__))

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
        model = self._engine.registry.get(parameters["model"])
        connection.respond_json(oip.model_metadata(model.id, [VERSION], signature, _batching(model)))

    async def oip_config(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        signature = await self._engine.signature(parameters["model"], parameters.get("version"))
        model = self._engine.registry.get(parameters["model"])
        connection.respond_json(oip.model_config(model.id, signature, model.batcher.limits.max_rows if model.interface.merges else 0))

    def oip_model_ready(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        model = self._engine.registry.get(parameters["model"], parameters.get("version"))
        if not model.group.ready():
            raise Unavailable(f"model {model.id} is {_why_not_ready(model)}")
        connection.respond_json(encode({"name": model.id, "ready": True}))

    def oip_statistics(self, connection: Connection, head: Head, body: Buffer) -> None:
        parameters = head.route.parameters
        models = [self._engine.registry.get(parameters["model"], parameters.get("version"))] if "model" in parameters else self._engine.registry
        connection.respond_json(oip.encode_statistics(_statistics(model) for model in models))

    def oip_repository_index(self, connection: Connection, head: Head, body: Buffer) -> None:
        only_ready = oip.decode_repository_index(body)
        rows = [_index_row(model) for model in self._engine.registry]
        connection.respond_json(oip.encode_repository_index(row for row in rows if row[2] == "READY" or not only_ready))

    async def oip_load(self, connection: Connection, head: Head, body: Buffer) -> None:
        oip.decode_load(body)
        await self._engine.load(head.route.parameters["model"])
        connection.respond_json(b"{}")

    async def oip_unload(self, connection: Connection, head: Head, body: Buffer) -> None:
        oip.decode_unload(body)
        await self._engine.unload(head.route.parameters["model"])
        connection.respond_json(b"{}")

    # ── SnoozeML ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def snooze_models(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode([self._info(model) for model in self._engine.registry]))

    async def snooze_refresh(self, connection: Connection, head: Head, body: Buffer) -> None:
        models = await self._engine.refresh()
        connection.respond_json(encode({"models": [self._info(model) for model in models]}))

    async def snooze_load(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.load, {"status": "loaded"})

    async def snooze_unload(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.unload, {"status": "unloaded"})

    async def snooze_pin(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.pin, {"status": "pinned", "pinned": True})

    async def snooze_unpin(self, connection: Connection, head: Head, body: Buffer) -> None:
        await self._verb(connection, head, self._engine.unpin, {"status": "unpinned", "pinned": False})

    async def _verb(self, connection: Connection, head: Head, verb: Callable[[str], Awaitable[Model]], answer: dict[str, object]) -> None:
        model = await verb(head.route.parameters["model"])
        connection.respond_json(encode({"model_id": model.id} | answer))

    def _info(self, model: Model) -> snooze.ModelInfo:
        settings = model.settings
        return snooze.model_info(
            id=model.id,
            state=state_of(model),
            onnx_path=str(settings.path),
            idle_timeout=settings.life.idle_timeout,
            max_batch_size=settings.batching.max_rows,
            max_batch_delay=settings.batching.max_delay,
            last_accessed=None if model.last_used is None else monotonic() - model.last_used,
            description=settings.description,
            pinned=model.pinned,
            memory_bytes=self._engine.supervisor.resident_of(model.id),
        )


def _whole(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput.field(name, "a whole number", repr(text))
    return int(text)


def _why_not_ready(model: Model) -> str:
    if model.group.starting:
        return "loading"
    error: WakefulError | None = model.backoff.error
    if error is not None:
        return f"failed: {error.message}"
    return "asleep; a request wakes it"


def _batching(model: Model) -> dict[str, object]:
    reason = model.interface.verdict.reason
    if model.interface.undecided:
        reason = f"not tested yet; {reason}"
    return {"merged": model.interface.merges, "max_batch_size": model.batcher.limits.max_rows, "reason": reason}


def _index_row(model: Model) -> tuple[str, str, str, str]:
    if model.group.ready():
        return model.id, VERSION, "READY", ""
    return model.id, VERSION, "LOADING" if model.group.starting else "UNAVAILABLE", _why_not_ready(model)


def _statistics(model: Model) -> oip.ModelStatistics:
    stats = model.stats
    good = sum(count for (_, outcome), count in stats.requests.items() if outcome == SUCCESS)
    bad = sum(stats.requests.values()) - good
    last = 0 if model.last_used is None else int(1000 * (wall() - (monotonic() - model.last_used)))
    return oip.ModelStatistics(
        name=model.id, version=VERSION, last_inference=last, inferences=int(stats.batch_rows.sum), executions=stats.batch_rows.count,
        success=oip.Timing(good, int(1e9 * (stats.request_seconds.sum - stats.failed_seconds))),
        fail=oip.Timing(bad, int(1e9 * stats.failed_seconds)),
        queue=oip.Timing(stats.queue_seconds.count, int(1e9 * stats.queue_seconds.sum)),
        compute=oip.Timing(stats.run_seconds.count, int(1e9 * stats.run_seconds.sum)),
    )
