"""Where the models of leaving replicas go: one plan for all that leave, so that none of them is moved to another that leaves.

The most used go first. Who has another copy that can bear the load needs no new place; others are loaded elsewhere, a few at a time on each replica,
and stay where they are until then. Who fits nowhere holds up nobody else: it serves where it is until the deadline.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from wakeful.cluster.planning.draft import Draft, is_coming, use_of
from wakeful.cluster.planning.moves import copies_of, place_copies, target_of, tell_short
from wakeful.cluster.planning.revisions import to_load
from wakeful.cluster.planning.scaling import limits_in
from wakeful.cluster.planning.world import ModelEntry, Placement, State

BUSY = "has enough to load"
STALLS = "does not get on with what it loads"


class Move(NamedTuple):
    """What becomes of one copy on a leaving replica."""

    model: str
    source: Placement
    what: Literal["load", "spare", "wait", "nowhere"]
    """`load`: it is loaded elsewhere; `spare`: the other copies bear its load; `wait`: for its turn; `nowhere`: no replica has room."""
    blocked: Mapping[str, Mapping[str, int]]


class _Targets:
    """Replicas that may take copies, and the loads under way there."""

    def __init__(self, leaving: frozenset[str], draft: Draft) -> None:
        self._draft = draft
        self._loads = {replica.uid: 0 for replica in draft.world.replicas.values() if replica.placeable and replica.uid not in leaving}
        self._oldest: dict[str, float] = {}
        for name in draft.world.models:
            for uid, placement in draft.world.models[name].placements.items():
                if is_coming(placement) and uid in self._loads:
                    self.loads_one(uid, placement.since)  # one that gets on, but for so long, is a load that may never end

    def loads_one(self, uid: str, since: float) -> None:
        self._loads[uid] += 1
        self._oldest[uid] = min(self._oldest.get(uid, since), since)

    def all_busy(self) -> bool:
        return all(count >= self._draft.limits.drain_loads for count in self._loads.values()) and bool(self._loads)

    def stalls(self, uid: str) -> bool:
        """It has had a load for so long that it may never end."""
        return self._draft.now - self._oldest.get(uid, self._draft.now) >= self._draft.limits.drain_stall

    def why_not(self, uid: str) -> str:
        loads = self._loads.get(uid)
        if loads is None:
            return "leaving"
        return BUSY if loads >= self._draft.limits.drain_loads else ""

    def why_not_now(self, uid: str) -> str:
        """As `why_not`, and those that stall are left alone."""
        return self.why_not(uid) or (STALLS if self.stalls(uid) else "")


def plan_drain(leaving: frozenset[str], draft: Draft) -> list[Move]:
    """Moves for all serving copies on these replicas that still need one. New copies are in the draft, and count there at once."""
    targets = _Targets(leaving, draft)
    moves: list[Move] = []
    for name in _waiting(leaving, draft):
        model = draft.world.models[name]
        copies = copies_of(model, draft)
        sources = [placement for placement in copies.leaving + copies.serving if placement.replica in leaving]
        staying = [placement for placement in copies.serving if placement.replica not in leaving]
        coming = sum(placement.replica not in leaving and not targets.stalls(placement.replica) for placement in copies.coming)
        need = target_of(model) - len(staying) - coming
        others = [placement for placement in staying if draft.world.is_available(name, placement)]
        for source in sources[: max(need, 0)]:
            if _can_bear(model, len(others), draft):
                moves.append(Move(name, source, "spare", {}))
            else:
                moves.append(_load_elsewhere(name, source, targets, draft))
    return moves


def carry_out(moves: list[Move], draft: Draft) -> None:
    """Unroute what others bear, and tell who has no place to go."""
    nowhere: dict[str, list[Move]] = {}
    for move in moves:
        model = draft.model(move.model)
        if move.what == "spare":
            draft.move(model, move.source, State.DRAINING)
        unplaced = nowhere.setdefault(move.model, [])
        if move.what == "nowhere":
            unplaced.append(move)
    for name, unplaced in nowhere.items():
        tell_short(draft.model(name), len(unplaced), unplaced[-1].blocked if unplaced else {}, draft)


def _waiting(leaving: frozenset[str], draft: Draft) -> list[str]:
    """Models with a serving copy there, the most used first."""
    waiting: list[tuple[float, float, str]] = []
    for name in draft.world.models:
        model = draft.world.models[name]
        if any((placement := model.placements.get(uid)) is not None and placement.state is State.ROUTED for uid in leaving):
            use = use_of(model, draft.world)
            waiting.append((-use.busy - use.lag, -use.last_used, name))
    return [name for *_, name in sorted(waiting)]


def _can_bear(model: ModelEntry, others: int, draft: Draft) -> bool:
    """Have so many copies, where all gateways send requests, room to spare for all of its load?"""
    if not others:
        return False
    use, limits = use_of(model, draft.world), limits_in(draft.world, model)
    return use.busy <= limits.busy * others and use.lag < limits.lag_threshold * others


def _load_elsewhere(name: str, source: Placement, targets: _Targets, draft: Draft) -> Move:
    model = draft.world.models[name]
    if to_load(model) is None or draft.now < model.retry_at or targets.all_busy():
        return Move(name, source, "wait", {})
    placed = place_copies(draft.model(name), 1, draft, targets.why_not_now)
    if placed.missing:
        placed = place_copies(draft.model(name), 1, draft, targets.why_not)
    for uid in placed.chosen:
        targets.loads_one(uid, draft.now)
        return Move(name, source, "load", {})
    busy = any(BUSY in causes for causes in placed.blocked.values())
    return Move(name, source, "wait" if busy else "nowhere", placed.blocked)
