"""One model's life: asleep, waking, awake, failed. Ties its batches, its replicas and its room in memory together."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from wakeful.batching import parts
from wakeful.batching.batcher import Batcher
from wakeful.batching.lane import Lane
from wakeful.clock import monotonic
from wakeful.config.kinds import KINDS
from wakeful.config.settings import ModelSettings
from wakeful.errors import ExecutionFailed, OutOfMemory, Unavailable, WakefulError
from wakeful.inference import InferRequest
from wakeful.memory.forecast import Forecast
from wakeful.memory.supervisor import Standing, Supervisor
from wakeful.models.backoff import Backoff
from wakeful.models.culprits import Culprits
from wakeful.models.declared import disagreements
from wakeful.models.file import ModelFile
from wakeful.models.growth import Growth, Scene
from wakeful.models.interface import Interface
from wakeful.models.news import News
from wakeful.models.probing import Probing
from wakeful.models.restoring import Restoring
from wakeful.models.tenancy import Tenancy
from wakeful.models.waiters import Waiters
from wakeful.replicas import threads
from wakeful.replicas.group import ReplicaGroup
from wakeful.replicas.replica import Replica, State
from wakeful.replicas.routing import Router
from wakeful.runtime.messages import Load, Probed, Ready, Warmup
from wakeful.runtime.processes import Death, Processes
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import Gauges, ModelStats, UnloadReason
from wakeful.telemetry.units import show_seconds

STEADY_SECONDS = 60.0
"""A replica that lived so long was no part of a series of deaths."""
OOM_LOAD_TRIES = 2
"""Loads that may end out of memory, each after an eviction, before the model counts as failed."""


@dataclass(frozen=True)
class Surroundings:
    """What all models share."""

    processes: Processes
    supervisor: Supervisor
    events: Events
    cores: int
    wish_prepared: "Callable[[Model], None]"
    """Called with a model whose file has no prepared copy."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Runs what has to wait as a task of the daemon."""


class Model:
    """Every public method is called in the event loop; all state has this one writer."""

    def __init__(self, settings: ModelSettings, file: ModelFile, stats: ModelStats, surroundings: Surroundings) -> None:
        self.settings = settings
        self.id = settings.id
        self.key = settings.key
        self.version = settings.version or "1"
        """As callers name it; a model without versions has the first."""
        self.stats = stats
        self.file = file
        self.pinned = settings.life.pinned
        self.interface = Interface(settings, file)
        self.device = settings.runtime.device
        self.last_used: float | None = None
        self.spare = False
        """It was loaded to see whether it loads: it may be evicted at once until somebody asks for it."""
        self.backoff = Backoff()
        self.batcher = Batcher(settings.batching, Router(settings.replicas.routing).choose, stats, self)
        self._tenancy = Tenancy(self, surroundings.supervisor)
        self.group = ReplicaGroup(settings, surroundings.processes, self._tenancy, self)
        self._growth = Growth(settings.replicas, surroundings.supervisor.max_loaded)
        self._threshold = settings.replicas.queue_threshold
        self._around = surroundings
        self._lanes: dict[int, Lane] = {}
        """Replica number to lane."""
        self._until_awake = Waiters()
        self._until_asleep = Waiters()
        self._oom_loads = 0
        self._probing = Probing(surroundings.processes, surroundings.spawn, self._probed)
        self._culprits = Culprits()
        self._closed = False
        self._successor: Callable[[], Model] | None = None
        """Makes the model that takes this one's place once its replicas are gone."""
        self._leaving: UnloadReason | None = None
        """Why the model is being put to sleep by hand; None when it is not."""
        self._restoring = Restoring(self._restore)
        self._news = News(self.key, surroundings.events)
        self._interface_changed()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: InferRequest) -> None:
        """Queue a request and wake the model if it sleeps. Raises the error of a request that cannot be taken."""
        if self._closed:
            raise Unavailable(f"model {self.key} is being removed", unstarted=True)
        asleep = not self.group.replicas
        if asleep:
            self._look_at_file()
            self._check_backoff()
        if self.interface.validate is not None:
            self.interface.validate(request)
        if self._culprits:
            self._culprits.check(request)
        self.last_used = request.arrived
        self.batcher.submit(request)
        if asleep:
            self._wake()
        elif request.arrived >= self._growth.next_look and self.batcher.smallest_queue() > self._threshold:
            self._grow()

    def rouse(self) -> None:
        """Wake it if it sleeps: a request is on its way. Raises what keeps it from waking."""
        if not self.group.replicas and not self._closed:
            self._look_at_file()
            self._check_backoff()
            self._wake()

    def _look_at_file(self) -> None:
        """Before a model wakes: what is known of it belongs to its file, which may have been replaced or repaired."""
        if self.file.changed():
            self.backoff.clear()
            self._forget_file()

    def _forget_file(self) -> None:
        self.interface.forget()
        self._culprits.clear()
        self.batcher.adopt(self.batcher.take())
        self._interface_changed()

    def _interface_changed(self) -> None:
        """More is known of the model: what waits is looked at once more."""
        self.batcher.padder = self.interface.padder
        if safe_rows := self.file.known().safe_rows:
            self.batcher.limits.max_rows = min(self.batcher.limits.max_rows, safe_rows)
        if self.interface.validate is not None:
            self.batcher.regroup(self.interface.validate)

    def _check_backoff(self) -> None:
        """After a failed load, refuse until its pause is over."""
        error, left = self.backoff.error, self.backoff.left(monotonic())
        if error is not None and left > 0:
            raise type(error)(error.message, retry_after=left, unstarted=True)

    @property
    def waiting(self) -> int:
        return self.batcher.waiting

    @property
    def leaving(self) -> UnloadReason | None:
        """Why it is being put to sleep by hand, or for other settings; None: it is not."""
        return self._leaving

    # ── verbs ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Wake the model, and wait until it is ready and its batching is decided. Raises why it cannot be loaded."""
        if self._settled_awake():
            return
        if not self.group.replicas:
            self._look_at_file()
            self._check_backoff()
        awake = self._until_awake.join()  # before it wakes: what can never fit is refused at once
        self._wake()
        await awake

    async def unload(self, reason: UnloadReason = "manual") -> None:
        """Finish what waits and runs, then put the model to sleep. Requests that come meanwhile wait, and wake it again."""
        if not self.group.replicas:
            return
        self.batcher.held = True
        asleep = self._until_asleep.join()
        self._leaving = reason
        if reason == "manual":  # who asks for the model from here on wakes it again
            self._until_awake.fail(Unavailable(f"model {self.key} was put to sleep before it was ready", unstarted=True))
        self._restoring.cancel()
        self._leave_when_served()
        await asleep

    async def pin(self) -> None:
        """Load the model and keep it loaded."""
        self.pinned = True
        await self.load()

    async def unpin(self) -> None:
        self.pinned = False
        self.group.sweep()

    def _leave_when_served(self) -> None:
        """End the replicas of a model that is to sleep as soon as nothing is queued; they finish their runs."""
        if self._leaving is not None and not any(lane.queue.size for lane in self.batcher.lanes):
            self.group.end_all(self._leaving)

    def start_standing(self) -> None:
        """Load what the settings keep loaded: pinned models and those with a floor."""
        if self._stands and not self.group.replicas:
            self._wake()

    @property
    def _stands(self) -> bool:
        return not self._closed and (self.pinned or self.settings.replicas.min_replicas > 0)

    async def reload(self) -> None:
        """The file has changed. Work in hand is finished with the old one."""
        self.backoff.clear()
        await self.unload("config")
        if not self.group.replicas:
            self._forget_file()
            self.start_standing()

    async def replace(self, successor: "Callable[[], Model]") -> None:
        """The settings have changed. Work in hand is finished under the old ones; what waits by then, and what comes, is the successor's."""
        if self._closed:
            return
        self._successor = successor
        if self.group.replicas:
            await self.unload("config")
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """In one step, so that there are never two models of one name."""
        assert self._successor is not None
        self._closed = True
        self._restoring.cancel()
        model = self._successor()
        model.inherit(self)
        model.take_over(self.batcher.take())
        self._until_awake.fail(Unavailable(f"model {self.key} was given other settings before it was ready", unstarted=True))

    def inherit(self, before: "Model") -> None:
        """This one comes after another: what people and time have made of that holds for this."""
        self.last_used = before.last_used
        if before.pinned != before.settings.life.pinned:  # somebody has said so meanwhile
            self.pinned = before.pinned

    def take_over(self, waiting: list[InferRequest]) -> None:
        """Requests that waited for the model in whose place this one is."""
        self.batcher.adopt(waiting)
        if self.interface.validate is not None:
            self.batcher.regroup(self.interface.validate)
        if self.batcher.room.size:
            self._wake()
        else:
            self.start_standing()

    async def retire(self, heir: "Model") -> None:
        """Another version is asked in this one's place: answer whom this one has, then leave for good. Where no replica has them, those who did not
        ask for this very version are the heir's."""
        if not self.batcher.lanes:
            ours: list[InferRequest] = []
            theirs: list[InferRequest] = []
            for request in self.batcher.take():
                (ours if parts.outermost(request).addressed else theirs).append(request)
            for request in theirs:
                parts.outermost(request).version = heir.version
            heir.take_over(theirs)
            self.batcher.adopt(ours)
        while self.batcher.room.size and self.group.replicas:  # they wait for a replica, which takes them all, or fails them all
            with suppress(WakefulError):
                await self._until_awake.join()
        await self.close("config")

    async def close(self, reason: UnloadReason) -> None:
        """The model is removed: finish its work, take no more."""
        self._closed = True
        await self.unload(reason)
        self.batcher.fail_all(Unavailable(f"model {self.key} was removed", unstarted=True))
        if self.stats.read_gauges == self.gauges:  # else another one has its place
            self.stats.read_gauges = None

    def shut_down(self) -> None:
        """The daemon ends: give up what has not ended by itself."""
        self._restoring.cancel()
        self._closed = True
        self.batcher.fail_all(Unavailable("the server is stopping", unstarted=True))
        self.batcher.fail_running(Unavailable("the server has stopped before the run ended"))
        self.group.end_all("shutdown")

    # ── waking and growing ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        if not self.group.replicas and not self.batcher.held:
            self.group.start()

    def _grow(self) -> None:
        """The smallest queue is over the threshold: one more replica, if the policy agrees. Or one less, if the last one brought nothing."""
        if not self.batcher.lanes:  # the first one is on its way, and brings the others that the settings ask for
            return
        growing = self._growth.decide(self._scene())
        if growing.hold is not None:
            self._news.not_scaled(growing.hold)
        if growing.more:
            self._news.scaled(growing.reason, self.group.staying + growing.more)
            self.stats.scaling_steps["up"] += growing.more
            for _ in range(growing.more):
                self.group.start()
        if growing.back is not None:
            self._news.scaled(growing.back, self.group.staying - 1)
            self.group.end(self.group.ready()[-1], "no_gain")

    def _scene(self) -> Scene:
        supervisor, starting = self._around.supervisor, self.group.starting
        cores = None if self.device.startswith("cuda") else max(1, self._around.cores // max(1, self.settings.runtime.threads))
        queues = [lane.queue.size for lane in self.batcher.lanes] + [0] * starting
        stats = self.stats
        core_seconds = 0.0
        if cores is not None and len(queues) >= cores:  # only then is it asked for
            core_seconds = sum(replica.core_seconds() for replica in self.group.ready()) / max(1, self.settings.runtime.threads)
        return Scene(
            queues, starting, self.batcher.active, stats.batch_rows.sum, supervisor.loaded, cores, stats.run_seconds.count, self.batcher.costs.usual,
            core_seconds, not self._probing.under_way,
        )

    def load_order(self) -> Load:
        settings = self.settings.runtime
        known = self.file.known()
        single = self.settings.replicas.fixed == 1 or self.settings.replicas.max_replicas == 1
        count = threads.threads_for(settings.threads, self._around.cores, self.group.staying, known.lone_seconds, single)
        return Load(self.settings.backend, str(self.settings.path), settings.device, count, self.file.prepared_copy(), _warmup(self.settings))

    # ── the group's words ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def replica_ready(self, replica: Replica, message: Ready, *, first: bool) -> None:
        self.backoff.clear()
        self._oom_loads = 0
        self.device = message.device
        waiting = self.waiting
        if first:
            self._learn_signature(message)
            self.batcher.held = self._leaving is not None
        lane = self.batcher.open(replica)
        self._lanes[replica.number] = lane
        replica.on_done = partial(self.batcher.done, lane)
        replica.on_failed = partial(self.batcher.failed, lane)
        self._interface_changed()
        took = monotonic() - replica.created
        self.stats.load_seconds.observe(took)
        self._news.ready(replica, message, took, self._tenancy.waited(replica), waiting)
        if first:
            self._fill_up()
            if self.interface.undecided:
                self._probing.start(replica, self.file.identity)
            elif not self.interface.merges:
                self._news.batching(self.interface.verdict)
            if not message.prepared and self.settings.runtime.prepare == "auto" and KINDS[self.settings.backend].prepares:
                self._around.wish_prepared(self)
        self._tell_awake()
        self._leave_when_served()

    def _fill_up(self) -> None:
        """Start what `replicas` or `min_replicas` ask for beside the first."""
        wanted = self.settings.replicas.fixed or self.settings.replicas.min_replicas
        for _ in range(wanted - self.group.staying):
            self.group.start()

    def _restore(self) -> None:
        if self.group.ready():
            self._fill_up()
        else:
            self.start_standing()

    def replica_draining(self, replica: Replica) -> None:
        lane = self._lanes.get(replica.number)
        if lane is not None and not lane.closed:
            self.batcher.close(lane)

    def replica_died(self, replica: Replica, death: Death) -> None:
        self.stats.restarts[death.kind] += 1
        self._news.died(replica, death)
        lane = self._lanes.pop(replica.number, None)
        if lane is not None:
            self.batcher.lost(lane, death.text, out_of_memory=death.kind == "oom", crashed=death.crashed)
        if self._probing.holds_replica:
            self._probing.ended(replica, death.text)
        now = monotonic()
        if now - replica.ready_at > STEADY_SECONDS:
            self._restoring.forget_losses()
        if self._leaving is None:
            self._restoring.lost(ExecutionFailed(death.text), now)
        self._leave_when_served()
        self._after_leaving()

    def replica_gone(self, replica: Replica, reason: UnloadReason) -> None:
        self.stats.unloads[reason] += 1
        if replica.index:
            self.stats.scaling_steps["down"] += 1
        lane = self._lanes.pop(replica.number, None)
        if lane is not None:
            self.batcher.lost(lane, "its replica was ended")
        self._news.gone(replica, reason, 0 if self.group.replicas else replica.shared_bytes)
        self._after_leaving()

    def _after_leaving(self) -> None:
        """A replica has gone. After the last one the model sleeps, unless somebody waits or it is to be kept awake."""
        if self.group.replicas:
            return
        by_hand, self._leaving = self._leaving is not None, None
        self.batcher.held = False
        self.group.cancel_sweep()
        self._until_asleep.release()
        if self._successor is not None and not self._closed:
            self._hand_over()
        elif self._closed:
            self._until_awake.fail(Unavailable(f"model {self.key} was removed, or the server is stopping", unstarted=True))
        elif self.batcher.room.size or self._until_awake or (self._stands and not by_hand and not self._restoring.planned):
            self._look_at_file()
            self._wake()

    def start_failed(self, replica: Replica, error: WakefulError) -> None:
        if self.group.ready() or self.group.starting:
            self._news.not_scaled(f"#{replica.index} could not be added: {error.message}; going on with {self.group.staying}")
            self._growth.failed(error, monotonic())
            if self._leaving is None:
                self._restoring.lost(error, monotonic())
            return
        if self._successor is not None:
            self._after_leaving()
            return
        launched = replica.pid > 0  # else there was no room for it, and nobody has to go for that
        if launched and isinstance(error, OutOfMemory) and self._oom_loads < OOM_LOAD_TRIES and self._around.supervisor.relieve(self.key):
            self._oom_loads += 1
            self.stats.load_retries += 1
            self._wake()
            return
        self._leaving = None
        pause = self.backoff.failed(error, monotonic())
        self._restoring.after(pause)
        self._news.load_failed(error, pause)
        refusal = type(error)(error.message, retry_after=pause, unstarted=True)
        self.batcher.fail_all(refusal)
        self.batcher.held = False
        self._until_awake.fail(refusal)
        self._until_asleep.release()

    def replica_busy(self, replica: Replica) -> bool:
        lane = self._lanes.get(replica.number)
        return lane is None or lane.busy or self._probing.holds_replica

    # ── batching ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lane_idle(self, lane: Lane) -> None:
        replica = _replica_of(lane)
        if replica.state is State.READY:
            self.group.touched(replica)
            self._around.supervisor.look()
            self._leave_when_served()

    def memory_wanted(self) -> None:
        self._around.supervisor.relieve(self.key)

    def lane_stuck(self, lane: Lane, seconds: float) -> None:
        _replica_of(lane).condemn(Death("stuck", f"a run has lasted {show_seconds(seconds)} and nobody waits for it any more"))

    def lane_broken(self, lane: Lane) -> None:
        _replica_of(lane).condemn(Death("broken", "the model's process answered a run that it was not given"))

    def culprit_found(self, request: InferRequest, reason: str, *, crashed: bool) -> None:
        refused = ""
        if crashed:
            refused = self._culprits.add(parts.outermost(request), reason)
            asyncio.get_running_loop().call_soon(self.batcher.weed, lambda other: self._culprits.check(parts.outermost(other)))
        self._news.blamed(request, reason, refused)

    def rows_limited(self, rows: int) -> None:
        """A larger run had no memory: remember that, also for the next life."""
        self.batcher.limits.max_rows = min(self.batcher.limits.max_rows, rows)
        self.file.learn(safe_rows=self.batcher.limits.max_rows)

    def learn_from_file(self, message: Ready) -> None:
        """A process that only looked at the file has found its signature."""
        if self.interface.signature is None:
            self._learn_signature(message)

    def _learn_signature(self, message: Ready) -> None:
        self.interface.learn(message.signature, message.verdict)
        self.file.learn(signature=message.signature)
        foreign = self.settings.foreign
        if foreign is not None:
            self._news.declared_otherwise(disagreements(foreign, message.signature))

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        self._probing.ended(replica, message)

    def _probed(self, replica: Replica, result: Probed | str) -> None:
        """The self-test is over: requests are merged from now on, or the description says why not."""
        signature = self.interface.signature
        if isinstance(result, str):
            self._news.untested(result)
        elif signature is not None and self.file.identity == self._probing.identity:  # the model may sleep again by now
            self.file.learn(verdict=result.verdict, lone_seconds={1: result.lone_seconds} if replica.forkable else {})
            self.interface.learn(signature, result.verdict)
            self._news.tested(self.interface.verdict)
            self._interface_changed()
        elif self.interface.undecided and self._leaving is None and (ready := self.group.ready()):  # the file was replaced meanwhile
            self._probing.start(ready[0], self.file.identity)
        if replica.state is State.READY:
            self.group.touched(replica)
        self._tell_awake()

    def _settled_awake(self) -> bool:
        return bool(self.group.ready()) and not self._probing.under_way

    def _tell_awake(self) -> None:
        if self._settled_awake():
            self._until_awake.release()

    def standing(self, replica: Replica) -> Standing:
        """What makes this replica a better or worse victim when memory is short."""
        idle = replica.state is State.READY and not self.replica_busy(replica)
        residency = 0.0 if self.spare and self.last_used is None else self.settings.life.min_residency
        loaded, going = replica.state is State.READY, replica.state in (State.DRAINING, State.DEAD)
        return Standing(replica.last_done, idle, self.pinned, residency, loaded, going)

    def forecast(self) -> Forecast:
        """What would happen if it were asked for now, while it sleeps."""
        return self._tenancy.forecast(monotonic())

    def gauges(self) -> Gauges:
        """For the metrics of its name, once it is registered."""
        states: dict[str, int] = {}
        for replica in self.group.replicas:
            states[replica.state] = states.get(replica.state, 0) + 1
        return Gauges(states, self.waiting, self._around.supervisor.resident_of(self.key))


def _warmup(settings: ModelSettings) -> tuple[Warmup, ...]:
    return tuple(
        Warmup(one.data, one.rows, dict(one.sizes), dict(one.shapes), str(one.file or ""), one.count) for one in settings.warmup
    )


def _replica_of(lane: Lane) -> Replica:
    """What runs a lane of ours: the batcher knows only that it runs."""
    assert isinstance(lane.replica, Replica)
    return lane.replica
