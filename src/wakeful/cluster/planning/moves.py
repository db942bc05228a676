"""The life of a model's copies: a new one serves, and all gateways know, before an old one stops; and what nobody is sent to is unloaded.

Assigned ─▶ Loading ─▶ Routed ─▶ Draining ─▶ gone;  Assigned, Loading, Routed ─▶ Failed ─▶ Assigned, on another replica first.

`observe` follows what replicas say and is told by nobody; `next_moves` decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wakeful.cluster.planning.counts import effective_target
from wakeful.cluster.planning.draft import Draft, is_coming
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.placement import Filter, Placed, place
from wakeful.cluster.planning.revisions import forget_failure, serves, to_load, welcome
from wakeful.cluster.planning.world import Held, ModelEntry, Placement, Replica, Short, State


@dataclass(slots=True)
class Copies:
    """A model's copies by what they are good for."""

    serving: list[Placement] = field(default_factory=list)
    """Routed, where they may stay."""
    coming: list[Placement] = field(default_factory=list)
    """Assigned or loading, where they may stay."""
    leaving: list[Placement] = field(default_factory=list)
    """Routed on replicas that leave."""
    misplaced: list[Placement] = field(default_factory=list)
    """Routed where, by a changed pin or requirement, they may not stay."""
    useless: list[Placement] = field(default_factory=list)
    """Assigned or loading where they may not stay, or failed there."""
    draining: list[Placement] = field(default_factory=list)
    failed: list[Placement] = field(default_factory=list)


def target_of(model: ModelEntry) -> int:
    """Copies that it is to have."""
    return 0 if model.gone else effective_target(model.spec.bounds, model.scaling, model.hpa)


def copies_of(model: ModelEntry, draft: Draft) -> Copies:
    copies = Copies()
    leaving, right = draft.leaving, draft.sites.right(model.spec)
    for uid, placement in model.placements.items():
        stays = uid in right and uid not in leaving
        if placement.state is State.ROUTED:
            (copies.serving if stays else copies.leaving if uid in leaving else copies.misplaced).append(placement)
        elif placement.state is State.DRAINING:
            copies.draining.append(placement)
        elif not stays:
            copies.useless.append(placement)
        else:
            (copies.failed if placement.state is State.FAILED else copies.coming).append(placement)
    return copies


def pause(failures: int, limits: Limits) -> float:
    """Seconds after so many failed loads in a row."""
    return min(limits.retry_first * 2 ** min(failures - 1, 16), limits.retry_longest) if failures > 0 else 0.0


# ── what replicas say ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def observe(model: ModelEntry, draft: Draft) -> None:
    """Bring each copy into the state that its replica says, and give up those whose replica is gone."""
    name = model.spec.name
    served, learnt = serves(model), False
    for uid, placement in list(model.placements.items()):
        replica = draft.world.replicas.get(uid)
        if replica is None or replica.lost:
            draft.drop(model, uid)
            if placement.state is State.ROUTED:
                model.changed = draft.now
            continue
        held = replica.agent.held.get(name) if replica.agent is not None else None
        if placement.state is State.ROUTED:
            steady = held is not None and held.revision == placement.revision and held.state == "ready" and not placement.previous
            if replica.agent is not None and not steady:
                _observe_routed(model, placement, held, draft)
        elif is_coming(placement):
            _observe_coming(model, placement, draft)
        elif placement.state is State.DRAINING and _is_done(name, replica) and draft.may_unload and not draft.may_be_sent(model, uid):
            draft.drop(model, uid)
        if held is not None:
            learnt |= _learn(model, held)
    forget_failure(model)
    _forget_failures(model, draft)
    if learnt:
        draft.weigh_anew(model)
    if serves(model) != served:
        model.changed = draft.now


def _forget_failures(model: ModelEntry, draft: Draft) -> None:
    """Of copies of which something else is asked for now than what failed there."""
    failed = [placement for placement in model.placements.values() if placement.state is State.FAILED]
    now = welcome(model) if failed else frozenset()
    for placement in failed:
        if placement.revision not in now:
            draft.drop(model, placement.replica)
            model.failures, model.retry_at = 0, 0.0


def _is_done(name: str, replica: Replica) -> bool:
    """Nothing is in flight there that an unload would break. To have been `quiet` before it was told to finish this time is not enough."""
    if replica.agent is None:
        return False
    if name not in replica.agent.held:
        return True
    held = replica.agent.held_as_told(name)
    return held is not None and (held.state == "quiet" or not held.served)


def _observe_coming(model: ModelEntry, placement: Placement, draft: Draft) -> None:
    agent = draft.replica(placement.replica).agent
    held = agent.held_as_told(model.spec.name) if agent is not None else None
    if held is not None and held.revision == placement.revision:
        if held.state == "ready":
            draft.put(model, placement._replace(state=State.ROUTED, since=draft.now, tries=0, error="", previous="", progress=0))
            model.failures, model.retry_at = 0, 0.0
            return
        if held.state == "failed":
            _fail(model, placement, held.error, draft)
            return
        if held.state == "loading" and placement.state is State.ASSIGNED:
            draft.move(model, placement._replace(progress=held.progress), State.LOADING)
            return
        if _gets_on(model, placement, held, draft):
            return
    worked = agent.worked if agent is not None and placement.state is State.ASSIGNED else 0.0  # it waits for its turn
    stood = draft.now - max(placement.stood_since, worked)
    if draft.settled and stood >= draft.limits.progress:
        _fail(model, placement, f"no progress in {stood:.0f} s of {placement.state.value}", draft)


def _gets_on(model: ModelEntry, placement: Placement, held: Held, draft: Draft) -> bool:
    """Has a load come further since it was last looked at? A long one has not failed as long as it does."""
    if held.state != "loading" or held.progress == placement.progress:
        return False
    draft.put(model, placement._replace(progress=held.progress, progressed=draft.now))
    return True


def _observe_routed(model: ModelEntry, placement: Placement, held: Held | None, draft: Draft) -> None:
    """It does not say that it serves what it should: another revision is on its way there, or it serves no more."""
    served = held.served if held is not None else ""
    if held is None or not served:
        model.changed = draft.now
        fallen = placement._replace(revision=to_load(model) or model.spec.revision, previous="")
        if held is not None and held.state == "failed":
            _fail(model, fallen, held.error, draft)
        else:
            draft.move(model, fallen, State.ASSIGNED if held is None else State.LOADING)
        return
    if served == placement.revision:
        if placement.previous:
            draft.put(model, placement._replace(previous="", since=draft.now))
        return
    if held.revision == placement.revision and placement.previous == served and _gets_on(model, placement, held, draft):
        return
    failed = held.state == "failed" and held.revision == placement.revision
    overdue = draft.now - placement.stood_since >= draft.limits.progress
    if failed or overdue:
        error = held.error if failed else f"revision {placement.revision} did not get on for {draft.now - placement.stood_since:.0f} s"
        draft.put(model, placement._replace(revision=served, previous="", since=draft.now, error=error))
        model.revision_failed, model.changed = placement.revision, draft.now
        draft.note(model.spec.name, "RolloutStopped", f"{placement.revision} failed on {placement.pod}: {error}; {served} serves on")
    elif placement.previous != served:
        draft.put(model, placement._replace(previous=served))


def _fail(model: ModelEntry, placement: Placement, error: str, draft: Draft) -> None:
    """One load has failed: the first time another replica is tried at once, then after a pause."""
    draft.put(model, placement._replace(state=State.FAILED, since=draft.now, tries=placement.tries + 1, error=error))
    model.failures += 1
    model.retry_at = draft.now + pause(model.failures - 1, draft.limits)
    model.changed = draft.now
    draft.note(model.spec.name, "LoadFailed", f"on {placement.pod}, try {placement.tries + 1}: {error}")


def _learn(model: ModelEntry, held: Held) -> bool:
    """What the files turned out to be, and how large. Was that news?"""
    resolves = bool(held.artifact) and model.resolved != model.spec.revision
    if held.revision != model.spec.revision or not (resolves or held.footprint > model.footprint):
        return False
    if resolves:
        model.resolved, model.artifact, model.artifact_bytes, model.footprint = held.revision, held.artifact, held.artifact_bytes, 0
    model.footprint = max(model.footprint, held.footprint)
    return True


# ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def next_moves(model: ModelEntry, draft: Draft) -> None:
    """One step nearer to the target. While not all agents have spoken, nothing is decided."""
    if not draft.settled:
        return
    target = target_of(model)
    copies = copies_of(model, draft)
    for placement in copies.useless:
        draft.end(model, placement) if is_coming(placement) else draft.drop(model, placement.replica)
    _roll(model, copies, draft)
    need = target - len(copies.serving) - len(copies.coming)
    if need > 0:
        _fill(model, copies, need, draft)
    else:
        model.short = None
    _retire(model, copies, target, draft)


def _roll(model: ModelEntry, copies: Copies, draft: Draft) -> None:
    """Give another revision to one serving copy after the other; it serves the old one until it has the new. What serves nothing gets it at once."""
    revision, fresh, expected = model.spec.revision, to_load(model), welcome(model) if copies.coming else frozenset()
    for index, placement in enumerate(copies.coming):
        if placement.revision not in expected and fresh is not None:
            copies.coming[index] = placement._replace(revision=fresh, state=State.ASSIGNED, since=draft.now, tries=0, error="")
            draft.put(model, copies.coming[index])
    if model.spec.errors:
        return
    rolling = [placement for placement in copies.serving if placement.previous]
    for placement in rolling:
        if placement.revision != revision:  # it was on its way to one that nobody wants any more
            served = "" if placement.previous == revision else placement.previous
            draft.put(model, placement._replace(revision=revision, previous=served, since=draft.now, error=""))
    if rolling or model.revision_failed == revision:
        return
    old = [placement for placement in copies.serving if placement.revision != revision and draft.replica(placement.replica).agent is not None]
    if old:
        first = min(old, key=lambda placement: (draft.replica(placement.replica).ordinal, placement.replica))
        draft.put(model, first._replace(revision=revision, previous=first.revision, since=draft.now, error=""))


def _fill(model: ModelEntry, copies: Copies, need: int, draft: Draft) -> None:
    """Put the copies that are missing where there is room; those that a leaving replica still has are moved by the plan of the drain."""
    need -= _take_back(model, copies, need, draft)
    fresh = need - len(copies.leaving)
    if fresh <= 0:
        return
    if to_load(model) is None or draft.now < model.retry_at:
        tell_short(model, fresh, {}, draft)
    else:
        first = place_copies(model, fresh, draft, draft.why_not_yet)
        placed = place_copies(model, first.missing, draft) if first.missing else first
        tell_short(model, placed.missing, placed.blocked, draft)


def place_copies(model: ModelEntry, want: int, draft: Draft, also: Filter | None = None) -> Placed:
    """New copies on replicas where it has not failed first, then on those where it did, each after its own pause."""
    placed = _place(model, want, draft, frozenset(), also)
    if placed.missing:
        failed = (placement for placement in model.placements.values() if placement.state is State.FAILED)
        due = frozenset(one.replica for one in failed if draft.now >= one.since + pause(one.tries, draft.limits))
        if due:
            again = _place(model, placed.missing, draft, due, also)
            placed = Placed(placed.chosen + again.chosen, again.missing, again.blocked)
    return placed


def _place(model: ModelEntry, want: int, draft: Draft, due: frozenset[str], also: Filter | None) -> Placed:
    placed = place(draft.ask(model, due), want, draft.sites, also)
    for uid in placed.chosen:
        draft.assign(model, uid)
        agent = draft.replica(uid).agent
        held = agent.held_as_told(model.spec.name) if agent is not None else None
        if held is not None and held.state != "failed":  # it has it from before; a failure is of a load that is over
            _observe_coming(model, model.placements[uid], draft)
    return placed


def _take_back(model: ModelEntry, copies: Copies, need: int, draft: Draft) -> int:
    """Copies on their way out that are still there, and may stay after all."""
    taken, now = 0, welcome(model) if copies.draining else frozenset()
    for placement in copies.draining:
        replica = draft.replica(placement.replica)
        held = replica.agent.held.get(model.spec.name) if replica.agent is not None else None
        if taken == need or held is None or held.served not in now:
            continue
        if replica.placeable and replica.uid in draft.sites.right(model.spec):
            draft.put(model, placement._replace(state=State.ASSIGNED, revision=held.served, since=draft.now, previous=""))
            _observe_coming(model, model.placements[placement.replica], draft)
            taken += 1
    return taken


def tell_short(model: ModelEntry, missing: int, blocked: Mapping[str, Mapping[str, int]], draft: Draft) -> None:
    """So many copies are missing, and this is why. The time is when the first of them went missing."""
    since = model.short.since if model.short is not None else draft.now
    model.short = Short(missing, since, blocked) if missing else None


def _retire(model: ModelEntry, copies: Copies, target: int, draft: Draft) -> None:
    """Stop copies that are more than the target, as far as what remains serves and every gateway knows it: first those that cannot stay."""
    surplus = len(copies.serving) + len(copies.coming) - target
    if surplus <= 0 and not (copies.leaving or copies.misplaced or copies.failed):
        return
    available = sum(draft.world.is_available(model.spec.name, model.placements[placement.replica]) for placement in copies.serving)
    staying = _stop_waiting(model, copies.leaving, available >= target, draft)
    going = sorted(staying + copies.misplaced, key=lambda placement: _keep_first(model, placement, draft))
    spare = available + len(going) - target
    for placement in going[: max(spare, 0)]:
        draft.move(model, placement, State.DRAINING)
    if not staying or spare >= len(going):  # while something leaves, a second load beside one that stalls is no surplus
        _end_surplus(model, copies, surplus, available - target, draft)
    if available >= target:
        for placement in copies.failed:
            if model.placements.get(placement.replica) is placement:
                draft.drop(model, placement.replica)


def _stop_waiting(model: ModelEntry, leaving: list[Placement], moved: bool, draft: Draft) -> list[Placement]:
    """Unroute what has waited until the deadline of its pod; those for which there is time."""
    staying: list[Placement] = []
    for placement in leaving:
        leaving_by = draft.replica(placement.replica).leaving_by
        if leaving_by is None or draft.now < leaving_by:
            staying.append(placement)
            continue
        draft.move(model, placement, State.DRAINING)
        if not moved:
            draft.note(model.spec.name, "DrainDeadline", f"unrouted from {placement.pod}: its time is over, and no other replica has taken the model")
    return staying


def _end_surplus(model: ModelEntry, copies: Copies, surplus: int, spare: int, draft: Draft) -> None:
    """Those that do not serve yet, those where no requests come (their pod may not be ready), then the least used, of equals the highest ordinal.

    `spare`: copies that are available beyond the target.
    """
    is_available = {one.replica: draft.world.is_available(model.spec.name, model.placements[one.replica]) for one in copies.serving}
    victims = sorted(copies.coming, key=lambda placement: -draft.replica(placement.replica).ordinal)
    victims += sorted(copies.serving, key=lambda placement: (is_available[placement.replica], *_keep_first(model, placement, draft)))
    for victim in victims[: max(surplus, 0)]:
        placement = model.placements[victim.replica]
        if placement.state is State.ROUTED:
            able = is_available[victim.replica]
            if spare < able:
                return
            spare -= able
        draft.end(model, placement)


def _keep_first(model: ModelEntry, placement: Placement, draft: Draft) -> tuple[float, int]:
    """The least of these goes first."""
    replica: Replica = draft.replica(placement.replica)
    use = replica.agent.use.get(model.spec.name) if replica.agent is not None else None
    return (use.busy + use.lag if use is not None else 0.0, -replica.ordinal)
