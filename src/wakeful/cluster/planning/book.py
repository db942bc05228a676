"""What gateways have acknowledged, and so where they may send requests: the book that a copy's moves wait for.

Each gateway has clusters, two a model where its replicas speak gRPC, and a cluster has replicas. Between a push and its acknowledgement a gateway
may use what it had or what it was sent; who has refused a push may use either for as long as it takes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wakeful.cluster.planning.world import Endpoint, Routing

Uids = frozenset[str]
_NOBODY: Uids = frozenset()
_NOWHERE = Routing()
_MODEL, _GRPC = "model/", "/grpc"

PATIENCE = 10.0
"""Seconds after which a gateway that does not answer is not waited for. What it sends to a replica that has unloaded is refused unstarted, and
tried elsewhere."""


def http_cluster(model: str) -> str:
    """Name of the cluster of Envoy that takes a model's requests over HTTP/1.1."""
    return _MODEL + model


def grpc_cluster(model: str) -> str:
    return _MODEL + model + _GRPC


def model_of(cluster: str) -> str:
    """A model's name is a DNS label, and has no slash."""
    return cluster.removeprefix(_MODEL).removesuffix(_GRPC)


def clusters(model: str, endpoints: Iterable[Endpoint]) -> dict[str, tuple[Endpoint, ...]]:
    """A model's clusters, and who is in each; a cluster of nobody is none."""
    speaking = tuple(endpoints)
    both = {http_cluster(model): speaking, grpc_cluster(model): tuple(endpoint for endpoint in speaking if endpoint.grpc_port is not None)}
    return {name: members for name, members in both.items() if members}


class _Held(NamedTuple):
    """Of one cluster in one gateway."""

    surely: Uids = _NOBODY
    maybe: Uids = _NOBODY


@dataclass(slots=True)
class _Gateway:
    clusters: dict[str, _Held] = field(default_factory=dict)
    unanswered: dict[str, float] = field(default_factory=dict)
    """Pushes by nonce, and when they were sent."""
    left: float | None = None
    """Since when it has had no stream; it goes on sending requests."""

    def silent_since(self, now: float) -> float:
        return self.left if self.left is not None else min(self.unanswered.values(), default=now)


class Book:
    """One writer: the controller's loop. `routing` is always up to date; whoever changes the book gets the models whose entry in it changed."""

    def __init__(self) -> None:
        self.routing: dict[str, Routing] = {}
        self._routes: dict[str, dict[str, Uids]] = {}
        self._gateways: dict[str, _Gateway] = {}
        self._counted: frozenset[str] = frozenset()
        self._inherited: dict[str, Uids] = {}
        self._inherited_until = 0.0

    @property
    def gateways(self) -> frozenset[str]:
        """Those that are waited for."""
        return self._counted

    def inherit(self, routed: Mapping[str, Uids], now: float) -> Uids:
        """A new leader does not know yet which gateways there are: for a while they may send to all that its predecessor may have routed."""
        self._inherited, self._inherited_until = dict(routed), now + PATIENCE
        return self._refresh(routed)

    def set_routes(self, model: str, wanted: Mapping[str, tuple[Endpoint, ...]]) -> Uids:
        """Whom gateways are to be told of, by cluster."""
        self._routes[model] = {name: frozenset(endpoint.replica for endpoint in endpoints) for name, endpoints in wanted.items()}
        if not wanted:
            del self._routes[model]
        return self._refresh([model])

    def joined(self, gateway: str, has: Mapping[str, Uids], now: float) -> Uids:
        """Its stream begins, and it has said what it has. What was known of it is forgotten: it may be another process."""
        self._gateways[gateway] = _Gateway({name: _Held(uids, uids) for name, uids in has.items()})
        return self.tick(now) or self._refresh(self._all_models())

    def sent(self, gateway: str, nonce: str, changes: Mapping[str, Uids], now: float) -> Uids:
        """A push is under way: clusters and whom they now have, nobody where the cluster is removed."""
        known = self._gateways[gateway]
        known.unanswered[nonce] = now
        for name, uids in changes.items():
            held = known.clusters.get(name, _Held())
            known.clusters[name] = _Held(held.surely & uids, held.maybe | uids)
        return self._refresh(map(model_of, changes))

    def accepted(self, gateway: str, nonce: str, changes: Mapping[str, Uids], now: float) -> Uids:
        known = self._gateways[gateway]
        known.unanswered.pop(nonce, None)
        for name, uids in changes.items():
            if uids:
                known.clusters[name] = _Held(uids, uids)
            else:
                known.clusters.pop(name, None)
        return self.tick(now) | self._refresh(map(model_of, changes))

    def refused(self, gateway: str, nonce: str, now: float) -> Uids:
        """It has answered, but no one knows which part of the push it took: both is possible until it accepts another one."""
        self._gateways[gateway].unanswered.pop(nonce, None)
        return self.tick(now)

    def left(self, gateway: str, now: float) -> Uids:
        self._gateways[gateway].left = now
        return self.tick(now)

    def tick(self, now: float) -> Uids:
        """Time has passed: who is not waited for any more?"""
        for name in [name for name, known in self._gateways.items() if known.left is not None and now - known.left >= PATIENCE]:
            del self._gateways[name]
        counted = frozenset(name for name, known in self._gateways.items() if now - known.silent_since(now) < PATIENCE)
        ended = bool(self._inherited) and now >= self._inherited_until
        if counted == self._counted and not ended:
            return _NOBODY
        everything = self._all_models()
        self._counted = counted
        if ended:
            self._inherited = {}
        return self._refresh(everything)

    def _all_models(self) -> set[str]:
        held = (model_of(name) for known in self._gateways.values() for name in known.clusters)
        return {*self.routing, *self._routes, *self._inherited, *held}

    def _refresh(self, models: Iterable[str]) -> Uids:
        changed = set()
        for model in models:
            routing = self._routing_of(model)
            if routing != self.routing.get(model, _NOWHERE):
                changed.add(model)
                self.routing[model] = routing
                if routing == _NOWHERE:
                    del self.routing[model]
        return frozenset(changed)

    def _routing_of(self, model: str) -> Routing:
        wanted, inherited = self._routes.get(model, {}), self._inherited.get(model, _NOBODY)
        everywhere, anywhere = wanted.get(http_cluster(model), _NOBODY), inherited
        if self._inherited and not self._counted:
            everywhere &= inherited
        for gateway in self._counted:
            for name in (http_cluster(model), grpc_cluster(model)):
                held = self._gateways[gateway].clusters.get(name, _Held())
                everywhere -= wanted.get(name, _NOBODY) - held.surely
                anywhere |= held.maybe
        return Routing(everywhere, anywhere)
