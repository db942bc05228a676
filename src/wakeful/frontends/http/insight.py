"""The data door: what the command line and the dashboard show. None of these routes counts as traffic, wakes a model or keeps one awake."""

import asyncio
from typing import Any, get_args
from urllib.parse import parse_qs

import msgspec

from wakeful.config.settings import Role
from wakeful.errors import InvalidInput, Unavailable, WakefulError
from wakeful.frontends.access import OPEN, Access
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.credentials import credentials
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.response import EVENT_STREAM
from wakeful.insight import state
from wakeful.insight.doctor import examine
from wakeful.insight.explain import explain
from wakeful.insight.history import SPANS
from wakeful.insight.readings import take
from wakeful.insight.state import FORMAT, Wanted
from wakeful.insight.stream import Stream
from wakeful.insight.watch import Watch
from wakeful.telemetry import events as event_log
from wakeful.tensors import Buffer

MOST_EVENTS = 1000

encode = msgspec.json.encode


class InsightHandlers:
    def __init__(self, watch: Watch | None, stream: Stream | None = None, access: Access = OPEN) -> None:
        """`watch`: None where nobody looks, as in tests of other routes."""
        self._watching = watch
        self._streaming = stream
        self._access = access

    @property
    def _watch(self) -> Watch:
        if self._watching is None:
            raise Unavailable("this server does not look at itself")
        return self._watching

    def state(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(state.state(self._watch)))

    def model(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(state.model(self._watch, head.route.parameters["model"])))

    def events(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(state.events(self._watch, _wanted(_query(head)))))

    async def doctor(self, connection: Connection, head: Head, body: Buffer) -> None:
        """The same as `wakeful doctor`, of the daemon's own surroundings. What one kill by the kernel ends was found out at the start."""
        about = self._watch.about
        readings = await asyncio.to_thread(take, about.read_settings(), (), lambda: about.group_kill)
        connection.respond_json(encode({**FORMAT, "checks": [check._asdict() for check in examine(readings)]}))

    def explain(self, connection: Connection, head: Head, body: Buffer) -> None:
        wake = _query(head).get("wake", "0") not in ("0", "false")
        connection.respond_json(encode(explain(self._watch, head.route.parameters["model"], wake=wake)))

    def history(self, connection: Connection, head: Head, body: Buffer) -> None:
        """Of a model, or where none is named of the daemon."""
        span = _query(head).get("span", "5m")
        if span not in SPANS:
            raise InvalidInput.field("span", " or ".join(SPANS), repr(span))
        connection.respond_json(encode(state.history(self._watch, head.route.parameters.get("model"), span)))

    def stream(self, connection: Connection, head: Head, body: Buffer) -> None:
        stream, watch, query = self._streaming, self._watch, _query(head)
        assert stream is not None
        key = state.key_of(watch, query["model"]) if "model" in query else None
        if head.method == "HEAD":
            connection.respond(200, (), b"", EVENT_STREAM)
            return
        stream.check()
        grant = self._access.check(credentials(head.headers), Role.READ_ONLY)
        last = head.headers.get("last-event-id", "")
        connection.begin_stream()
        known = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
        connection.waiter = stream.follow(connection, key, known, grant.until)

    def config(self, connection: Connection, head: Head, body: Buffer) -> None:
        connection.respond_json(encode(state.config(self._watch)))

    def access(self, connection: Connection, head: Head, body: Buffer) -> None:
        """Whoever asks learns only what its own key is worth."""
        try:
            role = self._access.check(credentials(head.headers), Role.READ_ONLY).role.name.lower()
        except WakefulError:
            role = "none"
        connection.respond_json(encode({**FORMAT, "role": role, "open": self._access.open}))


Query = dict[str, str]


def _query(head: Head) -> Query:
    """Of a name that stands twice, the first one counts."""
    return {name: values[0] for name, values in parse_qs(head.query).items()}


def _wanted(query: Query) -> Wanted:
    kinds = frozenset(kind for kind in query.get("kind", "").split(",") if kind)
    known: tuple[Any, ...] = get_args(event_log.Kind)
    if wrong := sorted(kinds.difference(known)):
        raise InvalidInput.field("kind", "one or more of " + ", ".join(known), repr(wrong[0]))
    return Wanted(
        _whole(query, "after", 0), min(_whole(query, "limit", 200), MOST_EVENTS), query.get("model"),
        kinds, query.get("reason"), _moment(query, "since"),  # type: ignore[arg-type]  # checked above
    )


def _whole(query: Query, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput.field(name, "a whole number", repr(text))
    return int(text)


def _moment(query: Query, name: str) -> float:
    text = query.get(name, "0")
    try:
        moment = float(text)
    except ValueError:
        moment = float("nan")
    if not 0 <= moment < 1e15:
        raise InvalidInput.field(name, "seconds since 1970", repr(text))
    return moment
