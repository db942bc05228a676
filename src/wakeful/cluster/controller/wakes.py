"""What gateways are told of a model for which they hold a request, and of all models."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches

from wakeful.clock import Clock
from wakeful.cluster.controller.standings import standings
from wakeful.cluster.planning.counts import is_off
from wakeful.cluster.planning.revisions import to_load
from wakeful.cluster.planning.scaling import limits_in
from wakeful.cluster.planning.status import without_a_place
from wakeful.cluster.planning.world import State, World
from wakeful.cluster.wire import ModelsTold, WakeTold

NEAR = 3
"""Names that are told at most."""
LONGEST = 1000
"""Characters of a reason: over gRPC it goes in a trailer, and clients refuse those of some KiB."""


class Wakes:
    """Reads the world between the loop's steps; `woken` has the loop wake a model."""

    def __init__(self, world: World, woken: Callable[[str], None], now: Clock) -> None:
        self.opened = asyncio.Event()
        """Everything is known: before, a model that is not known yet is not one that is not there."""
        self._world, self._woken, self._now = world, woken, now
        self._changed: dict[str, asyncio.Future[None]] = {}

    def wake(self, model: str) -> WakeTold:
        told = answer(self._world, model)
        if told.state == "waking":
            self._woken(model)
        return told

    def models(self) -> ModelsTold:
        return standings(self._world, self._now())

    def changed(self, model: str) -> Awaitable[None]:
        """When the loop has done something about it. Several may wait for one model."""
        future = self._changed.get(model)
        if future is None or future.done():
            future = self._changed[model] = asyncio.get_running_loop().create_future()
        return asyncio.shield(future)

    def settle(self, models: Iterable[str]) -> None:
        """Something has changed for these models: whoever waits asks again."""
        for model in self._changed.keys() & set(models):
            future = self._changed.pop(model)
            if not future.done():
                future.set_result(None)


def answer(world: World, model: str) -> WakeTold:
    """How far it is."""
    entry = world.models.get(model)
    if entry is None or entry.gone:
        there = [name for name, one in world.models.items() if not one.gone]
        return WakeTold("unknown", f"there is no model {model}", get_close_matches(model, there, NEAR))
    if is_off(entry.spec.bounds):
        return WakeTold("off", f"{model} is switched off: its Model says replicas: 0")
    placements = entry.placements.values()
    if any(world.is_available(model, placement) for placement in placements):
        return WakeTold("routed")
    if to_load(entry) is None:
        return WakeTold("failed", "; ".join(entry.spec.errors)[:LONGEST])
    if placements and all(placement.state is State.FAILED for placement in placements):
        return WakeTold("failed", "; ".join(sorted(f"on {placement.pod}: {placement.error}" for placement in placements))[:LONGEST])
    return WakeTold("waking", without_a_place(entry, world)[:LONGEST], hold=limits_in(world, entry).hold)
