"""The world as it will be when a plan has been carried out.

The planner changes working copies and nothing else; what it wants done is the difference at the end. So the same world twice gives no second effect,
and a plan that is thrown away has changed nothing.
"""

from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import fields, replace
from functools import cached_property
from typing import Literal

from wakeful.cluster.planning.effects import Drop, Effect, Forget, Mark, Note, Put, SetTarget
from wakeful.cluster.planning.ledger import Account, Weight, footprint
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.placement import Ask, Sites
from wakeful.cluster.planning.revisions import to_load
from wakeful.cluster.planning.scaling import limits_in
from wakeful.cluster.planning.world import ModelEntry, Placement, Replica, Routing, State, Use, World

_OBSERVED = {"spec", "scaling", "hpa", "placements", "gone", "wanted_until"}
"""Fields of an entry that others set, or that have an effect of their own."""
_MARKED = tuple(field.name for field in fields(ModelEntry) if field.name not in _OBSERVED)
_NOWHERE = Routing()


def use_of(model: ModelEntry, world: World) -> Use:
    """Lag and busy share summed over all copies: those on their way out count as long as requests come to them."""
    lag, busy, last = 0.0, 0.0, 0.0
    name = model.spec.name
    for uid in model.placements:
        replica = world.replicas.get(uid)
        use = replica.agent.use.get(name) if replica is not None and replica.agent is not None else None
        if use is not None:
            lag, busy, last = lag + use.lag, busy + use.busy, max(last, use.last_used)
    return Use(lag=lag, busy=busy, last_used=last)


def server_of(model: ModelEntry, world: World) -> str | None:
    """The Server where most of its copies are that may stay; None: it has none."""
    if model.spec.server is not None:
        return model.spec.server
    present = (world.replicas.get(uid) for uid in holders(model))
    homes = [replica.server for replica in present if replica is not None and replica.leaving_by is None and not replica.lost]
    return max(sorted(set(homes)), key=homes.count, default=None)


def holders(model: ModelEntry) -> list[str]:
    """Replicas that have a copy, or are to have one, in their memory."""
    return [uid for uid, placement in model.placements.items() if placement.state is not State.FAILED]


def weigh(model: ModelEntry, world: World, now: float) -> Weight:
    """What one copy counts for. A model in use is in use wherever it is: requests are spread evenly."""
    use = use_of(model, world)
    active = now - use.last_used < limits_in(world, model).inactive or now < model.wanted_until
    size = footprint(model.footprint, model.spec.memory, model.artifact_bytes)
    return Weight(size, active, use.busy / max(len(model.placements), 1))


class Draft:
    """Working copies of the entries that a plan touches, and of all accounts."""

    def __init__(self, world: World, names: Iterable[str], now: float, limits: Limits) -> None:
        self.world = replace(world, models=dict(world.models), servers=dict(world.servers))
        """With working copies of what the plan has touched."""
        self.now = now
        self.limits = limits
        self.others: list[Effect] = []
        """Effects that are no change of a model."""
        self.gained = False
        """Somewhere there is more room than before."""
        self._before = world.models
        self._touched: dict[str, ModelEntry] = {}
        names = set(names)
        if len(world.ledger) < len(world.models):  # those restored take room, too, while they wait for their turn to be looked at
            names |= {name for name in world.models if name not in world.ledger}
        for name in names:
            entry = world.models[name]
            world.ledger.weigh(name, weigh(entry, world, now), holders(entry))

    def model(self, name: str) -> ModelEntry:
        """To be changed. `world.models[name]` is to be read."""
        entry = self._touched.get(name)
        if entry is None:
            entry = self._touched[name] = self.world.models[name] = copy(self._before[name])
            entry.placements = dict(entry.placements)
        return entry

    @cached_property
    def accounts(self) -> dict[str, Account]:
        return self.world.ledger.accounts()

    @cached_property
    def sites(self) -> Sites:
        return Sites(self.world, self.accounts)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Replicas whose pods are being deleted."""
        return frozenset(uid for uid, replica in self.world.replicas.items() if replica.leaving_by is not None)

    @cached_property
    def settled(self) -> bool:
        """Has every agent had time to say what it has? Before, what is not said is unknown."""
        waiting = any(replica.ready and replica.agent is None and not replica.lost for replica in self.world.replicas.values())
        return not waiting or self.now >= self.world.led_since + self.limits.settle

    @cached_property
    def may_unload(self) -> bool:
        return self.settled and self.now >= self.world.led_since + self.limits.gateway_silence

    @property
    def short_anew(self) -> bool:
        """A model looks for a place that did not before, or for more of them."""
        return any(after.short is not None and after.short != self._before[name].short for name, after in self._touched.items())

    def ask(self, model: ModelEntry, due: frozenset[str] = frozenset()) -> Ask:
        """Its request for a place: where it neither is nor has failed, but may be tried again on those that are `due`."""
        has = frozenset(holders(model))
        failed = frozenset(model.placements) - has - due
        return Ask(model.spec, self.world.ledger.weight(model.spec.name), server_of(model, self.world), has, failed)

    def weigh_anew(self, model: ModelEntry) -> None:
        """It was learnt what it needs: its copies count for that from now on."""
        name, ledger = model.spec.name, self.world.ledger
        accounts, before = self.accounts, ledger.weight(name)
        ledger.weigh(name, weigh(model, self.world, self.now), holders(self._before[name]))
        for uid in holders(model):
            accounts[uid].add(before, -1)
            accounts[uid].add(ledger.weight(name))

    def put(self, model: ModelEntry, placement: Placement) -> None:
        """Make or change a copy."""
        uid = placement.replica
        before = model.placements.get(uid)
        had, has = before is not None and before.state is not State.FAILED, placement.state is not State.FAILED
        model.placements[uid] = placement
        if had != has:
            self._charge(model, uid, has)

    def move(self, model: ModelEntry, placement: Placement, state: State) -> None:
        """Bring a copy into another state, from now on."""
        self.put(model, placement._replace(state=state, since=self.now))

    def assign(self, model: ModelEntry, uid: str) -> None:
        """A new copy."""
        failed = model.placements.get(uid)
        pod, tries = self.world.replicas[uid].pod, failed.tries if failed is not None else 0
        self.put(model, Placement(uid, pod, State.ASSIGNED, to_load(model) or model.spec.revision, self.now, tries))

    def drop(self, model: ModelEntry, uid: str) -> None:
        if model.placements.pop(uid).state is not State.FAILED:
            self._charge(model, uid, taken=False)

    def end(self, model: ModelEntry, placement: Placement) -> None:
        """A copy is one too many: what may get requests is drained, what gets none goes at once."""
        if placement.state is State.ROUTED or self.may_be_sent(model, placement.replica):
            self.move(model, placement, State.DRAINING)
        else:
            self.drop(model, placement.replica)

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """What a rule says of models, as if it had been decided here."""
        for effect in effects:
            if isinstance(effect, SetTarget):
                self.model(effect.model).scaling = effect.scaling
            elif isinstance(effect, Mark) and effect.kind == "model":
                for field, value in effect.fields.items():
                    setattr(self.model(effect.name), field, value)
            else:
                self.others.append(effect)

    def note(self, name: str, reason: str, message: str, kind: Literal["Model", "Server", "Pod"] = "Model") -> None:
        """Something that people should see as a warning."""
        self.others.append(Note(kind, name, "Warning", reason, message))

    def replica(self, uid: str) -> Replica:
        return self.world.replicas[uid]

    def why_not_yet(self, uid: str) -> str:
        """Why others are given new copies first."""
        return "falters" if uid in self._faltering else ""

    @cached_property
    def _faltering(self) -> frozenset[str]:
        """Replicas where a load stands still, or where those of several models have just failed. One that fails alone is taken to be the model's
        own fault."""
        stand, failed = set[str](), Counter[str]()
        for model in self.world.models.values():
            for uid, placement in model.placements.items():
                if placement.state is State.ROUTED:  # nearly all are
                    continue
                if placement.state is State.FAILED:
                    failed[uid] += self.now - placement.since < self.limits.falters
                elif self._stands_still(placement):
                    stand.add(uid)
        return frozenset(stand.union(uid for uid, count in failed.items() if count > 1))

    def _stands_still(self, placement: Placement) -> bool:
        if not is_coming(placement):
            return False
        replica = self.world.replicas.get(placement.replica)
        agent = replica.agent if replica is not None else None
        worked = agent.worked if agent is not None and placement.state is State.ASSIGNED else 0.0  # it waits for its turn
        return self.now - max(placement.since, worked) >= self.limits.falters

    def may_be_sent(self, model: ModelEntry, uid: str) -> bool:
        """May a gateway send requests for the model there?"""
        return uid in self.world.routing.get(model.spec.name, _NOWHERE).anywhere

    def effects(self) -> list[Effect]:
        """What makes the world like this draft: for each model its target first, which must be written before any agent is told."""
        effects: list[Effect] = []
        for name, after in self._touched.items():
            effects += _difference(name, self._before[name], after)
        return effects + self.others

    def _charge(self, model: ModelEntry, uid: str, taken: bool) -> None:
        self.gained |= not taken
        account = self.accounts.get(uid)
        if account is None:
            account = self.accounts[uid] = Account()
        account.add(self.world.ledger.weight(model.spec.name), 1 if taken else -1)


def is_coming(placement: Placement) -> bool:
    return placement.state is State.ASSIGNED or placement.state is State.LOADING


def _difference(name: str, before: ModelEntry, after: ModelEntry) -> Iterable[Effect]:
    if after.gone and not after.placements:
        return [*(Drop(name, uid) for uid in before.placements), Forget(name)]
    effects: list[Effect] = []
    if after.scaling is not None and after.scaling != before.scaling:
        effects.append(SetTarget(name, after.scaling))
    had, has = before.placements, after.placements
    effects += [Put(name, placement) for uid, placement in has.items() if (old := had.get(uid)) is not placement and old != placement]
    effects += [Drop(name, uid) for uid in had if uid not in has]
    marks = {field: value for field in _MARKED if (value := getattr(after, field)) != getattr(before, field)}
    if marks:
        effects.append(Mark("model", name, marks))
    return effects
