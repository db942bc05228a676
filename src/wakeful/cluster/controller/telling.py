"""What follows from the world for others: what each replica is to have, whom gateways send requests to, and what people read in a status."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from wakeful.cluster.controller.api import Kind
from wakeful.cluster.controller.writer import Writer
from wakeful.cluster.dialects import as_told
from wakeful.cluster.planning.routing import endpoints, wanted_of
from wakeful.cluster.planning.status import Observed, model_status, server_status
from wakeful.cluster.planning.world import Endpoint, ModelEntry, State, World
from wakeful.cluster.wire import Wanted


class Agents(Protocol):
    def want(self, uid: str, models: Mapping[str, Wanted]) -> None: ...


class Gateways(Protocol):
    def set_routes(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None: ...


class Keys(Protocol):
    def get(self, secret: str) -> Mapping[str, str] | None:
        """The keys of a storage Secret; None: not known yet, or not to be had."""


class Telling:
    """Keeps what was told last, so that one model's change costs one model."""

    def __init__(self, world: World, kinds: Mapping[tuple[str, str], Kind], agents: Agents, gateways: Gateways, writer: Writer, keys: Keys) -> None:
        self._world, self._kinds = world, kinds
        self._agents, self._gateways, self._writer, self._keys = agents, gateways, writer, keys
        self._routes: dict[str, tuple[Endpoint, ...]] = {}
        self._desired: dict[str, dict[str, Wanted]] = {}
        self._holders: dict[str, frozenset[str]] = {}

    @property
    def routes(self) -> Mapping[str, tuple[Endpoint, ...]]:
        return self._routes

    def models(self, names: Iterable[str], greeted: Iterable[str], now: float) -> None:
        """Tell what is new of these models, and all to the replicas that have just said hello."""
        changed = set(greeted)
        routed = False
        for name in names:
            entry = self._world.models.get(name)
            changed |= self._assign(name, entry)
            routed |= self._route(name, entry)
            if entry is not None and (kind := self._kinds.get(("Model", name))) is not None:
                status = model_status(entry, self._world, self._writer.latest(kind, name), now)
                self._writer.offer(kind, name, as_told(entry.spec.dialect, "Model", status))
        for uid in changed:
            if uid in self._world.replicas:
                self._agents.want(uid, dict(self._desired.get(uid, {})))
            else:
                self._desired.pop(uid, None)
        if routed:
            self._gateways.set_routes(self._routes)

    def server(self, name: str, observed: Observed, now: float) -> None:
        entry, kind = self._world.servers.get(name), self._kinds.get(("Server", name))
        if entry is not None and kind is not None:
            status = server_status(entry, self._world, observed, self._writer.latest(kind, name), now)
            self._writer.offer(kind, name, as_told(entry.spec.dialect, "Server", status))

    def _assign(self, name: str, entry: ModelEntry | None) -> set[str]:
        """Replicas that are to have something else than before."""
        now = self._wanted(entry) if entry is not None else {}
        changed = {uid for uid in self._holders.get(name, frozenset()) if uid not in now}
        for uid in changed:
            self._desired.get(uid, {}).pop(name, None)
        for uid, one in now.items():
            there = self._desired.setdefault(uid, {})
            if there.get(name) != one:
                there[name] = one
                changed.add(uid)
        if now:
            self._holders[name] = frozenset(now)
        else:
            self._holders.pop(name, None)
        return changed

    def _wanted(self, entry: ModelEntry) -> dict[str, Wanted]:
        """By replica. Equal ones are one object: there are tens of thousands."""
        keys = self._keys.get(entry.spec.secret) if entry.spec.secret is not None else {}
        if keys is None:
            return {}
        found: dict[str, Wanted] = {}
        different: list[Wanted] = []
        for uid, placement in entry.placements.items():
            if placement.state is not State.FAILED:
                one = wanted_of(self._world, entry, placement)
                if keys:
                    one = msgspec.structs.replace(one, secret=dict(keys))
                same = next((other for other in different if other == one), None)
                if same is None:
                    different.append(one)
                found[uid] = same or one
        return found

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
