"""The composition root: builds everything once, owns the one task group, and the order of starting and stopping."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from wakeful.clock import monotonic
from wakeful.config.cluster import cluster_keys
from wakeful.config.effective import bound_keys, differences, server_keys
from wakeful.config.kinds import library_of
from wakeful.config.load import is_exposed
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.service import ServiceSettings
from wakeful.config.settings import ClusterSettings, ModelSettings, PipelineSettings, Settings
from wakeful.engine import Engine
from wakeful.frontends.doors import Doors
from wakeful.frontends.http.server import url_of
from wakeful.frontends.streams.streams import Streams
from wakeful.frontends.tls import Certificate
from wakeful.insight import views, wording
from wakeful.insight.watch import About, Watch
from wakeful.memory import budget
from wakeful.memory.supervisor import Supervisor
from wakeful.models.errands import Errands
from wakeful.models.file import ModelFile
from wakeful.models.model import Model, Surroundings
from wakeful.models.pipelines.pipeline import Around, Pipeline
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.registry import Registry
from wakeful.models.repository import Repository
from wakeful.models.uploads import Uploads
from wakeful.prepared.cache import PreparedCache
from wakeful.prepared.knowledge import Knowledge
from wakeful.replicas.threads import usable_cores
from wakeful.runtime.messages import Confinement
from wakeful.runtime.processes import Processes
from wakeful.telemetry.events import Events
from wakeful.telemetry.logs import Log, capture_logging
from wakeful.telemetry.metrics import Metrics
from wakeful.telemetry.service import Service
from wakeful.telemetry.units import counted, show_seconds

if TYPE_CHECKING:
    from wakeful.cluster.agent.agent import Agent

log = logging.getLogger(__name__)

SAVE_SECONDS = 30.0
"""What was learnt is written to disk this often."""
CERTIFICATE_SECONDS = 1.0
"""The certificate's files are looked at this often."""
GC_THRESHOLD = (20_000, 20, 50)
"""Requests leave no cycles behind, so the collector may look more rarely; it took a tenth of the CPU of small requests."""
LAST_SECONDS = 1.0
"""For the last answers to go out and the replicas to end."""
POLL_SECONDS = 0.02
"""While stopping: how often the remaining work is counted."""


class App:
    """One daemon. `run` is its whole life."""

    def __init__(
        self, settings: Settings, started: float, reread: Callable[[], Settings], certificate: Certificate | None = None,
        service: ServiceSettings | None = None,
    ) -> None:
        """`reread` reads the configuration again and raises ConfigError if it has become wrong. `service`: who wants to hear of the daemon."""
        self.settings = settings
        self._started = started
        self._reread = reread
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._apply_asked = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.log = Log(format=settings.server.log_format)
        capture_logging(self.log)
        self.events = Events(self.log)
        self.metrics = Metrics(self._log_request if settings.server.log_requests else None)
        self.registry = Registry()
        self.knowledge = Knowledge(settings.cache.directory)
        self.cache = PreparedCache(settings.cache.directory, settings.cache.limit)
        machine = budget.read_memory()
        self._group_kill = budget.group_kill()
        self.supervisor = Supervisor(
            budget.resolve_budget(settings.memory.limit, machine), settings.memory.max_loaded_models, budget.read_memory, self.events,
            budget.margin(machine, self._group_kill is not None), limited=settings.server.workers.memory is not None,
        )
        self.cores = usable_cores(budget.cpu_quota(), len(os.sched_getaffinity(0)))
        confinement = Confinement(**asdict(settings.server.workers))
        self.processes = Processes(lambda: budget.oom_kills() or 0, self._nursery_lost, confinement, settings.secret_variables, self._printed)
        self.errands = Errands(self.processes, self.supervisor, self.cache, self.events, self.cores)
        self.surroundings = Surroundings(self.processes, self.supervisor, self.events, self.cores, self.errands.wish_prepared, self._spawn)
        self.repository = Repository(settings, self.registry, self._make_model, self.events)
        self.uploads = Uploads(self.repository, self.registry, self.errands, self.events)
        self.pipelines = Pipelines(self._make_pipeline, self.events)
        self.engine = Engine(
            self.registry, self.pipelines, self.supervisor, self.metrics, self.events, self.errands.inspect, self.repository.refresh, self.uploads,
        )
        self.watch = Watch(
            self.engine,
            About(lambda: self.settings, self.cores, machine, self._group_kill, self.processes.nurseries, self.processes.broken, started),
        )
        self.doors = Doors(self.engine, self._spawn, settings, certificate, self.watch)
        self.streams = Streams(self.engine, settings.server, self._spawn)
        self.agent = None if settings.cluster is None else self._make_agent(settings.cluster)
        self._certificate = certificate
        self.service = Service(service or ServiceSettings(), self._status)
        self.metrics.read_budget = lambda: self.supervisor.budget
        self.metrics.read_thrashing = lambda: self.supervisor.thrash.count
        self.metrics.read_oldest_load = self.supervisor.oldest_load
        self.metrics.read_followers = lambda: self.watch.streams
        self.metrics.read_dropped_lines = lambda: self.log.dropped

    def _make_agent(self, settings: ClusterSettings) -> "Agent":
        from wakeful.cluster.agent.agent import Agent  # noqa: PLC0415 - imports gRPC, and a daemon on its own needs none of it

        return Agent(settings, self.engine, self.repository, self._spawn)

    def _make_model(self, settings: ModelSettings) -> Model:
        file = ModelFile(settings.path, settings.backend, library_of(settings.backend), self.knowledge, self.cache)
        return Model(settings, file, self.metrics.model(settings.id, settings.version), self.surroundings)

    def _make_pipeline(self, settings: PipelineSettings) -> Pipeline:
        return Pipeline(settings, self.metrics.model(settings.id), Around(self.engine, self.events, self._spawn))

    def _status(self) -> str:
        """In a few words, for the service manager."""
        counts = views.counts_of([views.state_of(model) for model in self.registry])
        return ", ".join(f"{counts[name]} {name}" for name in ("awake", "asleep", "failed") if counts[name] or name != "failed")

    def _log_request(self, model: str, protocol: str, outcome: str, seconds: float) -> None:
        figures = {"protocol": protocol, "outcome": outcome, "seconds": seconds}
        self.log.write("request", model, f"{protocol} {outcome} in {show_seconds(seconds)}", figures)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what has to wait as a task of the daemon; it is cancelled when the daemon has finished. Its failure is its own."""
        assert self._group is not None
        task = self._group.create_task(_alone(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _nursery_lost(self, backend: str, reason: str) -> None:
        self.events.emit("restart", "", f"the nursery for {backend} has died ({reason}) and is started again; replicas live on", cause=reason)

    def _printed(self, backend: str, line: str) -> None:
        """By a process with models, or the library in it."""
        self.log.write("print", backend, line)

    # ── the three verbs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, http: socket.socket, grpc: socket.socket | None = None) -> int:
        """Serve at these addresses until a signal says stop. Returns the number of requests that had to be cut off for that."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)
        async with asyncio.TaskGroup() as self._group:
            await self._start(http, grpc)
            self._spawn(self.errands.run())
            self._spawn(self.watch.run())
            self._spawn(self._save_now_and_then())
            self._spawn(self._reload_when_asked())
            self._spawn(self._apply_when_asked())
            if self.service.wanted:
                self._spawn(self.service.run())
            if self._certificate is not None:
                self._spawn(self._renew(self._certificate))
            await self._stop.wait()
            cut = await self._finish()
            for task in self._tasks:
                task.cancel()
        self.processes.stop()
        self.knowledge.save()
        self.cache.close()
        self.events.emit("stop", "", "stopped")
        self.log.close()
        self.service.close()
        return cut

    async def _start(self, http: socket.socket, grpc: socket.socket | None) -> None:
        for backend in {settings.backend for settings in self.settings.models} | {self.settings.defaults.backend}:
            self.processes.warm(backend)
        self.repository.register_all()
        self.uploads.sweep()
        self.pipelines.register_all(self.settings.pipelines)
        self.pipelines.check()
        self._tell_oddities()
        if self.agent is not None:
            await self.agent.restore()
        grpc_port: int | None = None if grpc is None else grpc.getsockname()[1]
        self.watch.url, self.watch.grpc_port = url_of(http, secure=self._certificate is not None), grpc_port
        await self.doors.start(http, grpc)
        gc.collect()
        gc.freeze()  # what is here stays: later collections need not look at it
        gc.set_threshold(*GC_THRESHOLD)
        self.engine.condition.ready = True
        for model in self.registry:
            model.start_standing()
        await self.streams.apply(self.settings.streams)
        if self.agent is not None:
            await self.agent.start(http.getsockname()[1], grpc_port)
        self.service.ready()
        count = len(self.registry)
        url, took = self.watch.url, show_seconds(monotonic() - self._started)
        where = url if grpc_port is None else f"{url}, gRPC on port {grpc_port}"
        self.events.emit(
            "ready", "", f"{where}; {counted(count, 'model')}, in {took}; Ctrl-C stops", port=http.getsockname()[1],
            grpc_port=grpc_port, grpc_library=self.doors.grpc_library, models=count, cores=self.cores, budget=self.supervisor.budget,
        )

    def _tell_oddities(self) -> None:
        """What the configuration says and probably does not mean, and what it asks for in vain."""
        self._tell_problems(self.settings.warnings)
        if self._group_kill:
            text, hint = wording.of_group_kill(self._group_kill), self._group_kill.hint
            self.events.emit("config", "", f"{text}; hint: {hint}", code="group_kill", margin=self.supervisor.margin, hint=hint)

    def _tell_problems(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.events.emit("config", "", problem.render(), code=problem.code, key=problem.key)

    async def _finish(self) -> int:
        """Outside in: not ready, serve on for the lame-duck time, close the doors, finish the work, end the replicas. Every wait has an end.

        Returns the number of requests that were cut off.
        """
        server = self.settings.server
        self.watch.stopping = True
        self.engine.condition.ready = False
        self.service.stopping(f"stopping: {self.doors.busy} requests are being answered")
        self.streams.stop()
        if self.doors.busy or server.lame_duck:
            self.events.emit("stop", "", f"stopping: {self.doors.busy} requests are being answered, for {server.grace:g} s at most")
        await self._wait(lambda: False, server.lame_duck)
        self.doors.close_listeners()
        closed = monotonic()
        await self._wait(lambda: self._done and monotonic() - closed > self.doors.parting, server.grace)
        if self.streams.busy:
            self.events.emit("stop", "", f"{self.streams.busy} messages stay with their brokers, for whoever takes them next")
        self.streams.abandon()
        self.engine.condition.draining = True
        cut = self.doors.busy
        if cut:
            self.events.emit("stop", "", f"{cut} requests are cut off after {show_seconds(monotonic() - closed)}", cut=cut)
        self.pipelines.shut_down()
        models = [*self.registry, *self.repository.unregistered]
        for model in models:
            model.shut_down()
        await self._wait(lambda: not self.doors.busy and not any(model.group.replicas for model in models), LAST_SECONDS)
        await self.doors.close()
        return cut

    @property
    def _done(self) -> bool:
        return self.doors.busy == 0 and not self.streams.open

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done`, for at most `seconds`. Each further signal ends one wait."""
        self._hurry.clear()
        end = monotonic() + seconds
        while not done() and monotonic() < end and not self._hurry.is_set():  # noqa: ASYNC110 - what it waits for is counted, not told
            await asyncio.sleep(POLL_SECONDS)

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _reload_when_asked(self) -> None:
        """Signals that come while one is obeyed are one."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            self.service.reloading()
            try:
                await self._reload()
            except Exception:
                log.exception("the configuration could not be read again")
            if not self._apply_asked.is_set():
                self.service.ready()

    async def _apply_when_asked(self) -> None:
        """Exchange models one configuration after the other; what was asked for meanwhile is one change."""
        while True:
            await self._apply_asked.wait()
            self._apply_asked.clear()
            try:
                self.pipelines.apply(self.settings.pipelines)
                await self.repository.apply(self.settings)
                self.pipelines.check()
                await self.streams.apply(self.settings.streams)
            except Exception:
                log.exception("the new configuration could not be applied to all models and streams")
            self.service.ready()
            count = len(self.registry)
            self.events.emit("config", "", f"the configuration was applied: {counted(count, 'model')}", models=count, code="reloaded")

    async def _reload(self) -> None:
        """SIGHUP: go over to the configuration as it is now, if it is right. What only a start can change is told, and stays."""
        try:
            settings = await asyncio.to_thread(self._reread)
        except ConfigError as error:
            self._tell_problems(error.problems)
            self.events.emit("config", "", "the configuration is wrong, so nothing has changed; mend it and send SIGHUP again", code="not_reloaded")
            return
        if self._stop.is_set():
            return
        server = self.settings.server
        if is_exposed(server.host, settings.auth, insecure=server.insecure):
            text = f"nothing has changed: other machines reach {server.host}, where this daemon listens, and there would be no authentication"
            self.events.emit("config", "", text, code="not_reloaded")
            return
        self._tell_problems(settings.warnings)
        old, self.settings = self.settings, replace(
            settings, server=self.settings.server, memory=self.settings.memory, cache=self.settings.cache, cluster=self.settings.cluster,
        )
        if kept := differences(_fixed_keys(self.settings), _fixed_keys(settings)):
            text = f"{', '.join(kept)} changed, which takes a restart: the old values stay"
            self.events.emit("config", "", text, code="restart")
        if exposed := settings.secret_variables - old.secret_variables:
            self.processes.hide(exposed)
            text = f"processes with models that run already have seen {', '.join(sorted(exposed))}; a restart keeps it from all of them"
            self.events.emit("config", "", text, code="restart")
        if old.auth != settings.auth:
            self.doors.admit_by(settings.auth)
            text = "callers need other keys or tokens from now on" if settings.auth.enabled else "callers need no key any more: all may do everything"
            self.events.emit("config", "", text)
        self._apply_asked.set()

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            try:
                await asyncio.to_thread(self.knowledge.save)
            except RuntimeError as error:  # there is no room for another thread: next time
                log.warning("what was learnt could not be saved: %s", error)

    async def _renew(self, certificate: Certificate) -> None:
        """Look at the certificate's files now and then. What is wrong with them is told once."""
        told = ""
        while True:
            await asyncio.sleep(CERTIFICATE_SECONDS)
            try:
                if certificate.renew():
                    self.events.emit("config", "", "the certificate was renewed: new connections get the new one", code="certificate")
                told = ""
            except OSError as error:
                if str(error) != told:
                    told = str(error)
                    text = f"the certificate or its key has changed, and the old ones stay until the new ones fit together: {told}"
                    self.events.emit("config", "", text, code="certificate")


def _fixed_keys(settings: Settings) -> dict[str, Any]:
    """What only a start can change."""
    return server_keys(settings) | bound_keys(settings) | cluster_keys(settings.cluster)


async def _alone(coroutine: Coroutine[Any, Any, None]) -> None:
    """A task group ends with the first failure in it; the daemon shall not."""
    try:
        await coroutine
    except Exception:
        log.exception("a task of the daemon has failed")
