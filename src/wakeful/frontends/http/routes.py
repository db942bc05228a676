"""Every HTTP route, on one screen."""

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wakeful.config.settings import Role
from wakeful.engine import Engine
from wakeful.errors import NotFound, Unauthenticated, WakefulError
from wakeful.frontends.access import EVERYTHING, OPEN, Access, Grant, expired
from wakeful.frontends.http import ui
from wakeful.frontends.http.admin import AdminHandlers, Spawn, Waiting, info, waiting
from wakeful.frontends.http.connection import Connection, Handler, Route, refusing
from wakeful.frontends.http.credentials import credentials
from wakeful.frontends.http.errors import MethodNotAllowed
from wakeful.frontends.http.guard import Guard
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.infer import InferHandlers
from wakeful.frontends.http.insight import InsightHandlers
from wakeful.frontends.http.openai import SDK_HEADER
from wakeful.frontends.http.texts import TextHandlers
from wakeful.frontends.http.upload import upload
from wakeful.frontends.wording import Dialect
from wakeful.tensors import Buffer

_DIALECTS: dict[str, Dialect] = {"/v1/": "snooze", "/openai/": "openai", "/wakeful/": "wakeful", "/ui/": "wakeful"}
_OPEN, _LOOK, _RUN, _ADMIN = None, Role.READ_ONLY, Role.INFERENCE, Role.ADMIN


class Entry(NamedTuple):
    method: str
    path: str
    """`{model}` may hold slashes; what stands in brackets may be there or not."""
    role: Role | None
    """What a caller has to be where authentication is on; None: anybody."""
    dialect: Dialect
    handler: Handler
    what: str
    """What it does, for docs/http.md."""
    streams: bool = False
    """The handler is called before the body has come."""

    def pattern(self) -> re.Pattern[str]:
        pattern = re.escape(self.path).replace(r"\[", "(?:").replace(r"\]", ")?")
        pattern = pattern.replace(r"\{model\}", "(?P<model>.+?)").replace(r"\{version\}", "(?P<version>[^/]+)")
        return re.compile(pattern.replace(r"\{file\}", "(?P<file>.+)"), re.DOTALL)


def table(
    engine: Engine, spawn: Spawn, metrics: Role | None = None, insight: InsightHandlers | None = None
) -> list[Entry]:
    """Of several paths that match, the first one counts. `metrics`: who may read them. `insight`: None where nobody looks at the daemon."""
    insight = insight or InsightHandlers(None)
    infer, admin, texts = InferHandlers(engine), AdminHandlers(engine), TextHandlers(engine)

    def later(handler: Waiting) -> Handler:
        return waiting(spawn, handler)

    return [
        # Open Inference Protocol
        Entry("POST", "/v2/models/{model}[/versions/{version}]/infer", _RUN, "oip", infer.oip, "Run the model, waking it if it sleeps"),
        Entry("GET", "/v2", _LOOK, "oip", admin.oip_server, "Name, version and extensions of the server"),
        Entry("GET", "/v2/health/live", _OPEN, "oip", admin.live, "200 while the server runs"),
        Entry("GET", "/v2/health/ready", _OPEN, "oip", admin.ready, "200 while the server takes requests, else 503"),
        Entry("GET", "/v2/models/stats", _LOOK, "oip", admin.oip_statistics, "Counts and times of every model"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/ready", _LOOK, "oip", admin.oip_model_ready, "200 while it is awake, else 503"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/config", _LOOK, "oip", later(admin.oip_config), "Its configuration, in Triton's form"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]/stats", _LOOK, "oip", admin.oip_statistics, "Counts and times of the model"),
        Entry("GET", "/v2/models/{model}[/versions/{version}]", _LOOK, "oip", later(admin.oip_model), "Inputs, outputs, merging; does not wake it"),
        Entry("POST", "/v2/repository/index", _LOOK, "oip", admin.oip_repository_index, 'Models and states; with `{"ready": true}` those awake'),
        Entry("POST", "/v2/repository/models/{model}/load", _ADMIN, "oip", later(admin.oip_load), "Look for new versions of the model, and wake it"),
        Entry("POST", "/v2/repository/models/{model}/unload", _ADMIN, "oip", later(admin.oip_unload), "Put the model to sleep"),
        # SnoozeML
        Entry("GET", "/", _LOOK, "snooze", admin.index, "Name and version of the server, and where to look"),
        Entry("GET", "/health/live", _OPEN, "snooze", admin.live, "200 while the server runs"),
        Entry("GET", "/health/ready", _OPEN, "snooze", admin.ready, "200 while the server takes requests, else 503"),
        Entry("GET", "/v1/models", _LOOK, "snooze", _by_client(admin.snooze_models, texts.models), "All models; a list of OpenAI's for its clients"),
        Entry("POST", "/v1/models/refresh", _ADMIN, "snooze", later(admin.snooze_refresh), "Look for new, changed and vanished model files"),
        Entry("POST", "/v1/models/upload", _ADMIN, "snooze", upload(engine, spawn, info), "Serve the model file of a form", streams=True),
        Entry("POST", "/v1/models/{model}/infer", _RUN, "snooze", infer.snooze, "Run the model, waking it if it sleeps; float32 only"),
        Entry("POST", "/v1/models/{model}/load", _ADMIN, "snooze", later(admin.snooze_load), "Wake the model, and answer when it is awake"),
        Entry("POST", "/v1/models/{model}/unload", _ADMIN, "snooze", later(admin.snooze_unload), "Put the model to sleep"),
        Entry("POST", "/v1/models/{model}/pin", _ADMIN, "snooze", later(admin.snooze_pin), "Wake the model and keep it awake"),
        Entry("POST", "/v1/models/{model}/unpin", _ADMIN, "snooze", later(admin.snooze_unpin), "Let the model sleep again"),
        # OpenAI
        Entry("POST", "[/openai]/v1/embeddings", _RUN, "openai", later(texts.embeddings), "Embeddings of texts or tokens"),
        Entry("POST", "[/openai]/v1/rerank", _RUN, "openai", later(texts.rerank), "How well documents fit a query, by a cross-encoder"),
        Entry("GET", "/openai/v1/models", _LOOK, "openai", texts.models, "All models"),
        Entry("GET", "[/openai]/v1/models/{model}", _LOOK, "openai", texts.model, "One model"),
        # Wakeful's own: what the command line and the dashboard show
        Entry("GET", "/wakeful/v1/state", _LOOK, "wakeful", insight.state, "The daemon and all models, as they are now"),
        Entry("GET", "/wakeful/v1/stream", _LOOK, "wakeful", insight.stream,
              "The same as server-sent events: all, then once a second what has changed, and decisions as they fall; `?model=` of one alone"),
        Entry("GET", "/wakeful/v1/history", _LOOK, "wakeful", insight.history,
              "Memory, requests and states of the last time: `?span=` `5m`, `1h` or `24h`"),
        Entry("GET", "/wakeful/v1/models/{model}/history", _LOOK, "wakeful", insight.history, "The same of one model, with latencies"),
        Entry("GET", "/wakeful/v1/models/{model}/explain", _LOOK, "wakeful", insight.explain,
              "Why it is as it is, in words; with `?wake=1` also who would have to go if it were asked for"),
        Entry("GET", "/wakeful/v1/models/{model}", _LOOK, "wakeful", insight.model, "A model with its signature, settings, batches and events"),
        Entry("GET", "/wakeful/v1/events", _LOOK, "wakeful", insight.events,
              "Latest decisions; `?after=` number, `limit=`, `model=`, `kind=` one or more, `reason=`, `since=` seconds since 1970"),
        Entry("GET", "/wakeful/v1/doctor", _LOOK, "wakeful", later(insight.doctor), "Whether this machine can do it, and what to change"),
        Entry("GET", "/wakeful/v1/config", _LOOK, "wakeful", insight.config, "The settings that count, each with where it comes from; no secrets"),
        Entry("GET", "/wakeful/v1/access", _OPEN, "wakeful", insight.access, "What the caller's key allows"),
        # All
        Entry("GET", "/metrics", metrics, "snooze", admin.metrics, "Metrics for Prometheus"),
        Entry("GET", "/v1/events", _LOOK, "snooze", admin.events, "Latest decisions, with figures; `?since=` number, `limit=`, `model=`, `kind=`"),
    ]


def pages() -> list[Entry]:
    """What browsers load, which is nothing for programs. Anybody may: what the pages show comes from the routes above, by the reader's key."""
    return [
        Entry("GET", "/ui", _OPEN, "wakeful", ui.index, "The dashboard"),
        Entry("GET", "/ui/{file}", _OPEN, "wakeful", ui.file, "Its files"),
    ]


def _by_client(snooze: Handler, openai: Handler) -> Handler:
    """SnoozeML's client needs a bare array where OpenAI's needs an object: who it is says a header."""

    def handler(connection: Connection, head: Head, body: Buffer) -> None:
        (openai if SDK_HEADER in head.headers else snooze)(connection, head, body)

    return handler


class Router:
    def __init__(
        self, entries: list[Entry], access: Access = OPEN, refused: Callable[[WakefulError], None] = lambda _: None, guard: Guard | None = None
    ) -> None:
        """`refused` is told why a caller may not have what it asks for."""
        self._guard = guard or Guard()
        self._entries = [(entry, entry.pattern()) for entry in entries]
        self._refused = refused
        self._access = access

    def find(self, method: str, path: str, headers: Mapping[str, str]) -> Route:
        """The first path that matches decides; a method that it does not have, a path that is none, and a caller who may not, get a route that
        refuses. Nobody learns what there is by asking without a key."""
        route, needed = self._match(method, path)
        try:
            grant = EVERYTHING if needed is None else self._access.check(credentials(headers), needed)
            if needed is None or self._access.open:
                self._guard.check(path, headers, changes=needed is Role.ADMIN and method == "POST")
        except WakefulError as error:
            self._refused(error)
            return refusing(error, route.dialect, lasting=False)
        return route if grant.until == math.inf else route._replace(handler=_while_valid(route.handler, grant))

    def _match(self, method: str, path: str) -> tuple[Route, Role | None]:
        for entry, pattern in self._entries:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            found = {other.method: other for other, _ in self._entries if other.path == entry.path}
            if "GET" in found:
                found["HEAD"] = found["GET"]
            if method not in found:
                return refusing(MethodNotAllowed(method, sorted(found)), entry.dialect), entry.role
            parameters = {name: value for name, value in match.groupdict().items() if value is not None}
            return Route(found[method].handler, entry.dialect, parameters, streams=found[method].streams), found[method].role
        dialect: Dialect = next((dialect for begin, dialect in _DIALECTS.items() if path.startswith(begin)), "oip")
        return refusing(NotFound(f"there is nothing at {path}; /openapi.json says what there is"), dialect), Role.READ_ONLY


def _while_valid(handler: Handler, grant: Grant) -> Handler:
    """A head is remembered with its route; a token does not hold as long."""

    def guarded(connection: Connection, head: Head, body: Buffer) -> None:
        if expired(grant):
            raise Unauthenticated("the token has expired")
        handler(connection, head, body)

    return guarded
