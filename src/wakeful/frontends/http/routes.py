"""Every HTTP route, on one screen."""

import re
from typing import NamedTuple

from wakeful.engine import Engine
from wakeful.errors import NotFound
from wakeful.frontends.http.admin import AdminHandlers, Spawn, Waiting, waiting
from wakeful.frontends.http.connection import Handler, Route, refuse_with
from wakeful.frontends.http.errors import Dialect, HttpError, MethodNotAllowed
from wakeful.frontends.http.infer import InferHandlers


class Unsupported(HttpError):
    code = "unsupported"
    status = 501


class Entry(NamedTuple):
    method: str
    path: str
    """`{model}` may hold slashes; `[/versions/{version}]` may be there or not."""
    dialect: Dialect
    handler: Handler
    what: str
    """What it does, for docs/http.md."""

    def pattern(self) -> re.Pattern[str]:
        pattern = re.escape(self.path).replace(r"\[", "(?:").replace(r"\]", ")?")
        pattern = pattern.replace(r"\{model\}", "(?P<model>.+?)").replace(r"\{version\}", "(?P<version>[^/]+)")
        return re.compile(pattern, re.DOTALL)


def table(engine: Engine, spawn: Spawn) -> list[Entry]:
    """Of several paths that match, the first one counts."""
    infer, admin = InferHandlers(engine), AdminHandlers(engine)

    def later(handler: Waiting) -> Handler:
        return waiting(spawn, handler)

    return [
        # Open Inference Protocol
        Entry("POST", "/v2/models/{model}[/versions/{version}]/infer", "oip", infer.oip, "Run the model, waking it if it sleeps"),
        Entry("GET", "/v2", "oip", admin.oip_server, "Name, version and extensions of the server"),
        Entry("GET", "/v2/health/live", "oip", admin.live, "200 while the server runs"),
        Entry("GET", "/v2/health/ready", "oip", admin.ready, "200 while the server takes requests, else 503"),
        Entry("GET", "/v2/models/stats", "oip", admin.oip_statistics, "Counts and times of every model"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/ready", "oip", admin.oip_model_ready, "200 while the model is awake, else 503"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/config", "oip", later(admin.oip_config), "The model as Triton's configuration"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/stats", "oip", admin.oip_statistics, "Counts and times of the model"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]", "oip", later(admin.oip_model), "Inputs, outputs, merging; does not wake it"),
        Entry("POST", "/v2/repository/index", "oip", admin.oip_repository_index, 'All models and their states; with `{"ready": true}` those awake'),
        Entry("POST", "/v2/repository/models/{model}/load", "oip", later(admin.oip_load), "Wake the model, and answer when it is awake"),
        Entry("POST", "/v2/repository/models/{model}/unload", "oip", later(admin.oip_unload), "Put the model to sleep"),
        # SnoozeML
        Entry("GET", "/", "snooze", admin.index, "Name and version of the server, and where to look"),
        Entry("GET", "/health/live", "snooze", admin.live, "200 while the server runs"),
        Entry("GET", "/health/ready", "snooze", admin.ready, "200 while the server takes requests, else 503"),
        Entry("GET", "/v1/models", "snooze", admin.snooze_models, "All models with their states and settings"),
        Entry("POST", "/v1/models/refresh", "snooze", later(admin.snooze_refresh), "Look for new, changed and vanished model files"),
        Entry("POST", "/v1/models/upload", "snooze", _no_upload, "Not built yet: 501"),
        Entry("POST", "/v1/models/{model}/infer", "snooze", infer.snooze, "Run the model, waking it if it sleeps; float32 only"),
        Entry("POST", "/v1/models/{model}/load", "snooze", later(admin.snooze_load), "Wake the model, and answer when it is awake"),
        Entry("POST", "/v1/models/{model}/unload", "snooze", later(admin.snooze_unload), "Put the model to sleep"),
        Entry("POST", "/v1/models/{model}/pin", "snooze", later(admin.snooze_pin), "Wake the model and keep it awake"),
        Entry("POST", "/v1/models/{model}/unpin", "snooze", later(admin.snooze_unpin), "Let the model sleep again"),
        # Both
        Entry("GET", "/metrics", "snooze", admin.metrics, "Metrics for Prometheus"),
        Entry("GET", "/v1/events", "snooze", admin.events, "The latest decisions and their figures; `?since=` number, `limit=`, `model=`, `kind=`"),
    ]


def _no_upload(*_: object) -> None:
    raise Unsupported("models cannot be uploaded yet; put the file into the models directory and call /v1/models/refresh")


class Router:
    def __init__(self, entries: list[Entry]) -> None:
        self._entries = [(entry, entry.pattern()) for entry in entries]

    def find(self, method: str, path: str) -> Route:
        """The first path that matches decides; a method that it does not have, and a path that is none, get a route that refuses."""
        for entry, pattern in self._entries:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            handlers = {other.method: other.handler for other, _ in self._entries if other.path == entry.path}
            if "GET" in handlers:
                handlers["HEAD"] = handlers["GET"]
            handler = handlers.get(method) or refuse_with(MethodNotAllowed(method, sorted(handlers)))
            return Route(handler, entry.dialect, {name: value for name, value in match.groupdict().items() if value is not None})
        return Route(refuse_with(NotFound(f"there is nothing at {path}")), "snooze" if path.startswith("/v1/") else "oip")
