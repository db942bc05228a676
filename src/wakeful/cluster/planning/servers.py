"""When the scheduler gives a Server another replica, and when it takes one away.

Only where `minReplicas` or `maxReplicas` is written and no HPA targets the Server. It grows by what models lack, which models' scaling never does
itself, and shrinks when what the last replica has would fit on the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wakeful.cluster.planning.counts import Hold, Step, as_written, effective_target, floor_of, is_off, owner_of, why_not_ours
from wakeful.cluster.planning.effects import Effect, Mark, Note, ScaleServer
from wakeful.cluster.planning.ledger import footprint
from wakeful.cluster.planning.world import Bounds, ModelEntry, Owner, Replica, Scaling, ServerEntry, State, World


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Of all Servers."""

    short: float = 15.0
    """Seconds that a model must have lacked replicas: what is only on its way to another place needs no new pod."""
    window: float = 300.0
    """Seconds for which the last replica must have been dispensable, and that must have passed since the last step."""


class ServerLoad(NamedTuple):
    """A Server as its scaling sees it."""

    bounds: Bounds
    hpa: bool
    target: int
    present: int
    """Replicas that are ready, and those that are lost with their node: a StatefulSet replaces none of these."""
    needed: int
    """More replicas that what models lack would fill."""
    needed_by: str
    """Who lacks them, for people."""
    most_wanted: int
    """Largest count of one of its models."""
    busy_with: str
    """What is loading or leaving there; empty: nothing."""
    last_step_time: float
    fits_since: float | None
    """Since when the models of the highest ordinal would fit elsewhere, without a break."""


def scale_server(load: ServerLoad, now: float, limits: ServerLimits) -> Step | Hold:
    """Up at once by all that is needed, down by one."""
    resting = why_not_ours(load.bounds, load.hpa)
    if resting:
        return Hold(resting)
    if load.needed:
        return _more(load)
    floor = floor_of(load.bounds)
    if load.target <= floor:
        return Hold(f"{floor} is the lowest count")
    if load.most_wanted >= load.target:
        return Hold(f"a model has {load.most_wanted} replicas, one on each")
    if load.fits_since is None:
        return Hold("what the last replica has does not fit on the others")
    if load.busy_with:
        return Hold(f"the others could take what the last replica has, but {load.busy_with}")
    since = max(load.fits_since, load.last_step_time)
    if now - since < limits.window:
        return Hold(f"the others could take what the last replica has since {now - since:.0f} s; {limits.window:.0f} s must pass")
    return Step(load.target - 1, f"for {now - since:.0f} s the others could have taken what the last replica has")


def server_effects(world: World, name: str, now: float, limits: ServerLimits, fits: Callable[[str], bool]) -> list[Effect]:
    """What the rules say of one Server: another count, or only what they remember.

    `fits(uid)`: would the drain plan of this replica find a place for all that it has? Asked only when everything else allows fewer replicas.
    """
    entry = world.servers[name]
    if owner_of(entry.spec.bounds, entry.hpa) is not Owner.SCHEDULER and entry.fits_since is None:
        return []
    load = load_of(world, name, now, limits)
    answer = scale_server(load, now, limits)
    dispensable = not why_not_ours(load.bounds, load.hpa) and not load.needed and load.most_wanted < load.target > floor_of(load.bounds)
    if isinstance(answer, Step):
        why = f"{load.target} → {answer.target}: {answer.why}"
        scaling = Scaling(Owner.SCHEDULER, answer.target, as_written(load.bounds), now, why)
        # Another replica is the last one now, and has to be looked at for the whole window.
        forgotten: list[Effect] = [] if entry.fits_since is None else [Mark("server", name, {"fits_since": None})]
        return [ScaleServer(name, scaling), *forgotten, Note("Server", name, "Normal", "Scaled", why)]
    last = max(_staying(world, name), key=lambda replica: replica.ordinal, default=None)
    beyond = last is not None and last.ordinal >= load.target  # it has yet to go, and what it has with it
    if not dispensable or beyond or (last is not None and last.ordinal == load.target - 1 and not fits(last.uid)):
        return [] if entry.fits_since is None else [Mark("server", name, {"fits_since": None})]
    return [] if entry.fits_since is not None else [Mark("server", name, {"fits_since": now})]


def load_of(world: World, name: str, now: float, limits: ServerLimits) -> ServerLoad:
    """What scaling has to know of a Server."""
    entry = world.servers[name]
    target = target_of(entry)
    replicas = {uid: replica for uid, replica in world.replicas.items() if replica.server == name}
    loading = most_wanted = 0
    lacking: list[tuple[str, int, int]] = []
    for model in world.models.values():
        home = _home_of(world, model)
        if (home or _first_claimed(world, model)) != name:
            continue
        if home is not None:
            most_wanted = max(most_wanted, _wanted(model))
        loading += sum(uid in replicas and placement.state in (State.ASSIGNED, State.LOADING) for uid, placement in model.placements.items())
        missing = _missing(model, now - (limits.short if target else 0.0))
        if missing and _helps(model, entry, replicas.values()):
            lacking.append((model.spec.name, missing, _footprint(model)))
    leaving = sum(replica.leaving_by is not None and not replica.lost for replica in replicas.values())
    present = sum(replica.lost or (replica.ready and replica.leaving_by is None) for replica in replicas.values())
    capacity = max((replica.agent.capacity for replica in replicas.values() if replica.agent is not None), default=None)
    busy = ", ".join(f"{what}: {count}" for what, count in (("copies are loading", loading), ("replicas are leaving", leaving)) if count)
    step_time = entry.scaling.last_step_time if entry.scaling is not None else 0.0
    needed = replicas_needed([(missing, size) for _, missing, size in lacking], capacity)
    told = ", ".join(f"{model} ({missing})" for model, missing, _ in sorted(lacking)[:5])
    if len(lacking) > 5:
        told += f" and {len(lacking) - 5} more"
    return ServerLoad(entry.spec.bounds, entry.hpa, target, present, needed, told, most_wanted, busy, step_time, entry.fits_since)


def target_of(entry: ServerEntry) -> int:
    return effective_target(entry.spec.bounds, entry.scaling, entry.hpa)


def replicas_needed(lacking: Iterable[tuple[int, int]], capacity: int | None) -> int:
    """Empty replicas of `capacity` bytes that the missing copies would fill: (copies, bytes of one) each.

    First fit, the largest first; copies of one model each on another replica. What lacks room is in use, hence nothing is overcommitted here. An
    unknown capacity (there was never a replica) counts as without bound.
    """
    free: list[int] = []
    for copies, size in sorted(lacking, key=lambda want: -want[1]):
        left = copies
        for index, room in enumerate(free):
            if not left:
                break
            if room >= size:
                free[index] -= size
                left -= 1
        free.extend([(capacity if capacity is not None else 1 << 62) - size] * left)
    return len(free)


def _more(load: ServerLoad) -> Step | Hold:
    lack = f"models lack replicas: {load.needed_by}"
    if load.present < load.target:
        return Hold(f"{lack}; {load.present} of {load.target} server replicas are ready, the others first")
    want = load.target + load.needed
    if load.bounds.maximum is not None and want > load.bounds.maximum:
        limited = f"maxReplicas is {load.bounds.maximum}"
        if load.target >= load.bounds.maximum:
            return Hold(f"{lack}, but {limited}", limited, load.needed)
        return Step(load.bounds.maximum, lack, limited, want - load.bounds.maximum)
    return Step(want, lack)


def _staying(world: World, name: str) -> list[Replica]:
    return [replica for replica in world.replicas.values() if replica.server == name and replica.leaving_by is None]


def _home_of(world: World, model: ModelEntry) -> str | None:
    """The Server where a model lives, or has to."""
    for uid in model.placements:
        if uid in world.replicas:
            return world.replicas[uid].server
    return model.spec.server


def _first_claimed(world: World, model: ModelEntry) -> str | None:
    """The Server that grows for a model that lives nowhere: the first by name that may and would help. Only one, or all would grow for it."""
    if model.short is None:
        return None
    for name, entry in sorted(world.servers.items()):
        ours = owner_of(entry.spec.bounds, entry.hpa) is Owner.SCHEDULER and not is_off(entry.spec.bounds)
        room = entry.spec.bounds.maximum is None or target_of(entry) < entry.spec.bounds.maximum
        if ours and room and _helps(model, entry, (replica for replica in world.replicas.values() if replica.server == name)):
            return name
    return None


def _helps(model: ModelEntry, entry: ServerEntry, replicas: Iterable[Replica]) -> bool:
    """Could a new replica of this Server take the model? What nobody knows yet (there was never a replica) is tried."""
    agents = [replica.agent for replica in replicas if replica.agent is not None]
    if agents and _footprint(model) > max(agent.capacity for agent in agents):
        return False
    known = entry.spec.capabilities or frozenset().union(*(agent.capabilities for agent in agents))
    return not known or model.spec.requirements <= known


def _footprint(model: ModelEntry) -> int:
    return footprint(model.footprint, model.spec.memory, model.artifact_bytes)


def _missing(model: ModelEntry, before: float) -> int:
    """Copies that a model has lacked since `before` or longer. For one that does not load, another replica would be one more to fail on."""
    if model.failures or model.spec.errors:
        return 0
    short = model.short.missing if model.short is not None and model.short.since <= before else 0
    return short + (model.lacking if model.lacking and model.lacking_since <= before else 0)


def _wanted(model: ModelEntry) -> int:
    return effective_target(model.spec.bounds, model.scaling, model.hpa) + model.lacking
