"""Where copies of a model are put: on replicas of one Server, at most one on each, the best first. Fewer than asked for is an answer, too."""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import NamedTuple

from wakeful.cluster.planning.ledger import Account, Weight
from wakeful.cluster.planning.world import ModelSpec, Replica, World

Filter = Callable[[str], str]
"""Why a replica (its uid) must not be chosen; empty: it may."""


class Ask(NamedTuple):
    """Who looks for a place."""

    spec: ModelSpec
    weight: Weight
    home: str | None = None
    """The Server where its other copies are; None: any."""
    taken: frozenset[str] = frozenset()
    """Replicas that have a copy."""
    failed: frozenset[str] = frozenset()
    """Replicas where it did not load."""


class Placed(NamedTuple):
    chosen: tuple[str, ...]
    """Uids of replicas, best first."""
    missing: int
    blocked: Mapping[str, Mapping[str, int]]
    """What kept the others out, if some are missing: Server to filter to number of replicas."""


class _Site(NamedTuple):
    """A replica that can be given models."""

    uid: str
    ordinal: int
    capacity: int
    registrable: float
    """Bytes that may be registered, with the overcommit."""
    account: Account


class _Ground(NamedTuple):
    """A Server for models with certain requirements."""

    sites: list[_Site]
    blocked: Counter[str]
    """What keeps its other replicas out, whatever the model's size."""


class Sites:
    """All that can be had at one moment. It shares the accounts with who keeps them, and so is up to date as long as replicas are as they were."""

    def __init__(self, world: World, accounts: dict[str, Account]) -> None:
        self.world = world
        self._accounts = accounts
        self._grounds: dict[frozenset[str], dict[str, _Ground]] = {}
        self._right: dict[tuple[str | None, frozenset[str]], frozenset[str]] = {}

    def grounds(self, requirements: frozenset[str]) -> Mapping[str, _Ground]:
        """By Server. Found once for all models that require the same."""
        grounds = self._grounds.get(requirements)
        if grounds is None:
            grounds = self._grounds[requirements] = {}
            for replica in self.world.replicas.values():
                ground = grounds.setdefault(replica.server, _Ground([], Counter()))
                why = _why_not(replica) or ("" if requirements <= capabilities_of(replica, self.world) else "requirements")
                if why:
                    ground.blocked[why] += 1
                else:
                    ground.sites.append(self._site(replica))
        return grounds

    def right(self, spec: ModelSpec) -> frozenset[str]:
        """Replicas where a copy may be by the model's pin and requirements; of an unknown one nobody can say that it may not."""
        key = spec.server, spec.requirements
        found = self._right.get(key)
        if found is None:
            found = self._right[key] = frozenset(
                replica.uid for replica in self.world.replicas.values()
                if spec.server in {None, replica.server} and (replica.agent is None or spec.requirements <= capabilities_of(replica, self.world))
            )
        return found

    def _site(self, replica: Replica) -> _Site:
        assert replica.agent is not None, "it is placeable"
        server = self.world.servers.get(replica.server)
        capacity = replica.agent.capacity
        registrable = capacity * (1 + (server.spec.overcommit if server is not None else 0.0))
        return _Site(replica.uid, replica.ordinal, capacity, registrable, self._accounts.setdefault(replica.uid, Account()))


class _Offer(NamedTuple):
    """What one Server can do for a model."""

    server: str
    fitting: list[tuple[float, int, str]]
    """Score, ordinal, uid: the least is the best."""
    blocked: Counter[str]


def place(ask: Ask, want: int, sites: Sites, also: Filter | None = None) -> Placed:
    """Up to `want` replicas for the model, all of one Server. `also`: a further filter, asked last.

    The Server is the one it is pinned to, else its home, else the one that can take most copies.
    """
    asked = ask.spec.server or ask.home
    grounds = sites.grounds(ask.spec.requirements)
    offers = [_offer(server, ground, ask, also) for server, ground in grounds.items() if asked in {None, server}]
    if not offers:
        servers = sites.world.servers if asked is None else [asked]
        return Placed((), want, {server: {"no replica" if server in sites.world.servers else "no such Server": 1} for server in servers})
    best = min(offers, key=lambda offer: (-min(len(offer.fitting), want), -len(offer.fitting), offer.server))
    chosen = tuple(uid for *_, uid in nsmallest(want, best.fitting))
    if len(chosen) == want:
        return Placed(chosen, 0, {})
    best.blocked["has a copy"] += len(chosen)
    return Placed(chosen, want - len(chosen), {offer.server: dict(+offer.blocked) for offer in offers})


def _offer(server: str, ground: _Ground, ask: Ask, also: Filter | None) -> _Offer:
    """Registered models may exceed the capacity by the overcommit, those in use may not: sleepers lend their bytes, busy ones cannot."""
    footprint, active, load = ask.weight
    taken, failed = ask.taken, ask.failed
    offer = _Offer(server, [], Counter(ground.blocked))
    for uid, ordinal, capacity, registrable, account in ground.sites:
        registered = account.registered + footprint
        if uid in taken:
            why = "has a copy"
        elif uid in failed:
            why = "failed there"
        elif footprint > capacity:
            why = "too large"
        elif registered > registrable:
            why = "memory"
        elif active and account.active + footprint > capacity:
            why = "memory in use"
        elif also is None or not (why := also(uid)):
            offer.fitting.append((0.5 * (registered / capacity) + 0.5 * (account.load + load), ordinal, uid))
            continue
        offer.blocked[why] += 1
    return offer


def _why_not(replica: Replica) -> str:
    """The filters that know no model."""
    if replica.lost:
        return "lost"
    if replica.leaving_by is not None:
        return "leaving"
    if not replica.ready:
        return "not ready"
    return "agent unknown" if replica.agent is None else ""


def capabilities_of(replica: Replica, world: World) -> frozenset[str]:
    """What its Server says, else what its agent says."""
    server = world.servers.get(replica.server)
    if server is not None and server.spec.capabilities is not None:
        return server.spec.capabilities
    return replica.agent.capabilities if replica.agent is not None else frozenset()
