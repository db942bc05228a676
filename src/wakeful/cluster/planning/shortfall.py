"""Why a model has fewer copies than it should, for people: which filter keeps it out of how many replicas of each Server, and how far it is off."""

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches

from wakeful.cluster.planning.ledger import footprint
from wakeful.cluster.planning.placement import capabilities_of
from wakeful.cluster.planning.world import ModelEntry, Short, World
from wakeful.telemetry.units import counted, show_bytes

MOST = 8
"""Names that are listed at most."""


def shortfall_text(short: Short, world: World, entry: ModelEntry) -> str:
    """triton: memory on 2 of 3 replicas, not ready on 1 of 3 replicas"""
    sizes = Counter(replica.server for replica in world.replicas.values())
    parts = [_server_text(server, filters, sizes[server], world, entry) for server, filters in sorted(short.blocked.items())]
    return "; ".join(parts) or ("there is no Server with a replica" if world.servers else "there is no Server in this namespace")


def _server_text(server: str, filters: Mapping[str, int], size: int, world: World, entry: ModelEntry) -> str:
    if "no such Server" in filters:
        pinned = ", to which spec.server pins it" if server == entry.spec.server else ""
        there = f"; there is {_listed(world.servers)}" if world.servers else ""
        return f"there is no Server {server}{pinned}{there}"
    total = counted(size or sum(filters.values()), "replica")
    if "no replica" in filters:
        return f"{server}: no replica"
    worst_first = sorted(((count, name) for name, count in filters.items() if count), key=lambda cause: -cause[0])
    return f"{server}: {', '.join(f'{name} on {count} of {total}{_detail(name, server, world, entry)}' for count, name in worst_first)}"


def _detail(name: str, server: str, world: World, entry: ModelEntry) -> str:
    replicas = [replica for replica in world.replicas.values() if replica.server == server and replica.agent is not None]
    if name == "requirements":
        able = frozenset[str]().union(*(capabilities_of(replica, world) for replica in replicas))
        lacking = sorted(entry.spec.requirements - able)
        near = get_close_matches(lacking[0], able, 1) if lacking else []
        meant = f"; did you mean {near[0]}?" if near else ""
        return f" (it has {_listed(able)}, not {', '.join(lacking)}{meant})" if lacking else ""
    if name == "too large":
        size = footprint(entry.footprint, entry.spec.memory, entry.artifact_bytes)
        most = max((replica.agent.capacity for replica in replicas if replica.agent is not None), default=0)
        return f" (a copy takes {show_bytes(size)}, the largest has {show_bytes(most)})"
    return ""


def _listed(names: frozenset[str] | Mapping[str, object]) -> str:
    found = sorted(names)
    return ", ".join([*found[:MOST], *([f"{len(found) - MOST} more"] if len(found) > MOST else [])]) or "nothing"
