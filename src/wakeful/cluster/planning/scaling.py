"""When a Model gets another copy, and when it loses one: one decision a period, from the sums over all copies that serve. What people read here says
replicas, as `spec.replicas` does.

Lag is the number of requests in flight (arrived and not completed, the seed's "incoming minus outgoing"), busy the share of time in which a run was
active. Up goes by lag. Down needs both: near saturation lag is small until it explodes, so that lag alone shrinks what has to grow again at once; see
docs/decisions for what was measured.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wakeful.cluster.planning.counts import Hold, Step, as_written, effective_target, floor_of, owner_of, why_not_ours
from wakeful.cluster.planning.effects import Effect, Mark, Note, SetTarget
from wakeful.cluster.planning.thresholds import limits_of
from wakeful.cluster.planning.world import Bounds, ModelEntry, Owner, ScaleLimits, Scaling, State, World
from wakeful.telemetry.units import counted

AIM = 0.6
"""Share of the threshold that the lag of each copy should have after a step up."""
NOTHING: Mapping[str, float] = {}
CALM = 0.4
"""Share of the threshold up to which the remaining copies may have lag after a step down."""


class ModelLoad(NamedTuple):
    """A model as its scaling sees it."""

    bounds: Bounds
    hpa: bool
    target: int
    routed: int
    """Copies that serve."""
    heard: int
    """Of these, those whose agents have reported: the sums are over them."""
    lag: float
    """Requests in flight, sum over the copies heard."""
    busy: float
    """Sum of the busy shares of the copies heard."""
    moving: str
    """What is under way and has to end first, for people; empty: nothing."""
    last_used: float
    """When the last request arrived at any of them; 0: never."""
    last_step_time: float
    changed: float
    """Last change of state that was not a step of our own."""
    calm_since: float | None
    """Since when `is_calm` holds without a break."""
    wanted_until: float = 0.0
    """A request was held for it at the gateway."""


class Room(NamedTuple):
    """The answer of a dry run: how many of the copies asked for would find a place, and what kept the others out, server by server."""

    fits: int
    blocked: Mapping[str, Mapping[str, int]]


def is_calm(load: ModelLoad, limits: ScaleLimits) -> bool:
    """Would one copy less bear this load?"""
    remaining = min(load.routed, load.target - 1)
    if remaining < 1 or load.heard < load.routed:
        return False
    return load.lag <= CALM * limits.lag_threshold * remaining and load.busy <= limits.busy * remaining


def scale_model(load: ModelLoad, now: float, limits: ScaleLimits, room: Callable[[int], Room]) -> Step | Hold:
    """The seed's rules: stable and available, within the range, and enough room for more.

    `room(n)`: a dry run of placing n more copies; asked only when the count is to grow.
    """
    resting = why_not_ours(load.bounds, load.hpa)
    if resting:
        return Hold(resting, "")
    if load.target == 0:
        return Step(1, "a request waits for it at the gateway") if now < load.wanted_until else Hold("at 0 replicas; the next request wakes it", "")
    if not load.routed:
        return Hold("not available: no replica serves yet")
    if load.moving:
        return Hold(f"a change is under way: {load.moving}")
    if now - load.changed < limits.stable:
        return Hold(f"not stable: its state changed {now - load.changed:.0f} s ago, {limits.stable:.0f} s must pass")
    if not load.heard:
        return Hold("no figures: the agents of its replicas are silent")
    if load.lag >= limits.lag_threshold * load.heard:
        return _more(load, now, limits, room)
    return _fewer(load, now, limits)


def model_effects(world: World, name: str, now: float, room: Callable[[int], Room]) -> list[Effect]:
    """What the rules say of one model: another target, or only what they remember and tell. Nothing, if nothing has changed since they were asked."""
    entry = world.models[name]
    ours = owner_of(entry.spec.bounds, entry.hpa) is Owner.SCHEDULER
    if not ours and entry.calm_since is None and not entry.limited:
        return []
    limits = limits_in(world, entry)
    load = load_of(world, entry)
    answer = scale_model(load, now, limits, room)
    effects: list[Effect] = []
    calm_since = entry.calm_since
    if isinstance(answer, Step):
        calm_since = None
        effects.append(SetTarget(name, _stepped(load, answer, now)))
        effects.append(Note("Model", name, "Normal", "Scaled", f"{load.target} → {answer.target}: {answer.why}"))
    elif not ours or not is_calm(load, limits):
        calm_since = None
    elif calm_since is None:
        calm_since = now
    fields: dict[str, object] = {} if calm_since == entry.calm_since else {"calm_since": calm_since}
    if answer.limited is not None and (answer.limited, answer.lacking) != (entry.limited, entry.lacking):
        since = entry.lacking_since if entry.lacking and answer.lacking else now if answer.lacking else 0.0
        fields |= {"limited": answer.limited, "lacking": answer.lacking, "lacking_since": since}
        if answer.lacking and not entry.lacking:
            effects.append(Note("Model", name, "Warning", "ScalingLimited", f"{answer.why}; add server replicas or room, or lower maxReplicas"))
    if fields:
        effects.append(Mark("model", name, fields))
    return effects


def limits_in(world: World, entry: ModelEntry) -> ScaleLimits:
    """The figures of a model where it lives. If its agents differ (a Server in the middle of a rollout), the first one's variables count."""
    home, said = entry.spec.server, NOTHING
    for uid in entry.placements:
        replica = world.replicas.get(uid)
        if replica is not None:
            home = replica.server
            if replica.agent is not None:
                said = replica.agent.limits
                break
    server = world.servers.get(home) if home is not None else None
    return limits_of(entry.spec.autoscaling, server.spec.model_autoscaling if server is not None else NOTHING, said)


def load_of(world: World, entry: ModelEntry) -> ModelLoad:
    """Sums over the copies that serve."""
    name, scaling = entry.spec.name, entry.scaling
    routed, heard, lag, busy, last_used = 0, 0, 0.0, 0.0, 0.0
    under_way: dict[State, int] = {}
    for uid, placement in entry.placements.items():
        if placement.state is not State.ROUTED:
            if placement.state is not State.FAILED:
                under_way[placement.state] = under_way.get(placement.state, 0) + 1
            continue
        replica = world.replicas.get(uid)
        if replica is None or replica.lost:
            continue
        routed += 1
        if replica.agent is not None:
            heard += 1
            use = replica.agent.use.get(name)
            if use is not None:
                lag, busy, last_used = lag + use.lag, busy + use.busy, max(last_used, use.last_used)
    return ModelLoad(
        bounds=entry.spec.bounds,
        hpa=entry.hpa,
        target=effective_target(entry.spec.bounds, scaling, entry.hpa),
        routed=routed,
        heard=heard,
        lag=lag,
        busy=busy,
        moving=", ".join(f"{count} {state.value}" for state, count in under_way.items()) if under_way else "",
        last_used=last_used,
        last_step_time=scaling.last_step_time if scaling is not None else 0.0,
        changed=entry.changed,
        calm_since=entry.calm_since,
        wanted_until=entry.wanted_until,
    )


def blocked_text(blocked: Mapping[str, Mapping[str, int]]) -> str:
    """For people: "memory on 2 replicas of triton"; a Server that has none at all says so."""
    parts = [
        f"{cause} {server}" if cause.startswith("no ") else f"{cause} on {counted(count, 'replica')} of {server}"
        for server, causes in sorted(blocked.items())
        for cause, count in sorted(causes.items())
    ]
    return ", ".join(parts) or "no server replica that could take it"


def _stepped(load: ModelLoad, step: Step, now: float) -> Scaling:
    return Scaling(Owner.SCHEDULER, step.target, as_written(load.bounds), now, f"{load.target} → {step.target}: {step.why}")


def _more(load: ModelLoad, now: float, limits: ScaleLimits, room: Callable[[int], Room]) -> Step | Hold:
    pressure = f"mean lag {load.lag / load.heard:.0f} on {counted(load.heard, 'replica')} ≥ {limits.lag_threshold:g}"
    count = load.target
    if load.routed < count:
        return Hold(f"{pressure}, but only {load.routed} of {count} replicas serve")
    pause = max(limits.up_cooldown, limits.period)
    if now - load.last_step_time < pause:
        return Hold(f"{pressure}, but the last step was {now - load.last_step_time:.0f} s ago, {pause:.0f} s must pass")
    lag = load.lag * load.routed / load.heard  # the silent ones have as much as the others
    want = min(count + max(1, int(count * limits.max_step)), math.ceil(lag / (AIM * limits.lag_threshold)))
    limited = ""
    if load.bounds.maximum is not None and want > load.bounds.maximum:
        limited = f"maxReplicas is {load.bounds.maximum}"
        want = load.bounds.maximum
    if want <= count:
        return Hold(f"{pressure}, but {limited}", limited)
    fits, blocked = room(want - count)
    lacking = max(want - count - fits, 0)
    if lacking:
        limited = f"no room for {lacking} more: {blocked_text(blocked)}"
    if fits < 1:
        return Hold(f"{pressure}, but {limited}", limited, lacking)
    return Step(want - lacking, pressure, limited, lacking)


def _fewer(load: ModelLoad, now: float, limits: ScaleLimits) -> Step | Hold:
    idle = now - max(load.last_used or load.last_step_time, load.changed)
    unused = idle >= limits.inactive and load.lag == 0 and load.heard == load.routed
    text = f"lag {load.lag:.1f} and busy {load.busy:.2f} on {counted(load.heard, 'replica')}"
    floor = floor_of(load.bounds)
    if load.target <= floor:
        return Hold(f"{text}; {floor} is the lowest count", "")
    if load.target == 1 and not unused:
        return Hold(f"{text}; to 0 only after {limits.inactive:.0f} s without a request", "")
    if load.target == 1 and now < load.wanted_until:
        return Hold("a request was held for it a short while ago", "")
    if now - load.last_step_time < limits.down_window:
        return Hold(f"{text}; the last step was {now - load.last_step_time:.0f} s ago, {limits.down_window:.0f} s must pass before one down", "")
    if unused:
        return Step(load.target - 1, f"no request for {idle:.0f} s ≥ {limits.inactive:.0f}")
    if is_calm(load, limits) and load.calm_since is not None and now - load.calm_since >= limits.down_window:
        remaining = counted(min(load.routed, load.target - 1), "replica")
        return Step(load.target - 1, f"{text} for {now - load.calm_since:.0f} s: {remaining} can bear that")
    return Hold(text, "")
