"""What the API server and the agents say, in the planner's words. Pure."""

from collections.abc import Container, Mapping
from typing import Any

from wakeful.cluster.planning.conditions import seconds_of
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.status import SERVER_LABEL
from wakeful.cluster.planning.world import Agent, Held, ModelEntry, ModelSpec, Placement, Replica, State, Use, World
from wakeful.cluster.wire import HeldNow, Hello, Report, UseNow

MARGIN = 10.0
"""Seconds before a leaving pod is killed, by which its models must be elsewhere; a quarter of its grace where that is less."""
ENDED = {"Succeeded", "Failed"}


def replica(pod: Mapping[str, Any]) -> Replica | None:
    """None: no pod of a Server, or one that has ended."""
    meta, status = pod["metadata"], pod.get("status") or {}
    server = (meta.get("labels") or {}).get(SERVER_LABEL)
    if server is None or status.get("phase") in ENDED:
        return None
    conditions = {one["type"]: one["status"] == "True" for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", False)
    ports = {port.get("name"): port["containerPort"] for one in (pod.get("spec") or {}).get("containers") or () for port in one.get("ports") or ()}
    return Replica(
        meta["uid"], meta["name"], server, ordinal(meta["name"]), status.get("podIP"), ready, leaving_by(meta),
        lost=not ready and conditions.get("ContainersReady", False) and not (pod.get("spec") or {}).get("readinessGates"),
        http_port=ports.get("http"), grpc_port=ports.get("grpc"),
    )


def ordinal(pod: str) -> int:
    """triton-2: 2."""
    number = pod.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def leaving_by(meta: Mapping[str, Any]) -> float | None:
    """The deletion's time is when the pod is killed, not when it was deleted."""
    if (deleted := meta.get("deletionTimestamp")) is None:
        return None
    grace = float(meta.get("deletionGracePeriodSeconds") or 0)
    return seconds_of(deleted) - min(MARGIN, grace / 4)


def autoscaled(autoscaler: Mapping[str, Any], groups: Container[str]) -> tuple[str, str] | None:
    """("Model" | "Server", name) that a HorizontalPodAutoscaler decides the count of, if it is of one of our groups."""
    target = autoscaler["spec"]["scaleTargetRef"]
    if target["kind"] not in {"Model", "Server"} or (target.get("apiVersion") or "").partition("/")[0] not in groups:
        return None
    return target["kind"], target["name"]


def agent(hello: Hello, now: float) -> Agent:
    return Agent(
        frozenset(hello.capabilities), hello.capacity, hello.http_port, hello.grpc_port, now,
        {name: held(one) for name, one in hello.held.items()}, {name: use(one) for name, one in hello.use.items()}, hello.limits,
        hello.seen,
    )


def take(agent: Agent, report: Report, now: float) -> set[str]:
    """Bring an agent up to date; the models of which it has something else than before, or speaks for the first time since it was told of them. That
    one sleeps is no other thing."""
    agent.heard = now
    seen, agent.seen = agent.seen, report.seen if report.seen is not None else agent.seen
    changed = {name for name in report.gone if agent.held.pop(name, None) is not None}
    for name in report.gone:
        agent.use.pop(name, None)
    for name, one in report.held.items():
        before, now_held = agent.held.get(name), held(one)
        agent.held[name] = now_held
        if before is None or before._replace(asleep=now_held.asleep) != now_held:
            changed.add(name)
            if "loading" in (now_held.state, before.state if before is not None else ""):
                agent.worked = now
    for name, figures in report.use.items():
        agent.use[name] = use(figures)
    if report.capacity is not None:
        agent.capacity = report.capacity
    if seen != agent.seen:
        changed |= {name for name in agent.held if agent.told.get(name, 0) > (seen or 0)}
    return changed


def turned(agent: Agent, report: Report) -> dict[str, bool]:
    """Models that a report says to have fallen asleep (True) or to have woken, of those that were ready before. To be asked before `take`."""
    both = ((name, agent.held.get(name), one) for name, one in report.held.items())
    return {
        name: now.asleep for name, before, now in both
        if before is not None and before.state == now.state == "ready" and before.asleep != now.asleep
    }


def turn_note(model: str, pod: str, *, asleep: bool) -> Note:
    """The same words each time: such events are counted."""
    if asleep:
        message = f"on {pod} its memory was given back; it stays registered, and the next request wakes it there"
        return Note("Model", model, "Normal", "Evicted", message)
    return Note("Model", model, "Normal", "Woken", f"on {pod} a request has brought it back into memory")


def held(one: HeldNow) -> Held:
    return Held(one.state, one.revision, one.footprint, one.error, one.artifact, one.artifact_bytes, one.serves, one.progress, one.asleep)


def use(one: UseNow) -> Use:
    return Use(one.arrived, one.completed, one.lag, one.busy, one.last_used, one.rate)


def adopt(world: World, uid: str, now: float) -> set[str]:
    """Models that a replica serves and that no status told of: the leader before did not come to write them down. Returns their names.

    They are routed, or were, as far as anybody knows, and so they are taken over as such: the planner then takes them away in the order that loses
    nothing.
    One whose Model was deleted meanwhile gets an entry that is gone already.
    """
    replica = world.replicas[uid]
    assert replica.agent is not None
    adopted = set()
    for name, one in replica.agent.held.items():
        entry = world.models.get(name)
        if one.served and (entry is None or uid not in entry.placements):
            if entry is None:
                entry = world.models[name] = ModelEntry(ModelSpec(name, "", one.served), gone=True)
            state = State.DRAINING if one.state in {"finishing", "quiet"} else State.ROUTED
            entry.placements[uid] = Placement(uid, replica.pod, state, one.served, now)
            adopted.add(name)
    return adopted
