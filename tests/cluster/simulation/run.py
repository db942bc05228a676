"""The controller's loop on a clock of its own: observe, plan, carry out, second by second."""

import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tests.cluster.simulation.ground import Api, Broken, Daemon, Events, Gateways
from tests.cluster.simulation.judge import Judge
from tests.cluster.simulation.pods import Pods
from tests.cluster.simulation.report import Report
from tests.cluster.simulation.shape import START, Shape
from tests.cluster.simulation.traffic import Traffic
from wakeful.cluster.controller.loop import GREETINGS
from wakeful.cluster.controller.observing import adopt
from wakeful.cluster.planning.apply import apply
from wakeful.cluster.planning.counts import clamp, effective_target, floor_of, is_derived
from wakeful.cluster.planning.effects import Drop, Effect, Put, Release, ScaleServer, SetTarget
from wakeful.cluster.planning.kept import restore_model
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.moves import target_of
from wakeful.cluster.planning.plan import affected, give_room, plan, seekers
from wakeful.cluster.planning.routing import desired, endpoints
from wakeful.cluster.planning.scaling import CALM
from wakeful.cluster.planning.world import Bounds, ModelEntry, Owner, ScaleLimits, Scaling, ServerEntry, ServerSpec, State, Use, World

PERIOD = 5
"""Seconds between two reports of an agent."""
TAKEOVER = 15.0
"""Seconds until another leader has the lease."""
RETURN = 7.0
"""Seconds in which agents find another leader: their longest pause, and a connection."""
TWICE = 1800
"""Seconds between two proofs that a plan leaves nothing to do."""
FIGURES = ScaleLimits()
LIMITS = Limits()
SELDOM = replace(LIMITS, judge=300.0, look=300.0)
"""Where the simulation itself finds the models whose count the rules could change."""


class Simulation:
    """One cluster of one Server."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.now = shape, float(START)
        self.rng = np.random.default_rng(shape.seed)
        self.report = Report(shape.seconds, shape.models)
        self.events, self.api = Events(), Api()
        self.server = ServerEntry(ServerSpec("triton", bounds=shape.server_bounds), hpa=not shape.scheduled)
        """As the API server has it."""
        self._specs = shape.specs()
        self._names = list(self._specs)
        self._index = {name: index for index, name in enumerate(self._names)}
        self._ranged = np.array([spec.bounds.ranged for spec in self._specs.values()])
        self._floors = np.array([floor_of(spec.bounds) for spec in self._specs.values()])
        self._copies, self._routed, self._targets = (np.zeros(shape.models) for _ in range(3))
        self._calm_since = np.full(shape.models, np.inf)
        self._traffic = Traffic(shape.models, shape.replicas, shape.seconds, self.rng)
        self._gateways = Gateways(self.rng, self.events, self._acknowledged)
        sizes = {name: int(self.rng.integers(50, 800)) << 20 for name in self._names}
        self.pods = Pods(self, sizes, self.events, lambda: self.now)
        self._judge = Judge(self.report, self._specs, self.pods.daemons)
        self._dirty: set[str] = set()
        self._leads = self._open = True
        self.world = self._new_world(self.now)
        self.pods.follow(self._count, boot=0.0)

    def run(self) -> Report:
        began = time.perf_counter()
        for second in range(self.shape.seconds):
            self.now = float(START + second)
            self.events.until(self.now)
            self._traffic.second(float(second), self._copies)
            self._judge.second(self.now, self._traffic, self._copies, self.world)
            if self._leads:
                self._hear_gateways()
                if second % PERIOD == 0:
                    self._hear_reports(second)
                self._pass()
                if second % TWICE == TWICE - 1 and self._open and self.now >= self.api.refuses_until:
                    self._prove_settled()
            self.api.second(self.now, self.world if self._leads else None)
        self._judge.end(self.world, self._copies, self.now)
        self.report.wall = time.perf_counter() - began
        self.report.writes, self.report.busiest = self.api.writes, self.api.busiest
        self.report.crowded, self.report.oldest = self.api.crowded, self.api.oldest
        return self.report

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lose_pod(self, uid: str) -> None:
        held = self.pods.lose(uid)
        self._judge.excuse(held, self.now + LIMITS.progress)
        for name in held:
            self._recount(name)

    def autoscale(self, count: int) -> None:
        """The HPA has written another count."""
        if not self.shape.scheduled:
            self.server = self.world.servers["triton"] = replace(self.server, spec=replace(self.server.spec, bounds=Bounds(count)))
            self.pods.follow(count)

    def kill_leader(self) -> None:
        """What it had not written is forgotten. Another one takes over."""
        if self._leads:
            self._leads = self._open = False
            self.report.leaders += 1
            self.api.forget_queue()
            for pod in self.pods.all.values():
                pod.agent = None
            self.events.at(self.now + TAKEOVER, self._lead)

    # ── a new leader ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lead(self, now: float) -> None:
        """Everything from the API server, and then from the agents."""
        self._leads = True
        self.world = self._new_world(now - 1e6)
        for name, status in self.api.statuses.items():
            restore_model(self.world.models[name], status)
        self.world.replicas.update(self.pods.all)
        self._calm_since[:] = np.inf
        for uid in self.pods.all:
            self.events.at(now + float(self.rng.uniform(0.5, RETURN)), lambda _, uid=uid: self.ready(uid))  # type: ignore[misc]

    def _new_world(self, changed: float) -> World:
        models = {name: ModelEntry(spec, changed=changed) for name, spec in self._specs.items()}
        return World(models, {"triton": replace(self.server, fits_since=None)}, gateways=2, led_since=self.now)

    def _try_to_open(self) -> None:
        """All agents are heard, or it takes too long: gateways, which have kept their tables, are told where requests go."""
        waits = any(pod.ready and not pod.lost and pod.agent is None for pod in self.world.replicas.values())
        if not waits or self.now >= self.world.led_since + GREETINGS:
            self._open = True
            self._dirty.update(self._names)
            for name in self._names:
                self._tell(name)

    # ── what the leader hears ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self, uid: str) -> None:
        """An agent says hello."""
        pod, daemon = self.pods.all.get(uid), self.pods.daemons.get(uid)
        if self._leads and pod is not None and daemon is not None and daemon.alive and pod.ready and pod.agent is None:
            pod.agent = daemon.hello(self.now)
            adopted = adopt(self.world, uid, self.now)
            self._dirty |= adopted | affected(self.world, uid)
            for name in sorted(adopted) if self._open else ():
                self._tell(name)
            daemon.obey(desired(self.world, uid), self.now)

    def touched(self, uid: str) -> None:
        """A pod has come, leaves or is gone."""
        if uid in self.pods.all:
            self.world.replicas[uid] = self.pods.all[uid]
        elif self.world.replicas.pop(uid, None) is not None:
            for name in self.world.models:
                if uid in self._gateways.table(name):
                    self._recount(name)
        self._dirty |= affected(self.world, uid)

    def lost(self, uid: str) -> None:
        held = {name for name, entry in self.world.models.items() if uid in entry.placements}
        self.touched(uid)
        if self._leads and self._open:
            self._pass()
            self._judge.replanned(held, self.world, self.now)

    def told(self, daemon: Daemon, name: str) -> None:
        """A daemon has another state of a model."""
        self._recount(name)
        replica = self.world.replicas.get(daemon.uid)
        if not self._leads or replica is None or replica.agent is None:
            return
        held = daemon.held.get(name)
        if held is None:
            replica.agent.held.pop(name, None)
            replica.agent.use.pop(name, None)
        else:
            replica.agent.held[name] = held
        self._dirty.add(name)

    def sends(self, name: str, uid: str) -> bool:
        return self._gateways.sends(name, uid)

    def _acknowledged(self, name: str) -> None:
        self._recount(name)
        if self._leads:
            self.world.routing[name] = self._gateways.routing(name)
            self._dirty.add(name)

    def _hear_gateways(self) -> None:
        """Requests came for models at zero."""
        for index in np.flatnonzero(self._traffic.is_unserved & (self._floors == 0)):
            entry = self.world.models[self._names[index]]
            if entry.wanted_until < self.now + FIGURES.hold / 2:
                entry.wanted_until = self.now + FIGURES.hold
                self._dirty.add(self._names[index])

    def _hear_reports(self, second: int) -> None:
        """All agents say how much their models are used; who may have to be looked at is found for all models at once."""
        lag, busy = self._traffic.period()
        copies = np.maximum(self._copies, 1)
        last_used = np.where(self._traffic.last_used > 0, self._traffic.last_used + START, 0.0)
        each = zip(self._names, (lag / copies).tolist(), (busy / copies).tolist(), last_used.tolist(), strict=True)
        for name, lag_each, busy_each, last in each:
            use = Use(0, 0, lag_each, busy_each, last)
            for uid in self._gateways.table(name):
                replica = self.world.replicas.get(uid)
                if replica is not None and replica.agent is not None and self.pods.daemons[uid].alive:
                    replica.agent.use[name] = use
        if self.shape.eager:
            self._dirty.update(self._names)
            return
        fewer = np.minimum(self._routed, self._targets - 1)
        calm = (fewer >= 1) & (lag <= CALM * FIGURES.lag_threshold * fewer) & (busy <= FIGURES.busy * fewer)
        due = (lag >= 0.9 * FIGURES.lag_threshold * copies) | (calm != np.isfinite(self._calm_since))
        due |= self.now - self._calm_since >= FIGURES.down_window
        due |= (self._targets > self._floors) & (second - self._traffic.last_used >= FIGURES.inactive)
        self._dirty.update(self._names[index] for index in np.flatnonzero(due & self._ranged))

    def _recount(self, name: str) -> None:
        """Copies that serve, as the gateways see it."""
        serving = 0
        for uid in self._gateways.table(name):
            daemon = self.pods.daemons.get(uid)
            held = daemon.held.get(name) if daemon is not None and daemon.alive else None
            serving += held is not None and bool(held.served)
        self._copies[self._index[name]] = serving

    # ── one pass ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pass(self) -> None:
        if not self._open:
            self._try_to_open()
        if self._open:
            dirty, self._dirty = self._dirty, set()
            began = time.perf_counter()
            effects = plan(self.world, frozenset(dirty), self.now, LIMITS if self.shape.eager else SELDOM)
            self.report.plans.append(time.perf_counter() - began)
            if effects:
                self._carry_out(effects)

    def _carry_out(self, effects: list[Effect]) -> None:
        effects = self._written_ahead(effects)
        models = sorted({effect.model for effect in effects if isinstance(effect, Put | Drop | SetTarget)})
        before = {name: dict(self.world.models[name].placements) for name in models}
        apply(self.world, effects)
        if give_room(effects):
            self._dirty.update(seekers(self.world))
        self._judge.puts(effects, before, self.world, self.now)
        for name in models:
            entry, index = self.world.models[name], self._index[name]
            self._routed[index] = sum(placement.state is State.ROUTED for placement in entry.placements.values())
            self._targets[index] = target_of(entry)
            self._tell(name)
        for effect in effects:
            if isinstance(effect, Release):
                self.pods.end(effect.replica)
            elif isinstance(effect, ScaleServer):
                self._scale_server(effect.scaling)
            elif (name := getattr(effect, "name", "")) in self._index:
                since = self.world.models[name].calm_since
                self._calm_since[self._index[name]] = np.inf if since is None else since
        self._tell_agents(effects)

    def _written_ahead(self, effects: list[Effect]) -> list[Effect]:
        """As the loop does: without those whose target had to be written first and was not."""
        refused = set()
        for effect in effects:
            if isinstance(effect, SetTarget):
                entry, target = self.world.models[effect.model], effect.scaling.target
                derived = is_derived(entry.spec.bounds, entry.scaling, entry.hpa, target)
                if derived or self.api.write_ahead(replace(entry, scaling=effect.scaling), self.world, self.now):
                    self._judge.step(effect, self.now, target if entry.scaling is None else entry.scaling.target)
                else:
                    refused.add(effect.model)
        self.report.refused += len(refused)
        self._dirty |= refused
        return [effect for effect in effects if getattr(effect, "model", getattr(effect, "name", "")) not in refused]

    def _tell(self, name: str) -> None:
        """Gateways and the API server hear of a model."""
        self._gateways.send(name, endpoints(self.world, self.world.models[name]), self.now)
        self.world.routing[name] = self._gateways.routing(name)
        self.api.offer(name, self.now)

    def _tell_agents(self, effects: Iterable[Effect]) -> None:
        changed = {effect.placement.replica if isinstance(effect, Put) else effect.replica for effect in effects if isinstance(effect, Put | Drop)}
        for uid in sorted(changed & self.pods.daemons.keys()):
            replica = self.world.replicas.get(uid)
            if replica is not None and replica.agent is not None and self.pods.daemons[uid].alive:
                self.pods.daemons[uid].obey(desired(self.world, uid), self.now)

    # ── the Server ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _count(self) -> int:
        return effective_target(self.server.spec.bounds, self.server.scaling, self.server.hpa)

    def _scale_server(self, scaling: Scaling) -> None:
        before = self._count
        self.server = replace(self.server, scaling=scaling)
        if self._count != before:
            if self._count != clamp(self.server.spec.bounds, self._count) or scaling.owner is not Owner.SCHEDULER:
                raise Broken(f"{self.now:.0f} s: the Server is to have {self._count} replicas, out of {self.server.spec.bounds}")
            self.report.server_steps.append((self.now, self._count))
            self.pods.follow(self._count)

    def _prove_settled(self) -> None:
        """The same world twice: no second effect."""
        for _ in range(2):
            self._carry_out(plan(self.world, frozenset(self._names), self.now, LIMITS))
        effects = plan(self.world, frozenset(self._names), self.now, LIMITS)
        if effects:
            raise Broken(f"{self.now:.0f} s: a plan of what is planned has effects: {effects[:5]}")
