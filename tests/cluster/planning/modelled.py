"""A cluster without processes: pods whose agents do what they are told, gateways that acknowledge late, and the planner between them.

Whatever is unloaded while a gateway may still send requests there, and whatever is routed where nothing answers, fails the test at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from wakeful.cluster.planning.apply import apply
from wakeful.cluster.planning.effects import Effect, Mark, Note, Put
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.moves import target_of
from wakeful.cluster.planning.plan import affected, give_room, plan, seekers
from wakeful.cluster.planning.revisions import respecify
from wakeful.cluster.planning.routing import desired, endpoints
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    Held,
    ModelEntry,
    ModelSpec,
    Placement,
    Replica,
    Routing,
    ServerEntry,
    ServerSpec,
    State,
    Use,
    World,
)

MIB, GIB = 1024**2, 1024**3


@dataclass
class Loaded:
    """A model in a modelled daemon."""

    revision: str
    ready_at: float
    serves: str = ""
    failed: bool = False
    finish_since: float | None = None


@dataclass
class Pod:
    """A daemon with its agent."""

    uid: str
    capacity: int
    capabilities: frozenset[str]
    models: dict[str, Loaded] = field(default_factory=dict)
    use: dict[str, Use] = field(default_factory=dict)

    def held(self, name: str, now: float) -> Held:
        loaded = self.models[name]
        if loaded.failed:
            return Held("failed", loaded.revision, error="it does not load", serves=loaded.serves)
        if now < loaded.ready_at:
            return Held("loading", loaded.revision, serves=loaded.serves)
        if loaded.finish_since is None:
            return Held("ready", loaded.revision)
        return Held("quiet" if now - loaded.finish_since >= 1 else "finishing", loaded.revision)


@dataclass
class Gateway:
    """What it uses, and what it was sent and has not yet taken."""

    table: dict[str, frozenset[str]] = field(default_factory=dict)
    coming: list[tuple[float, str, frozenset[str]]] = field(default_factory=list)

    def may_send(self, name: str) -> frozenset[str]:
        return self.table.get(name, frozenset()).union(*(uids for _, model, uids in self.coming if model == name))

    def surely_sends(self, name: str) -> frozenset[str]:
        return self.table.get(name, frozenset()).intersection(*(uids for _, model, uids in self.coming if model == name))


def only_tells(effect: Effect) -> bool:
    """Why a model is short may have another reason once others have their places."""
    return isinstance(effect, Mark) and effect.fields.keys() <= {"short", "limited", "lacking", "lacking_since"}


class Cluster:
    """World, daemons and gateways; time passes by `run`."""

    def __init__(self, gateways: int = 1, ack_delay: float = 0.0) -> None:
        self.world = World(gateways=gateways, led_since=-1000.0)
        self.now = 1000.0
        self.limits = Limits()
        self.pods: dict[str, Pod] = {}
        self.gateways = [Gateway() for _ in range(gateways)]
        self.ack_delay = ack_delay
        self.load_seconds: dict[str, float] = {}
        """By model; half a second for those that are not named."""
        self.fails: set[tuple[str, str]] = set()
        """(model or revision, pod): it does not load there; "*" for a pod: nowhere."""
        self.silent: set[str] = set()
        """Pods whose agent has no stream."""
        self.told: list[tuple[float, Effect]] = []
        self.dirty: set[str] = set()
        self.lot: int | None = None
        """Models of which something was heard that one plan looks at; None: all."""
        self._sent: dict[str, frozenset[str]] = {}
        self._lives = 0

    # ── what people and Kubernetes do ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def server(self, name: str = "triton", replicas: int = 1, capacity: int = GIB, *, overcommit: float = 1.0, bounds: Bounds | None = None) -> None:
        self.world.servers[name] = ServerEntry(ServerSpec(name, bounds=bounds or Bounds(replicas), overcommit=overcommit))
        for ordinal in range(replicas):
            self.start(f"{name}-{ordinal}", capacity)

    def start(self, pod: str, capacity: int = GIB, capabilities: Iterable[str] = ("onnx",)) -> str:
        """A pod becomes ready, and its agent says hello. Returns its uid: another one in each life."""
        self._lives += 1
        uid = f"{pod}/{self._lives}"
        server, _, ordinal = pod.rpartition("-")
        agent = Agent(frozenset(capabilities), capacity, 8000, 8001, self.now)
        self.pods[uid] = Pod(uid, capacity, agent.capabilities)
        self.world.replicas[uid] = Replica(uid, pod, server, int(ordinal), f"10.0.0.{self._lives}", ready=True, agent=agent, http_port=8000)
        self.changed(uid)
        return uid

    def model(self, name: str, count: int | None = 1, memory: int | None = 100 * MIB, revision: str = "r1", **spec: object) -> ModelEntry:
        """Created, or its spec replaced."""
        bounds = spec.pop("bounds", None) or Bounds(count)
        new = ModelSpec(name, f"s3://models/{name}/{revision}", revision, memory=memory, bounds=bounds, **spec)  # type: ignore[arg-type] # the test's own words
        entry = self.world.models.setdefault(name, ModelEntry(new))
        respecify(entry, new)
        entry.gone = False
        self.dirty.add(name)
        return entry

    def delete_model(self, name: str) -> None:
        self.world.models[name].gone = True
        self.dirty.add(name)

    def delete_pod(self, pod: str, grace: float = 110.0) -> None:
        """deletionTimestamp is set; the pod serves on until it is released."""
        uid = self.uid(pod)
        self.world.replicas[uid].leaving_by = self.now + grace
        self.changed(uid)

    def falter(self, pod: str, *, ready: bool, lost: bool) -> None:
        """Its node is not heard from, or is again. One that has lost it may still have its agent's stream: then it is not lost."""
        for uid, replica in self.world.replicas.items():
            if replica.pod == pod:
                replica.ready, replica.lost = ready, lost and not ready and replica.agent is None
                self.changed(uid)

    def kill(self, pod: str) -> None:
        """Gone without a word."""
        uid = self.uid(pod)
        touched = affected(self.world, uid)
        del self.world.replicas[uid], self.pods[uid]
        self.dirty |= touched

    def restart(self, pod: str) -> None:
        """Its container starts anew: the same uid, and nothing loaded."""
        uid = self.uid(pod)
        self.pods[uid].models.clear()
        self.report(uid)

    def changed(self, uid: str) -> None:
        self.dirty |= affected(self.world, uid)

    def uid(self, pod: str) -> str:
        return next(uid for uid, replica in self.world.replicas.items() if replica.pod == pod)

    # ── what happens by itself ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, seconds: float = 5.0, step: float = 0.25) -> "Cluster":
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.turn()
        return self

    def turn(self) -> None:
        """Agents act and report, gateways acknowledge, the planner decides."""
        for uid in self.pods:
            self.act(uid)
            self.report(uid)
        for gateway in self.gateways:
            self.acknowledge(gateway)
        self.decide()

    def act(self, uid: str) -> None:
        """An agent brings its daemon to what is desired, if it hears."""
        pod, replica = self.pods[uid], self.world.replicas[uid]
        if replica.pod in self.silent:
            return
        wanted = desired(self.world, uid)
        for name in [name for name in pod.models if name not in wanted]:
            self._unload(pod, name)
        for name, want in wanted.items():
            assert want.storage_uri == f"s3://models/{name}/{want.revision}"
            loaded = pod.models.get(name)
            if loaded is None or (loaded.revision != want.revision and loaded.serves != want.revision):
                serves = "" if loaded is None else self._serves(pod, name)
                failed = bool({(name, replica.pod), (want.revision, replica.pod), (name, "*"), (want.revision, "*")} & self.fails)
                pod.models[name] = loaded = Loaded(want.revision, self.now + self.load_seconds.get(name, 0.5), serves, failed)
            elif loaded.revision != want.revision:  # back to what serves
                pod.models[name] = loaded = Loaded(want.revision, self.now)
            if not want.finish:
                loaded.finish_since = None
            elif loaded.finish_since is None:
                loaded.finish_since = self.now

    def report(self, uid: str) -> None:
        """An agent says what it has."""
        pod, replica = self.pods[uid], self.world.replicas[uid]
        if replica.pod in self.silent:
            replica.agent = None
            return
        if replica.agent is None:
            replica.agent, replica.lost = Agent(pod.capabilities, pod.capacity, 8000, 8001, self.now), False
            self.changed(uid)
        held = {name: pod.held(name, self.now) for name in pod.models}
        before = replica.agent.held
        self.dirty |= {name for name in held.keys() | before.keys() if held.get(name) != before.get(name)}
        replica.agent.held, replica.agent.use, replica.agent.heard = held, dict(pod.use), self.now

    def acknowledge(self, gateway: Gateway) -> None:
        """A gateway takes what is due."""
        due = [push for push in gateway.coming if push[0] <= self.now]
        gateway.coming = [push for push in gateway.coming if push[0] > self.now]
        for _, name, uids in due:
            gateway.table[name] = uids
            self.dirty.add(name)
        self._book()

    def decide(self) -> list[Effect]:
        """Plan and carry out, and see that nothing is left to do."""
        dirty = set(sorted(self.dirty)[: self.lot])
        self.dirty -= dirty
        effects = plan(self.world, frozenset(dirty), self.now, self.limits)
        apply(self.world, effects)
        if give_room(effects):
            self.dirty.update(seekers(self.world))
        self.told += [(self.now, effect) for effect in effects]
        again = [effect for effect in plan(self.world, frozenset(dirty), self.now, self.limits) if not only_tells(effect)]
        assert again == [], f"the same world again: {again}"
        self.check(effects)
        self._push()
        return effects

    def check(self, effects: Iterable[Effect]) -> None:
        """What must hold after every plan."""
        for name, model in self.world.models.items():
            for endpoint in endpoints(self.world, model):
                replica = self.world.replicas[endpoint.replica]
                if replica.agent is not None:
                    held = replica.agent.held.get(name)
                    assert held is not None, f"{name} is routed to {replica.pod}, which does not have it"
                    assert held.served, f"{name} is routed to {replica.pod}, which says {held}"
        for effect in effects:
            if isinstance(effect, Put) and effect.placement.state is State.ASSIGNED and effect.model in self.world.models:
                self._check_room(effect.placement)

    def _check_room(self, placement: Placement) -> None:
        replica = self.world.replicas[placement.replica]
        account = self.world.ledger.accounts()[placement.replica]
        assert replica.agent is not None
        server = self.world.servers[replica.server].spec
        assert account.registered <= replica.agent.capacity * (1 + server.overcommit), f"more is registered on {replica.pod} than it may have"

    def _serves(self, pod: Pod, name: str) -> str:
        return pod.held(name, self.now).served

    def _unload(self, pod: Pod, name: str) -> None:
        if self._serves(pod, name):
            sending = [gateway for gateway in self.gateways if pod.uid in gateway.may_send(name)]
            assert not sending, f"{name} is unloaded from {pod.uid}, and {len(sending)} gateways may send requests there"
        del pod.models[name]

    def _push(self) -> None:
        for name in self.world.models.keys() | self._sent.keys():
            model = self.world.models.get(name)
            uids = frozenset(endpoint.replica for endpoint in endpoints(self.world, model)) if model is not None else frozenset()
            if uids != self._sent.get(name, frozenset()):
                self._sent[name] = uids
                for gateway in self.gateways:
                    gateway.coming.append((self.now + self.ack_delay, name, uids))
        self._book()

    def _book(self) -> None:
        for name in self.world.models:
            everywhere = frozenset.intersection(*(gateway.surely_sends(name) for gateway in self.gateways)) if self.gateways else frozenset()
            anywhere = frozenset[str]().union(*(gateway.may_send(name) for gateway in self.gateways))
            self.world.routing[name] = Routing(everywhere, anywhere)

    # ── what tests look at ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, name: str, *states: State) -> list[str]:
        """Pods that have a copy in one of these states; of none: routed ones."""
        model = self.world.models.get(name)
        found = (placement.pod for placement in model.placements.values() if placement.state in (states or (State.ROUTED,))) if model else ()
        return sorted(found)

    def target(self, name: str) -> int:
        return target_of(self.world.models[name])

    def notes(self, reason: str) -> list[str]:
        return [effect.message for _, effect in self.told if isinstance(effect, Note) and effect.reason == reason]
