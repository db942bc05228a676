"""What follows from the world for others: what each replica is to have, whom gateways send requests to, and what people read in a status."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from wakeful.clock import Clock
from wakeful.cluster.controller.api import Manifest
from wakeful.cluster.controller.intake import Intake
from wakeful.cluster.controller.writer import Key, Writer
from wakeful.cluster.dialects import as_told
from wakeful.cluster.planning.draft import is_coming
from wakeful.cluster.planning.revisions import source_of
from wakeful.cluster.planning.routing import endpoints, wanted_of
from wakeful.cluster.planning.status import Observed, model_status, rival_status, server_status
from wakeful.cluster.planning.world import Agent, Endpoint, ModelEntry, Placement, ServerEntry, State, World
from wakeful.cluster.wire import Wanted


class Agents(Protocol):
    def want(self, uid: str, models: Mapping[str, Wanted], version: int) -> None: ...


class Gateways(Protocol):
    def set_routes(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None: ...


class Keys(Protocol):
    def get(self, secret: str) -> Mapping[str, str] | None:
        """The keys of a storage Secret; None: not known yet, or not to be had."""

    def why_not(self, secret: str) -> str:
        """Why they are not to be had; empty: they are, or nobody knows yet."""


class Workloads(Protocol):
    """Who sees to the pods of Servers: see `objects`."""

    def ensure(self, server: str) -> None: ...

    def observed(self, server: str) -> Observed: ...


class Neighbours(NamedTuple):
    agents: Agents
    gateways: Gateways
    keys: Keys
    workloads: Workloads


class Telling:
    """Keeps what was told last, so that one model's change costs one model."""

    def __init__(self, world: World, intake: Intake, writer: Writer, others: Neighbours, now: Clock) -> None:
        self._world, self._writer, self._now = world, writer, now
        self._kinds, self._rivals = intake.kinds, intake.rivals
        self._agents, self._gateways, self._keys, self._workloads = others
        self._routes: dict[str, tuple[Endpoint, ...]] = {}
        self._desired: dict[str, dict[str, Wanted]] = {}
        self._holders: dict[str, frozenset[str]] = {}
        self._version = 0
        """Of all that replicas are told together."""

    @property
    def routes(self) -> Mapping[str, tuple[Endpoint, ...]]:
        return self._routes

    def models(self, names: Iterable[str], greeted: Iterable[str]) -> None:
        """Tell what is new of these models, and all to the replicas that have just said hello."""
        greeted = frozenset(greeted)
        changed = set(greeted)
        self._version += 1
        routed = False
        for name in names:
            entry = self._world.models.get(name)
            changed |= self._assign(name, entry)
            routed |= self._route(name, entry)
            self._status("Model", name)
        for uid in greeted:
            self._note_told(uid, self._desired.get(uid, {}))
        for uid in changed:
            if uid in self._world.replicas:
                self._agents.want(uid, dict(self._desired.get(uid, {})), self._version)
            else:
                self._desired.pop(uid, None)
        if routed:
            self._gateways.set_routes(self._routes)

    def servers(self, names: Iterable[str]) -> None:
        for name in names:
            self._status("Server", name)

    def _status(self, what: str, name: str) -> None:
        if (kind := self._kinds.get((what, name))) is not None:
            self._writer.touch(Key(kind, name))

    def status(self, key: Key) -> dict[str, Any] | None:
        """What people are to read of a Model or Server now; None: there is no such object."""
        if (rival := self._rivals.get(key)) is not None:
            return self._rival_status(key, rival)
        if self._kinds.get((key.kind.kind, key.name)) != key.kind:
            return None
        if key.kind.kind == "Model":
            model = self._world.models.get(key.name)
            return self.model_status(key, model) if model is not None else None
        server = self._world.servers.get(key.name)
        return self.server_status(key, server) if server is not None else None

    def _rival_status(self, key: Key, rival: Manifest) -> dict[str, Any]:
        winner = self._kinds[key.kind.kind, key.name].group
        status = rival_status(self._writer.latest(key), rival["metadata"].get("generation", 0), winner, self._now())
        return as_told("seldon", "Model" if key.kind.kind == "Model" else "Server", status)

    def model_status(self, key: Key, entry: ModelEntry) -> dict[str, Any]:
        withheld = self._keys.why_not(entry.spec.secret) if entry.spec.secret is not None else ""
        status = model_status(entry, self._world, self._writer.latest(key), self._now(), withheld)
        return as_told(entry.spec.dialect, "Model", status)

    def server_status(self, key: Key, entry: ServerEntry) -> dict[str, Any]:
        status = server_status(entry, self._world, self._workloads.observed(key.name), self._writer.latest(key), self._now())
        return as_told(entry.spec.dialect, "Server", status)

    def _assign(self, name: str, entry: ModelEntry | None) -> set[str]:
        """Replicas that are to have something else than before."""
        now = self._wanted(entry) if entry is not None else {}
        changed = {uid for uid in self._holders.get(name, frozenset()) if uid not in now}
        for uid in changed:
            self._desired.get(uid, {}).pop(name, None)
            if (agent := self._agent(uid)) is not None:
                agent.told.pop(name, None)
        for uid, one in now.items():
            there = self._desired.setdefault(uid, {})
            if there.get(name) != one:
                there[name] = one
                self._note_told(uid, [name])
                changed.add(uid)
        if now:
            self._holders[name] = frozenset(now)
        else:
            self._holders.pop(name, None)
        return changed

    def _note_told(self, uid: str, names: Iterable[str]) -> None:
        """What its agent says of these models counts again when it has heard this version."""
        if (agent := self._agent(uid)) is not None:
            agent.told |= dict.fromkeys(names, self._version)

    def _agent(self, uid: str) -> Agent | None:
        replica = self._world.replicas.get(uid)
        return replica.agent if replica is not None else None

    def _wanted(self, entry: ModelEntry) -> dict[str, Wanted]:
        """By replica. Equal ones are one object: there are tens of thousands."""
        found: dict[str, Wanted] = {}
        different: list[Wanted] = []
        for uid, placement in entry.placements.items():
            if placement.state is not State.FAILED:
                one = self._wanted_at(entry, placement)
                if one is None:
                    continue
                same = next((other for other in different if other == one), None)
                if same is None:
                    different.append(one)
                found[uid] = same or one
        return found

    def _wanted_at(self, entry: ModelEntry, placement: Placement) -> Wanted | None:
        """Nothing new is loaded without the keys of its storage, and what serves is not taken away because they are not known."""
        source = source_of(entry, placement.revision)
        keys = {} if source is None or source.secret is None else self._keys.get(source.secret)
        if keys is None and is_coming(placement):
            return None
        if keys is None and placement.previous:
            return self._wanted_at(entry, placement._replace(revision=placement.previous, previous=""))
        wanted = wanted_of(self._world, entry, placement)
        return msgspec.structs.replace(wanted, secret=dict(keys)) if keys else wanted

    def _route(self, name: str, entry: ModelEntry | None) -> bool:
        """Did its route change?"""
        there = endpoints(self._world, entry) if entry is not None else ()
        if there == self._routes.get(name, ()):
            return False
        if there:
            self._routes[name] = there
        else:
            del self._routes[name]
        return True
