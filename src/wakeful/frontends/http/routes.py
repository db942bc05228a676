"""Every HTTP route, on one screen."""

import re
from collections.abc import Callable
from typing import NamedTuple

from wakeful.engine import Engine
from wakeful.errors import NotFound
from wakeful.frontends.http.admin import AdminHandlers, Spawn, waiting
from wakeful.frontends.http.connection import Handler, Route
from wakeful.frontends.http.errors import Dialect, HttpError, MethodNotAllowed
from wakeful.frontends.http.infer import InferHandlers


class Unsupported(HttpError):
    code = "unsupported"
    status = 501


class Entry(NamedTuple):
    method: str
    pattern: re.Pattern[str]
    dialect: Dialect
    handler: Handler


def table(engine: Engine, spawn: Spawn) -> list[Entry]:
    infer, admin = InferHandlers(engine), AdminHandlers(engine)

    def at(method: str, path: str, dialect: Dialect, handler: Handler) -> Entry:
        """`{model}` may hold slashes; `[/versions/{version}]` may be there or not."""
        pattern = re.escape(path).replace(r"\[", "(?:").replace(r"\]", ")?")
        pattern = pattern.replace(r"\{model\}", "(?P<model>.+?)").replace(r"\{version\}", "(?P<version>[^/]+)")
        return Entry(method, re.compile(pattern), dialect, handler)

    def later(handler: Callable[..., object]) -> Handler:
        return waiting(spawn, handler)  # type: ignore[arg-type]  # a bound coroutine method of AdminHandlers

    return [
        # Open Inference Protocol
        at("POST", "/v2/models/{model}[/versions/{version}]/infer", "oip", infer.oip),
        at("GET", "/v2", "oip", admin.oip_server),
        at("GET", "/v2/health/live", "oip", admin.live),
        at("GET", "/v2/health/ready", "oip", admin.ready),
        at("GET", "/v2/models/stats", "oip", admin.oip_statistics),
        at("GET", "/v2/models/{model}[/versions/{version}]/ready", "oip", admin.oip_model_ready),
        at("GET", "/v2/models/{model}[/versions/{version}]/config", "oip", later(admin.oip_config)),
        at("GET", "/v2/models/{model}[/versions/{version}]/stats", "oip", admin.oip_statistics),
        at("GET", "/v2/models/{model}[/versions/{version}]", "oip", later(admin.oip_model)),
        at("POST", "/v2/repository/index", "oip", admin.oip_repository_index),
        at("POST", "/v2/repository/models/{model}/load", "oip", later(admin.oip_load)),
        at("POST", "/v2/repository/models/{model}/unload", "oip", later(admin.oip_unload)),
        # SnoozeML
        at("GET", "/", "snooze", admin.index),
        at("GET", "/health/live", "snooze", admin.live),
        at("GET", "/health/ready", "snooze", admin.ready),
        at("GET", "/v1/models", "snooze", admin.snooze_models),
        at("POST", "/v1/models/refresh", "snooze", later(admin.snooze_refresh)),
        at("POST", "/v1/models/upload", "snooze", _no_upload),
        at("POST", "/v1/models/{model}/infer", "snooze", infer.snooze),
        at("POST", "/v1/models/{model}/load", "snooze", later(admin.snooze_load)),
        at("POST", "/v1/models/{model}/unload", "snooze", later(admin.snooze_unload)),
        at("POST", "/v1/models/{model}/pin", "snooze", later(admin.snooze_pin)),
        at("POST", "/v1/models/{model}/unpin", "snooze", later(admin.snooze_unpin)),
        # Both
        at("GET", "/metrics", "snooze", admin.metrics),
        at("GET", "/v1/events", "snooze", admin.events),
    ]


def _no_upload(*_: object) -> None:
    raise Unsupported("models cannot be uploaded yet; put the file into the models directory and call /v1/models/refresh")


class Router:
    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def find(self, method: str, path: str) -> Route:
        """Raises MethodNotAllowed or NotFound."""
        allowed: list[str] = []
        for entry in self._entries:
            match = entry.pattern.fullmatch(path)
            if match is None:
                continue
            if entry.method == method or (method == "HEAD" and entry.method == "GET"):
                parameters = {name: value for name, value in match.groupdict().items() if value is not None}
                return Route(entry.handler, entry.dialect, parameters)
            allowed.append(entry.method)
        if allowed:
            raise MethodNotAllowed(method, sorted(set(allowed)))
        raise NotFound(f"there is nothing at {path}")
