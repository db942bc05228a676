"""The loop of the leader: the only writer of the world.

Hear, plan, write targets down, carry out, tell. What it waits for in between is short and bounded: a target's way to the API server. All else that is
slow has a task of its own.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from wakeful.clock import Clock, monotonic
from wakeful.cluster.controller import observing
from wakeful.cluster.controller.figures import Figures
from wakeful.cluster.controller.intake import Dirty, Intake
from wakeful.cluster.controller.telling import Telling, Workloads
from wakeful.cluster.controller.wakes import Wakes
from wakeful.cluster.controller.writer import Key, Writer
from wakeful.cluster.planning.apply import apply
from wakeful.cluster.planning.counts import is_derived
from wakeful.cluster.planning.effects import Drop, Effect, Forget, Mark, Note, Put, Release, ScaleServer, SetTarget
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.plan import give_room, plan, seekers
from wakeful.cluster.planning.world import Routing, State, World

TICK = 1.0
"""Seconds after which it plans, whether something was heard or not."""
GATHER = 0.01
"""Seconds in which what is heard is taken together."""
GREETINGS = 10.0
"""Seconds that a new leader waits for agents before it tells gateways anything; they keep what they have meanwhile. Longer than an agent's longest
pause: what the leader before could not write down is known to agents alone, and would be unrouted."""
LOT = 100
"""Models of which something was heard that one step looks at. With 50 copies each that is a twentieth of a second."""
API_REST = 5.0
"""Seconds without another try, after a target could not be written."""


class Attending(Protocol):
    """Who speaks to agents: see `agents`."""

    def release(self, uid: str) -> None: ...


class Gateways(Protocol):
    """Who speaks to Envoys: see `xds`."""

    @property
    def gateways(self) -> frozenset[str]: ...

    def routing(self) -> dict[str, Routing]: ...

    def open(self, inherited: dict[str, frozenset[str]]) -> None: ...


class Listing(Protocol):
    """A reflector."""

    listed: asyncio.Event


@dataclass(frozen=True, slots=True)
class Outlets:
    """Those who carry out what the loop has decided."""

    agents: Attending
    gateways: Gateways
    writer: Writer
    workloads: Workloads
    note: Callable[[Note], None]
    telling: Telling
    wakes: Wakes


class Loop:
    def __init__(self, world: World, intake: Intake, outlets: Outlets, limits: Limits, figures: Figures, now: Clock) -> None:
        self.opened = False
        """Everything is known, and gateways are told where requests go."""
        self._world, self._intake, self._to, self._limits, self._figures, self._now = world, intake, outlets, limits, figures, now
        self._models: dict[str, None] = {}
        """To be looked at, who has waited longest first."""
        self._rest = Dirty()
        self._settled = False
        self._api_rests_until = 0.0

    async def run(self, listings: Sequence[Listing]) -> None:
        await self._begin(listings)
        while True:
            await self._step()
            await self._heard(TICK)

    # ── a new leader ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, listings: Sequence[Listing]) -> None:
        """Learn how things stand, from statuses and pods and then from agents, and only then tell anybody anything."""
        for listing in listings:
            await listing.listed.wait()
        self._world.led_since = self._now()
        while True:
            self._gather(self._intake.take())
            if self._all_greeted() or self._now() >= self._world.led_since + GREETINGS:
                break
            await self._heard(0.1)
        for uid in self._greeted():
            observing.adopt(self._world, uid, self._now())
        inherited = {
            name: frozenset(uid for uid, one in entry.placements.items() if one.state in {State.ROUTED, State.DRAINING})
            for name, entry in self._world.models.items()
        }
        self._to.telling.models(self._world.models, self._world.replicas)
        self._to.gateways.open({name: uids for name, uids in inherited.items() if uids})
        self._gather(Dirty(set(self._world.models), set(self._world.servers)))
        self._to.wakes.opened.set()
        self.opened = True

    def _greeted(self) -> list[str]:
        return [uid for uid, replica in self._world.replicas.items() if replica.agent is not None]

    def _all_greeted(self) -> bool:
        return all(replica.agent is not None or not replica.ready or replica.lost for replica in self._world.replicas.values())

    # ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _heard(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._intake.news.wait()
                await asyncio.sleep(GATHER)

    def _gather(self, dirty: Dirty) -> None:
        self._models |= dict.fromkeys(dirty.models)
        self._rest.servers |= dirty.servers
        self._rest.greeted |= dirty.greeted
        self._rest.notes += dirty.notes

    async def _step(self) -> None:
        now, world = self._now(), self._world
        self._gather(self._intake.take())
        if now < world.led_since + self._limits.settle:
            self._settle(now)
        dirty = self._lot()
        world.routing, world.gateways = dict(self._to.gateways.routing()), len(self._to.gateways.gateways)
        began = monotonic()
        effects = plan(world, frozenset(dirty.models), now, self._limits)
        self._figures.planned(monotonic() - began, effects)
        effects = await self._written_ahead(effects)
        apply(world, effects)
        if give_room(effects):
            self._models |= dict.fromkeys(seekers(world))
        self._carry_out([*dirty.notes, *effects])
        models = dirty.models | {name for effect in effects if (name := _model_of(effect))}
        self._to.telling.models(models, dirty.greeted)
        self._to.wakes.settle(models)
        self._tell_servers(dirty.servers, models, effects)
        self._release(effects, dirty.greeted)

    def _lot(self) -> Dirty:
        """What this step is about: no more models at once than leave others their time."""
        lot = set(islice(self._models, LOT))
        for name in lot:
            del self._models[name]
        if self._models:
            self._intake.news.set()
        dirty, self._rest = Dirty(lot, self._rest.servers, self._rest.greeted, self._rest.notes), Dirty()
        return dirty

    def _settle(self, now: float) -> None:
        """Agents that come late tell of copies, too. Once all have come the planner need not wait longer, and everything is looked at."""
        for uid in self._rest.greeted & set(self._greeted()):
            self._models |= dict.fromkeys(observing.adopt(self._world, uid, now))
        all_greeted = self._all_greeted()
        if all_greeted and not self._settled:
            self._models |= dict.fromkeys(self._world.models)
        self._settled = all_greeted

    async def _written_ahead(self, effects: list[Effect]) -> list[Effect]:
        """Without those whose target could not be written: they are planned again."""
        ahead = [effect for effect in effects if isinstance(effect, SetTarget | ScaleServer) and not self._is_derived(effect)]
        if not ahead:
            return effects
        if self._now() < self._api_rests_until:
            written = [False] * len(ahead)
        else:
            written = await asyncio.gather(*map(self._write_ahead, ahead))
            if not all(written):
                self._api_rests_until = self._now() + API_REST
        models = {effect.model for effect, good in zip(ahead, written, strict=True) if isinstance(effect, SetTarget) and not good}
        servers = {effect.server for effect, good in zip(ahead, written, strict=True) if isinstance(effect, ScaleServer) and not good}
        self._models |= dict.fromkeys(models)
        return [effect for effect in effects if _model_of(effect) not in models and _server_of(effect) not in servers]

    def _is_derived(self, effect: SetTarget | ScaleServer) -> bool:
        """The next leader would come to the same target."""
        entry = self._world.models[effect.model] if isinstance(effect, SetTarget) else self._world.servers[effect.server]
        return is_derived(entry.spec.bounds, entry.scaling, entry.hpa, effect.scaling.target)

    async def _write_ahead(self, effect: SetTarget | ScaleServer) -> bool:
        world, to = self._world, self._to
        if isinstance(effect, SetTarget):
            kind, model = self._intake.kinds.get(("Model", effect.model)), copy(world.models[effect.model])
            if kind is None:
                return True
            model.scaling = effect.scaling
            return await to.writer.write_ahead(key := Key(kind, effect.model), to.telling.model_status(key, model))
        kind, server = self._intake.kinds.get(("Server", effect.server)), copy(world.servers[effect.server])
        if kind is None:
            return True
        server.scaling = effect.scaling
        return await to.writer.write_ahead(key := Key(kind, effect.server), to.telling.server_status(key, server))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Note):
                self._to.note(effect)

    def _tell_servers(self, servers: set[str], models: set[str], effects: Iterable[Effect]) -> None:
        """Their objects follow from them and their pods, their statuses from all models, too."""
        changed = servers | {effect.server for effect in effects if isinstance(effect, ScaleServer)}
        for name in changed:
            self._to.workloads.ensure(name)
        self._to.telling.servers(self._world.servers if models else changed)

    def _release(self, effects: Iterable[Effect], greeted: set[str]) -> None:
        """PreStop of these pods may return. Who says hello again may not have heard it."""
        for effect in effects:
            if isinstance(effect, Release):
                self._to.agents.release(effect.replica)
        for uid in greeted:
            if (replica := self._world.replicas.get(uid)) is not None and replica.released:
                self._to.agents.release(uid)
        for uid in self._intake.restarting:
            self._to.agents.release(uid)
        self._intake.restarting.clear()


def _model_of(effect: Effect) -> str | None:
    """The model that an effect is about."""
    match effect:
        case Put() | Drop() | SetTarget() | Forget():
            return effect.model
        case Mark(kind="model") | Note(kind="Model"):
            return effect.name
    return None


def _server_of(effect: Effect) -> str | None:
    match effect:
        case ScaleServer():
            return effect.server
        case Mark(kind="server") | Note(kind="Server"):
            return effect.name
    return None
