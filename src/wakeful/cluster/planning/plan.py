"""The whole plan: what is to be done now, given the world. The loop carries it out, and asks again when something has happened, and once a second.

Rounds over the models: what replicas say; counts; what leaving replicas leave behind; moves. Then the Servers.
"""

from collections.abc import Iterable
from dataclasses import replace

from wakeful.cluster.planning import counts, drain
from wakeful.cluster.planning.draft import Draft, is_coming
from wakeful.cluster.planning.effects import Drop, Effect, Mark, Put, Release, ScaleServer
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.moves import next_moves, observe, pause
from wakeful.cluster.planning.placement import place
from wakeful.cluster.planning.revisions import forget_sources, serves
from wakeful.cluster.planning.scaling import Room, model_effects
from wakeful.cluster.planning.servers import server_effects
from wakeful.cluster.planning.world import ModelEntry, Owner, State, World

UNLIMITED = 1 << 30


def plan(world: World, dirty: frozenset[str], now: float, limits: Limits) -> list[Effect]:
    """What is to be done. `dirty`: models of which something was observed since the last plan; others are looked at when it is their time."""
    due = [name for name, model in world.models.items() if model.look_at <= now or name in dirty]
    draft = Draft(world, due, now, limits)
    for name in due:
        observe(draft.model(name), draft)
    names = set(due)
    if draft.gained:
        _also(seekers(draft.world)[: limits.seekers], names, draft)
    ordered = _in_order(names, draft)
    for name in ordered:
        _count(name, draft)
    moved = _drain(draft) - names
    _also(moved, names, draft)
    for name in [*ordered, *_in_order(moved, draft)]:
        model = draft.model(name)
        next_moves(model, draft)
        forget_sources(model)
        _look_again(model, draft)
    _release(draft)
    _servers(draft)
    return draft.effects()


def affected(world: World, uid: str) -> frozenset[str]:
    """Models to look at when a replica has come, gone or changed: those that it has, and those that look for a place."""
    return frozenset(name for name, model in world.models.items() if uid in model.placements or model.short is not None)


def seekers(world: World) -> list[str]:
    """Models that look for a place: who serves nowhere first, then who has looked for longest."""
    looking = ((serves(model), model.short.since, name) for name, model in world.models.items() if model.short is not None)
    return [name for *_, name in sorted(looking)]


def give_room(effects: Iterable[Effect]) -> bool:
    """Is there more room than before, so that all who look for a place are to be looked at?"""
    return any(isinstance(effect, Drop) or (isinstance(effect, Put) and effect.placement.state is State.FAILED) for effect in effects)


def _also(more: Iterable[str], names: set[str], draft: Draft) -> None:
    """Look at these models, too: at what their replicas say first, for one may have gone of which nobody has heard yet in their name."""
    for name in more:
        if name not in names:
            names.add(name)
            observe(draft.model(name), draft)


def _in_order(names: Iterable[str], draft: Draft) -> list[str]:
    """Who serves nowhere finds a place before who wants more of them."""
    return sorted(names, key=lambda name: (serves(draft.world.models[name]), name))


def _count(name: str, draft: Draft) -> None:
    """Keep, reset or change the target of a model."""
    model = draft.model(name)
    if model.gone:
        return
    kept = counts.keep(model.spec.bounds, model.scaling, model.hpa, draft.now)
    if kept is not model.scaling:
        model.scaling = kept
    if draft.settled:
        draft.carry_out(model_effects(draft.world, name, draft.now, lambda more: _room(model, more, draft)))


def _room(model: ModelEntry, more: int, draft: Draft) -> Room:
    """Would so many more copies find a place? None is taken."""
    placed = place(draft.ask(model), more, draft.sites)
    return Room(len(placed.chosen), placed.blocked)


def _drain(draft: Draft) -> set[str]:
    """One plan for all that leave; the models that it touches."""
    if not draft.leaving or not draft.settled:
        return set()
    moves = drain.plan_drain(draft.leaving, draft)
    drain.carry_out(moves, draft)
    return {move.model for move in moves if move.what != "wait"}


def _look_again(model: ModelEntry, draft: Draft) -> None:
    """When time alone may change something. An earlier look that was fixed before stays."""
    now, limits = draft.now, draft.limits
    times = [now + limits.look]
    if model.short is not None:
        times.append(max(model.retry_at, now + 1) if model.retry_at > now else now + limits.short_retry)
    if model.scaling is not None and model.scaling.owner is Owner.SCHEDULER:
        times.append(now + limits.judge)
    leaving = draft.leaving
    for uid, placement in model.placements.items():
        if placement.state is State.ROUTED and not placement.previous and uid not in leaving:
            continue
        if placement.state is State.FAILED:
            times.append(placement.since + pause(placement.tries, limits))
        elif is_coming(placement) or placement.previous:
            times.append(placement.since + limits.progress)
        elif (leaving_by := draft.replica(uid).leaving_by) is not None:
            times.append(leaving_by)
    if not draft.may_unload:
        times.append(now + 1)  # the last agent may have spoken, or the last gateway have come
    first = min(time for time in times if time > now)
    if model.look_at <= now or first < model.look_at:
        model.look_at = first


def _release(draft: Draft) -> None:
    """Let pods end whose copies are gone, or whose time is over."""
    for uid, replica in draft.world.replicas.items():
        if replica.leaving_by is None or replica.released or replica.lost:
            continue
        left = any(uid in model.placements for model in draft.world.models.values())
        if (draft.settled and not left) or draft.now >= replica.leaving_by + draft.limits.drain_overtime:
            draft.others.append(Release(uid))


def _servers(draft: Draft) -> None:
    """Keep, reset or change the counts of Servers: in their own time, or when a model has begun to look for a place."""
    now, limits = draft.now, draft.limits
    for name, entry in list(draft.world.servers.items()):
        kept = counts.keep(entry.spec.bounds, entry.scaling, entry.hpa, now)
        if kept is not entry.scaling:
            draft.others.append(ScaleServer(name, kept))
            draft.world.servers[name] = replace(entry, scaling=kept)
        if kept.owner is not Owner.SCHEDULER or not draft.settled or (now < entry.look_at and not draft.short_anew):
            continue
        draft.carry_out(server_effects(draft.world, name, now, limits.servers, lambda uid: _fits_elsewhere(uid, draft)))
        if now >= entry.look_at:
            draft.others.append(Mark("server", name, {"look_at": now + limits.judge}))


def _fits_elsewhere(uid: str, draft: Draft) -> bool:
    """Would all that this replica has find a place at once, if it left? A plan that is thrown away."""
    trial = Draft(draft.world, (), draft.now, replace(draft.limits, drain_loads=UNLIMITED))
    return all(move.what in {"load", "spare"} for move in drain.plan_drain(frozenset({uid}), trial))
