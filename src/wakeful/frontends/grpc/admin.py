"""What people and programs ask about the daemon and its models, and tell it to do, over gRPC: the Open Inference Protocol's rare verbs.

What is told is what REST tells: the protocol gives its messages the same fields.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from google.protobuf.json_format import ParseDict

from wakeful import __version__
from wakeful.engine import Engine
from wakeful.frontends import oip_bodies
from wakeful.frontends.grpc.call import Call, Handler
from wakeful.frontends.grpc.infer import Spawn
from wakeful.frontends.grpc.messages import message, parse

Verb = Callable[[Any], Coroutine[Any, Any, dict[str, Any]]]


class AdminHandlers:
    """A verb takes a request message and gives the answer's fields."""

    def __init__(self, engine: Engine, spawn: Spawn) -> None:
        self._engine = engine
        self._spawn = spawn

    def handler(self, name: str, verb: Verb) -> Handler:
        """Of the method that takes inference.`name`Request and answers inference.`name`Response. It goes on in a task, as it may have to wait."""
        request, response = message(f"inference.{name}Request"), message(f"inference.{name}Response")

        async def run(call: Call, encoded: bytes) -> None:
            try:
                fields = await verb(parse(request, encoded))
                call.respond(ParseDict(fields, response(), ignore_unknown_fields=True).SerializeToString())
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it, and the log if it is a fault of ours
                call.fail(error)
                error.__traceback__ = None  # as in infer.py

        return lambda call, encoded: self._spawn(run(call, encoded))

    # ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def live(self, request: Any) -> dict[str, Any]:
        return {"live": True}

    async def ready(self, request: Any) -> dict[str, Any]:
        return {"ready": self._engine.condition.ready}

    async def server(self, request: Any) -> dict[str, Any]:
        return oip_bodies.server_metadata(__version__)

    # ── its models ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def model_ready(self, request: Any) -> dict[str, Any]:
        return {"ready": self._engine.portrait(request.name, request.version or None).ready}

    async def model(self, request: Any) -> dict[str, Any]:
        signature = await self._engine.signature(request.name, request.version or None)
        shown = self._engine.portrait(request.name, request.version or None)
        return oip_bodies.model_metadata(shown.name, shown.versions, signature)

    async def config(self, request: Any) -> dict[str, Any]:
        signature = await self._engine.signature(request.name, request.version or None)
        shown = self._engine.portrait(request.name, request.version or None)
        return {"config": oip_bodies.model_config(shown.name, signature, shown.max_rows if shown.merges else 0)}

    async def statistics(self, request: Any) -> dict[str, Any]:
        """Of one version, of all of a model, or of all models."""
        name, version, engine = request.name, request.version, self._engine
        return oip_bodies.statistics([engine.portrait(name, version)] if name and version else engine.portraits(name or None))

    async def index(self, request: Any) -> dict[str, Any]:
        chosen = [shown for shown in self._engine.portraits() if shown.ready or not request.ready]
        return {"models": oip_bodies.repository_index(chosen)}

    async def load(self, request: Any) -> dict[str, Any]:
        """Of settings that it brings, an event tells what came: the answer has no room for it."""
        config = oip_bodies.load_override({name: _chosen(value) for name, value in request.parameters.items()})
        if config is None:
            await self._engine.load(request.model_name)
        else:
            await self._engine.load_by(request.model_name, config)
        return {}

    async def unload(self, request: Any) -> dict[str, Any]:
        """No model depends on another, so the parameter `unload_dependents` changes nothing."""
        await self._engine.unload(request.model_name)
        return {}


def _chosen(parameter: Any) -> object:
    """The value of a parameter, of whatever kind it is."""
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")
