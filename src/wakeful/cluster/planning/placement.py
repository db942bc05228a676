"""Where copies of a model are put: on replicas of one Server, at most one on each, the best first. Fewer than asked for is an answer, too."""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import NamedTuple

from wakeful.cluster.planning.ledger import Account, Weight
from wakeful.cluster.planning.world import ModelSpec, Replica, World

Filter = Callable[[Replica], str]
"""Why a replica must not be chosen; empty: it may."""

EMPTY = Account()


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


class _Offer(NamedTuple):
    """What one Server can do for a model."""

    server: str
    fitting: list[tuple[float, int, str]]
    """Score, ordinal, uid: the least is the best."""
    blocked: Counter[str]


def place(ask: Ask, want: int, world: World, accounts: Mapping[str, Account], also: Filter | None = None) -> Placed:
    """Up to `want` replicas for the model, all of one Server. `also`: a further filter, asked last.

    The Server is the one it is pinned to, else its home, else the one that can take most copies.
    """
    asked = ask.spec.server or ask.home
    offers = _offers(ask, asked, world, accounts, also)
    if asked is not None and asked not in offers:
        there = "no replica" if asked in world.servers else "no such Server"
        return Placed((), want, {asked: {there: 1}})
    if not offers:
        return Placed((), want, {server: {"no replica": 1} for server in world.servers})
    best = min(offers.values(), key=lambda offer: (-min(len(offer.fitting), want), -len(offer.fitting), offer.server))
    chosen = tuple(uid for *_, uid in nsmallest(want, best.fitting))
    if len(chosen) == want:
        return Placed(chosen, 0, {})
    best.blocked["has a copy"] += len(chosen)
    return Placed(chosen, want - len(chosen), {offer.server: dict(+offer.blocked) for offer in offers.values() if offer.blocked})


def is_right(spec: ModelSpec, replica: Replica, world: World) -> bool:
    """May a copy stay where it is, by what is asked for? False after the pin or the requirements have changed."""
    return spec.server in {None, replica.server} and (replica.agent is None or spec.requirements <= _capabilities(replica, world))


def _offers(
    ask: Ask, asked: str | None, world: World, accounts: Mapping[str, Account], also: Filter | None
) -> dict[str, _Offer]:
    offers: dict[str, _Offer] = {}
    for replica in world.replicas.values():
        if asked is not None and replica.server != asked:
            continue
        offer = offers.get(replica.server)
        if offer is None:
            offer = offers[replica.server] = _Offer(replica.server, [], Counter())
        account = accounts.get(replica.uid, EMPTY)
        why = _why_not(replica, ask, world) or _why_full(replica, ask.weight, account, world) or (also(replica) if also else "")
        if why:
            offer.blocked[why] += 1
        else:
            assert replica.agent is not None, "it is placeable"
            share = (account.registered + ask.weight.footprint) / replica.agent.capacity
            offer.fitting.append((0.5 * share + 0.5 * (account.load + ask.weight.load), replica.ordinal, replica.uid))
    return offers


def _why_not(replica: Replica, ask: Ask, world: World) -> str:
    """The filters that need no figures."""
    if replica.lost:
        return "lost"
    if replica.leaving_by is not None:
        return "leaving"
    if not replica.ready:
        return "not ready"
    if replica.agent is None:
        return "agent unknown"
    if replica.uid in ask.taken:
        return "has a copy"
    if replica.uid in ask.failed:
        return "failed there"
    if not ask.spec.requirements <= _capabilities(replica, world):
        return "requirements"
    return ""


def _why_full(replica: Replica, weight: Weight, account: Account, world: World) -> str:
    """Registered models may exceed the capacity by the overcommit, those in use may not: sleepers lend their bytes, busy ones cannot."""
    assert replica.agent is not None, "it is placeable"
    capacity, server = replica.agent.capacity, world.servers.get(replica.server)
    if weight.footprint > capacity:
        return "too large"
    if account.registered + weight.footprint > capacity * (1 + (server.spec.overcommit if server is not None else 0)):
        return "memory"
    return "memory in use" if weight.active and account.active + weight.footprint > capacity else ""


def _capabilities(replica: Replica, world: World) -> frozenset[str]:
    """What its Server says, else what its agent says."""
    server = world.servers.get(replica.server)
    if server is not None and server.spec.capabilities is not None:
        return server.spec.capabilities
    return replica.agent.capabilities if replica.agent is not None else frozenset()
