"""What must hold at every step, and what is counted on the way."""

from collections.abc import Iterable, Mapping

import numpy as np

from tests.cluster.simulation.ground import Broken, Daemon
from tests.cluster.simulation.report import Report
from tests.cluster.simulation.shape import BROKEN, START
from tests.cluster.simulation.traffic import Floats, Traffic
from wakeful.cluster.planning.counts import clamp
from wakeful.cluster.planning.effects import Effect, Put, SetTarget
from wakeful.cluster.planning.moves import target_of
from wakeful.cluster.planning.world import ModelEntry, ModelSpec, Placement, State, World

ALIVE = {State.ASSIGNED, State.LOADING, State.ROUTED}
SETTLING = 180
"""Seconds at the beginning in which models may be without a copy: those that came to the slow replica."""
REVERSAL = 300.0
"""Seconds within which a step back is one too many."""


class Judge:
    def __init__(self, report: Report, specs: Mapping[str, ModelSpec], daemons: Mapping[str, Daemon]) -> None:
        self._report, self._specs, self._daemons = report, specs, daemons
        self._names = list(specs)
        self._ranged = np.array([spec.bounds.ranged for spec in specs.values()])
        self._steps: dict[str, tuple[int, float]] = {}
        self._excused: dict[str, float] = {}

    def excuse(self, names: Iterable[str], until: float) -> None:
        """They lost a copy with its replica: what they lack until then is no fault of the rules."""
        for name in names:
            self._excused[name] = until

    def second(self, now: float, traffic: Traffic, copies: Floats, world: World) -> None:
        report = self._report
        report.copies += float(copies.sum()) / report.seconds
        for index in np.flatnonzero(traffic.is_overloaded & self._ranged):
            name = self._names[index]
            entry = world.models[name]
            report.overloaded += 1
            report.cramped += bool(entry.short or entry.lacking or self._excused.get(name, 0.0) > now)
        for index in np.flatnonzero(traffic.is_unserved):
            name = self._names[index]
            may_be_away = name == BROKEN or self._specs[name].bounds.minimum == 0 or self._excused.get(name, 0.0) > now
            report.unserved += not may_be_away and now > START + SETTLING

    def step(self, effect: SetTarget, now: float, before: int) -> None:
        """A target is about to be followed."""
        name, target, bounds = effect.model, effect.scaling.target, self._specs[effect.model].bounds
        if target != (clamp(bounds, target) if bounds.ranged else bounds.replicas):
            raise Broken(f"{now:.0f} s: {name} is to have {target} replicas, out of {bounds}")
        if target == before:
            return
        report = self._report
        report.steps.append((now, name, target))
        if before == 0:
            report.wakes += 1
        elif target == 0:
            report.sleeps += 1
        else:
            direction = 1 if target > before else -1
            last, at = self._steps.get(name, (0, 0.0))
            report.ups += direction > 0
            report.downs += direction < 0
            report.reversals += last == -direction and now - at < REVERSAL
            self._steps[name] = (direction, now)

    def puts(self, effects: Iterable[Effect], before: Mapping[str, Mapping[str, Placement]], world: World, now: float) -> None:
        """Carried out already: routed only where it is ready; new copies only for what was missing, whatever room there is."""
        for effect in effects:
            if not isinstance(effect, Put):
                continue
            name, placement = effect
            was = before[name].get(placement.replica)
            if placement.state is State.ROUTED and (was is None or was.state is not State.ROUTED):
                held = self._daemons[placement.replica].held.get(name)
                if held is None or held.state != "ready" or held.revision != placement.revision:
                    raise Broken(f"{now:.0f} s: {name} is routed to {placement.replica}, which says {held}")
            if placement.state is State.ASSIGNED and (was is None or was.state is State.FAILED):
                entry = world.models[name]
                staying = [other for uid, other in entry.placements.items() if other.state in ALIVE and _stays(world, uid)]
                # A drain passes a target that stalls, and may load once more for that.
                if len(staying) > target_of(entry) and len(staying) == len(entry.placements):
                    raise Broken(f"{now:.0f} s: {name} gets a copy on {placement.replica}, and has enough: {staying}")

    def replanned(self, names: Iterable[str], world: World, now: float) -> None:
        """After the one pass since a replica was lost: its models have another place, or it is told that there is none."""
        count = 0
        for name in names:
            entry = world.models[name]
            there = sum(placement.state is not State.FAILED and uid in self._daemons for uid, placement in entry.placements.items())
            missing = entry.short.missing if entry.short is not None else 0
            if there + missing < target_of(entry):
                raise Broken(f"{now:.0f} s: {name} lost a copy and was not planned anew: {entry.placements}")
            count += 1
        self._report.lost_replanned.append(count)

    def end(self, world: World, copies: Floats, now: float) -> None:
        """Nothing has happened for a while: every model has what it is to have, or it is told why not."""
        for name, serving in zip(self._names, copies.tolist(), strict=True):
            entry = world.models[name]
            if name != BROKEN and serving < target_of(entry) and not entry.short and not _under_way(entry, now):
                raise Broken(f"at the end {name} has {serving:.0f} of {target_of(entry)} copies, and nobody says why: {entry}")


def _stays(world: World, uid: str) -> bool:
    replica = world.replicas.get(uid)
    return replica is not None and replica.leaving_by is None and not replica.lost


def _under_way(entry: ModelEntry, now: float) -> bool:
    return any(placement.state in {State.ASSIGNED, State.LOADING} or placement.since > now - 10 for placement in entry.placements.values())
