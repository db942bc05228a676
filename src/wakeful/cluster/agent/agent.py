"""The agent: the part of a daemon that belongs to a cluster. It hears from the controller what is to be served here, sees to it, and tells what is
and how much it is used. It has no rights on the API server, and the daemon serves on without the controller."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from wakeful import __version__
from wakeful.clock import monotonic, wall
from wakeful.cluster.agent import gauges, memory
from wakeful.cluster.agent.cache import Cache
from wakeful.cluster.agent.drain import Drain
from wakeful.cluster.agent.fetch import Fetcher, FetchLimits
from wakeful.cluster.agent.health import Deaths, Quiet
from wakeful.cluster.agent.link import Hangup, Link
from wakeful.cluster.agent.orders import Heard, Orders
from wakeful.cluster.agent.shelf import Shelf
from wakeful.cluster.agent.told import Told
from wakeful.cluster.agent.watch import Reading, Thresholds, Watch, use
from wakeful.cluster.wire import PROTOCOL, Adopt, Desired, DrainAsked, FromAgent, HeldNow, Hello, Refused, Released, Report, ToAgent, UseNow
from wakeful.config.kinds import KINDS, library_of
from wakeful.config.settings import ClusterSettings
from wakeful.engine import Engine
from wakeful.models.model import Model
from wakeful.models.repository import Repository

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.1
"""Between two looks at models that finish."""
AT_A_TIME = 50
"""Models, about half a millisecond."""
SAVE_SECONDS = 0.2
"""What comes together is written down together."""


class Agent:
    """Made before the daemon is ready, and started with it."""

    def __init__(
        self, settings: ClusterSettings, engine: Engine, repository: Repository, spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._repository = repository
        self._events = engine.events
        self._spawn = spawn
        self._ports: tuple[int, int | None] = 0, None
        self._token = ""
        self._orders = Orders()
        self._cache = Cache(settings.artifacts_dir, settings.artifacts_limit)
        self._fetcher = Fetcher(self._cache, claims=settings.claims_dir, limits=FetchLimits(settings.max_downloads))
        self._shelf = Shelf(repository, engine.events, self._fetcher, settings.max_loads, spawn, self._changed)
        self._told = Told({}, {})
        self._dirty: set[str] = set()
        """Models of which something may not be told yet."""
        self._outbox: list[FromAgent] = []
        self._link = Link(settings.controllers, settings.ca_file, self._hello, self._take, self._news, engine.events)
        self._drain = Drain(settings.socket, settings.grace, self._drain_asked, lambda: self._link.connected, self._left, engine.events)
        self._watch = Watch()
        self._deaths = Deaths()
        self._readings: dict[str, Reading] = {}
        self._uses: dict[str, UseNow] = {}
        self._footprints: dict[str, int] = {}
        self._came: dict[str, float] = {}
        """When each model was first seen here."""
        self._wall = wall() - monotonic()
        self._unsaved = asyncio.Event()
        self._finishing: dict[str, Quiet] = {}
        self._told_to_finish = asyncio.Event()
        self._capabilities = settings.capabilities or frozenset(
            name for name, kind in KINDS.items() if not kind.serves_models and library_of(name) != "missing"
        )

    # ── with the daemon ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def restore(self) -> None:
        """Serve again what was served before the container was restarted, as far as that needs nobody else. The daemon is ready afterwards."""
        try:
            await asyncio.to_thread(self._cache.sweep)
        except OSError as error:
            text = f"no model can be fetched, because {self._settings.artifacts_dir} cannot be written: {error.strerror}"
            self._events.emit("cluster", "", text, code="artifacts")
        remembered = await asyncio.to_thread(memory.recall, self._settings.state_dir)
        if remembered is None:
            return
        self._orders = Orders(remembered.models, remembered.epoch)
        count = await self._shelf.restore(remembered.models, remembered.proven, self._cache)
        text = f"{count} of {len(remembered.models)} models that were wanted before the restart are here, and served without asking anybody"
        self._events.emit("cluster", "", text, models=count, code="restored")

    async def start(self, http_port: int, grpc_port: int | None) -> None:
        """The daemon is ready."""
        self._ports = http_port, grpc_port
        self._events.listeners.append(self._heard)
        try:
            await self._drain.listen()
        except OSError as error:
            text = f"{self._settings.socket} cannot be listened on ({error.strerror}): `wakeful cluster drain` has nobody to ask"
            self._events.emit("cluster", "", text, code="socket")
        if self._orders.known:
            self._shelf.want(self._orders.models, ())
        self._spawn(self._look_now_and_then())
        self._spawn(self._save_when_changed())
        self._spawn(self._let_go_when_quiet())
        self._spawn(self._attend())

    async def _attend(self) -> None:
        try:
            await self._link.run()
        finally:
            self._drain.close()
            await self._fetcher.close()

    # ── what the controller says ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, message: ToAgent) -> None:
        match message:
            case Adopt():
                if why := self._orders.adopt(message):
                    raise Hangup(f"it is not obeyed: {why}")
                self._watch.forget()
                self._unsaved.set()
            case Desired():
                self._obey(message)
            case Released():
                self._drain.released = True
            case Refused():
                raise Hangup(message.why)

    def _obey(self, message: Desired) -> None:
        heard = self._orders.hear(message)
        if heard is Heard.OUTDATED:
            raise Hangup(f"it is not obeyed: it leads by epoch {message.epoch}, and {self._orders.epoch} was obeyed before")
        if heard is Heard.MISSED:
            raise Hangup("a change was missed, so everything is asked for again")
        self._shelf.want(self._orders.models, message.models)
        self._link.wake.set()  # that it was heard is news
        self._told_to_finish.set()
        self._unsaved.set()

    # ── what the controller is told ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hello(self) -> Hello:
        held = self._held()
        self._told = Told(held, self._uses)
        self._dirty.clear()
        self._outbox = [DrainAsked()] if self._drain.since is not None else []
        settings, (http_port, grpc_port) = self._settings, self._ports
        limits = {"lag_threshold": settings.lag_threshold, "inactive": settings.inactive}
        return Hello(
            PROTOCOL, settings.pod, settings.pod_uid, settings.server, http_port, grpc_port, sorted(self._capabilities),
            self._engine.supervisor.budget, __version__, self._orders.epoch, held, {name: used for name, used in self._uses.items() if name in held},
            {name: limit for name, limit in limits.items() if limit is not None}, self._read_token(), seen=0,
        )

    def _read_token(self) -> str:
        """It is renewed while the pod lives."""
        if self._settings.token_file is None:
            return ""
        try:
            return self._settings.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            log.warning("the token that shows who this is cannot be read: %s", error)
            return ""

    def _news(self) -> list[FromAgent]:
        messages, self._outbox = self._outbox, []
        dirty, self._dirty = self._dirty, set()
        if (report := self._told.news({name: self._held_of(name) for name in dirty}, self._uses, self._orders.seen)) is not None:
            messages.insert(0, report)
        return messages

    def _held(self) -> dict[str, HeldNow]:
        return {name: held for name in self._shelf.places if (held := self._held_of(name)) is not None}

    def _held_of(self, name: str) -> HeldNow | None:
        place = self._shelf.places.get(name)
        if place is None:
            return None
        asleep = not any(model.group.replicas for model in self._repository.registry.versions(name))
        return place.held(self._footprints.get(name, 0), self._shelf.progress(name, monotonic()), asleep=asleep)

    def _say(self, *messages: FromAgent) -> None:
        if self._link.connected:
            self._outbox.extend(messages)
            self._link.wake.set()

    def _changed(self, name: str) -> None:
        """Something of a model may have to be told, or written down."""
        self._dirty.add(name)
        self._link.wake.set()
        self._unsaved.set()

    def _drain_asked(self) -> None:
        self._say(DrainAsked())

    def _left(self) -> int:
        return sum(place.served is not None and not (place.wanted is not None and place.wanted.finish) for place in self._shelf.places.values())

    # ── looking at models ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _models(self, name: str) -> list[Model]:
        """Those that callers reach under the name, and those that finish their work."""
        leaving = self._repository.unregistered
        return [*self._repository.registry.versions(name), *([model for model in leaving if model.id == name] if leaving else ())]

    def _heard(self, kind: str, key: str, text: str) -> None:
        """An event of the daemon: if it is about one of our models, it may not be as it was."""
        name = key.partition(":")[0]
        place = self._shelf.places.get(name)
        if place is None or place.served is None:
            return
        if kind == "restart":
            self._deaths.add(name, monotonic(), text)
        if kind in ("load", "unload"):
            self._dirty.add(name)  # it may sleep now, or be awake
            self._link.wake.set()
        if kind in ("load", "unload", "evict", "restart", "refuse"):
            asyncio.get_running_loop().call_soon(self._examine, name)

    def _examine(self, name: str) -> None:
        """Does it serve? A reload may have failed that nobody but its callers has heard of."""
        place = self._shelf.places.get(name)
        if place is None or place.served is None:
            self._deaths.forget(name)
            return
        models = self._repository.registry.versions(name)
        failed = next((model.backoff.error for model in models if model.backoff.error is not None and not model.group.ready()), None)
        ailing = f"it was loaded before, and does not load now: {failed.message}" if failed else self._deaths.verdict(name, monotonic())
        if ailing != place.ailing:
            place.ailing = ailing
            self._changed(name)

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.stats_period)
            await self._look()
            self._say(Report())  # that there is nothing new is news: the stream is alive

    async def _look(self) -> None:
        """Figures of the period that ends now, and what of it has to be told. A few models at a time, so that no request waits for it."""
        stats, calls = self._engine.metrics.by_name(), gauges.calls_by_model(self._engine)
        resident = self._engine.supervisor.resident_by_model()
        seen: dict[str, tuple[UseNow, float]] = {}
        thresholds: dict[str, Thresholds] = {}
        for number, (name, place) in enumerate(list(self._shelf.places.items())):
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
            if place.loading:
                self._dirty.add(name)  # how far it is
            if place.served is None:
                continue
            now = monotonic()
            models = self._models(name)
            reading = gauges.read(models, stats.get(name, ()), calls.get(name, ()), now)
            figures = use(self._readings.get(name, reading), reading, self._wall)
            footprint = gauges.footprint(models, resident, self._footprints.get(name, 0))
            if figures != self._uses.get(name) or footprint != self._footprints.get(name):
                self._dirty.add(name)
            self._readings[name], self._uses[name], self._footprints[name] = reading, figures, footprint
            came = self._came.setdefault(name, now)
            seen[name] = figures, now - max(came, reading.last_used or came)
            if (wanted := place.wanted) is not None:
                thresholds[name] = Thresholds(wanted.lag_threshold, wanted.inactive)
            if place.ailing:
                self._examine(name)
        self._forget_all_but(seen)
        self._say(*self._watch.look(seen, thresholds))

    def _forget_all_but(self, seen: Mapping[str, object]) -> None:
        for known in (self._readings, self._uses, self._footprints, self._came):
            for name in [name for name in known if name not in seen]:
                del known[name]

    async def _let_go_when_quiet(self) -> None:
        """Models that were told to finish: when has nobody come for a second?"""
        while True:
            await self._told_to_finish.wait()
            await asyncio.sleep(QUIET_SECONDS)
            finishing = {
                name: place for name, place in self._shelf.places.items()
                if place.served is not None and place.wanted is not None and place.wanted.finish and not place.quiet
            }
            self._finishing = {name: quiet for name, quiet in self._finishing.items() if name in finishing}
            if not finishing:
                self._told_to_finish.clear()
            now, stats, calls = monotonic(), self._engine.metrics.by_name(), gauges.calls_by_model(self._engine)
            for name, place in finishing.items():
                reading = gauges.read(self._models(name), stats.get(name, ()), calls.get(name, ()), now)
                if self._finishing.setdefault(name, Quiet(now)).look(reading.arrived, reading.in_flight, now):
                    place.quiet = True
                    self._changed(name)

    # ── on disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _save_when_changed(self) -> None:
        """With it a restart of the container needs no controller."""
        told = ""
        saved: object = None
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(SAVE_SECONDS)
            self._unsaved.clear()
            state = self._orders.epoch, dict(self._orders.models), dict(self._shelf.proven)
            if not self._orders.known or state == saved:
                continue
            try:
                await asyncio.to_thread(memory.remember, self._settings.state_dir, *state)
                saved, told = state, ""
            except (OSError, RuntimeError) as error:
                if str(error) != told:
                    told = str(error)
                    text = f"what the cluster wants cannot be written down, so a restart will have to ask the controller: {told}"
                    self._events.emit("cluster", "", text, code="state")
