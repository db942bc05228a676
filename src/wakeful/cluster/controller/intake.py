"""Everything that the controller hears: it waits here until the loop takes it, and then becomes what the world says.

So the world changes at one place in the loop and nowhere else, whatever the loop waits for meanwhile.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wakeful.clock import Clock
from wakeful.cluster.controller import observing
from wakeful.cluster.controller.api import AUTOSCALER, POD, STATEFUL_SET, Kind, Manifest
from wakeful.cluster.controller.writer import Key, Writer
from wakeful.cluster.dialects import Reader
from wakeful.cluster.manifests import TEMPLATE_LABEL
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.kept import restore_model, restore_server, take_over
from wakeful.cluster.planning.plan import affected
from wakeful.cluster.planning.revisions import respecify
from wakeful.cluster.planning.rollout import PodView
from wakeful.cluster.planning.scaling import limits_in
from wakeful.cluster.planning.world import Agent, ModelEntry, Replica, ServerEntry, World
from wakeful.cluster.wire import Hello, Report, Trigger

RESTART = 5.0
"""Seconds after which a pod whose PreStop has called, and that is not being deleted, is known to be restarting a container alone."""

WANTED = 10.0
"""Seconds for which a request counts as waiting at least: with holdSeconds 0 it is refused at once, and wakes its model all the same."""


@dataclass(slots=True)
class Dirty:
    """Names of what has changed."""

    models: set[str] = field(default_factory=set)
    servers: set[str] = field(default_factory=set)
    greeted: set[str] = field(default_factory=set)
    """Replicas whose agents have said hello, by uid."""
    notes: list[Note] = field(default_factory=list)
    """What has happened that people should know, and that asks for no plan."""


class Intake:
    """The sink of the reflectors and the listener of the agents. All public methods but `take` only note what was said."""

    def __init__(self, world: World, readers: Iterable[Reader], writer: Writer, now: Clock) -> None:
        self.news = asyncio.Event()
        self.kinds: dict[tuple[str, str], Kind] = {}
        """("Model" | "Server", name) to the kind, and with it the group, that the object has."""
        self.stateful_sets: dict[str, Manifest | None] = {}
        """By the Server's name. None: it was there, and was deleted."""
        self.restarting: set[str] = set()
        """Replicas whose PreStop need not be waited for, by uid: a container restarts, and the pod stays."""
        self._world, self._writer, self._now = world, writer, now
        self._readers = {reader.group: reader for reader in readers}
        """By the group of the manifests."""
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._dirty = Dirty()
        self.rivals: dict[Key, Manifest] = {}
        """Objects whose name one of the first group has. They are told so, and nothing else becomes of them."""
        self._seconds: dict[Key, Manifest] = {}
        """Objects of another group than the first that have their names, as long as none of the first claims it."""
        self._pods: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._agents: dict[str, Agent] = {}
        self._node_gone: set[str] = set()
        self._autoscalers: dict[str, tuple[str, str]] = {}
        self._drains: dict[str, float] = {}

    # ── at any time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def seen(self, kind: Kind, manifest: Manifest) -> None:
        self._note(self._seen, kind, manifest)

    def vanished(self, kind: Kind, name: str) -> None:
        self._note(self._vanished, kind, name)

    def hello(self, hello: Hello) -> None:
        self._note(self._hello, hello)

    def report(self, uid: str, report: Report) -> None:
        self._note(self._report, uid, report)

    def trigger(self, uid: str, trigger: Trigger) -> None:
        self._note(self._touch, [trigger.model])

    def drain_asked(self, uid: str) -> None:
        self._note(self._drain_asked, uid)

    def silent(self, uid: str) -> None:
        self._note(self._silent, uid)

    def woken(self, model: str) -> None:
        """A request is held for it."""
        self._note(self._woken, model)

    def touch(self, models: Iterable[str]) -> None:
        """They are to be looked at."""
        self._note(self._touch, models)

    def touch_server(self, name: str) -> None:
        """Its status may be another."""
        self._note(self._dirty_server, name)

    def _note(self, what: Callable[..., None], *args: Any) -> None:
        self._inbox.append((what, args))
        self.news.set()

    # ── by the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self) -> Dirty:
        """Bring the world up to date; what has changed since the last call."""
        self.news.clear()
        while self._inbox:
            what, args = self._inbox.popleft()
            what(*args)
        self._look_at_drains()
        dirty, self._dirty = self._dirty, Dirty()
        return dirty

    def pods_of(self, server: str) -> list[PodView]:
        return [
            PodView(one.ordinal, self._templates.get(one.uid, ""), one.ready, one.leaving_by is not None)
            for one in self._world.replicas.values() if one.server == server
        ]

    # ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _seen(self, kind: Kind, manifest: Manifest) -> None:
        if kind.group in self._readers:
            (self._model if kind.kind == "Model" else self._server)(kind, manifest)
        elif kind == POD:
            self._pod(manifest)
        elif kind == STATEFUL_SET:
            self._stateful_set(manifest["metadata"]["name"], manifest)
        elif kind == AUTOSCALER:
            self._autoscaler(manifest["metadata"]["name"], observing.autoscaled(manifest, self._readers.keys()))

    def _vanished(self, kind: Kind, name: str) -> None:
        if kind.group in self._readers:
            self._deleted(kind, name)
        elif kind == POD:
            self._gone(self._pods.pop(name, ""))
        elif kind == STATEFUL_SET:
            self._stateful_set(name, None)
        elif kind == AUTOSCALER:
            self._autoscaler(name, None)

    def _deleted(self, kind: Kind, name: str) -> None:
        key = Key(kind, name)
        self._writer.forget(key)
        self.rivals.pop(key, None)
        self._seconds.pop(key, None)
        if self.kinds.get((kind.kind, name)) != kind:
            return  # the one of the other group has the name
        del self.kinds[kind.kind, name]
        if kind.kind == "Model":
            if (entry := self._world.models.get(name)) is not None:
                entry.gone = True
                self._dirty.models.add(name)
        else:
            self._world.servers.pop(name, None)
            self._dirty.servers.add(name)
            self._dirty.models |= self._world.models.keys()
        for rival in [other for other in self.rivals if (other.kind.kind, other.name) == (kind.kind, name)]:
            self._seen(rival.kind, self.rivals.pop(rival))

    def _is_rival(self, key: Key, manifest: Manifest) -> bool:
        """Has an object of the first group the name? It has it whichever was seen first, so that all leaders agree."""
        slot = (key.kind.kind, key.name)
        holder = self.kinds.get(slot, key.kind)
        if key.kind.group == next(iter(self._readers)):
            if holder != key.kind:
                displaced = Key(holder, key.name)
                self.rivals[displaced] = self._seconds.pop(displaced)
                self._writer.touch(displaced)
        elif holder != key.kind:
            self.rivals[key] = manifest
            self._writer.observed(key, manifest["metadata"]["resourceVersion"], manifest.get("status") or {})
            return True
        else:
            self._seconds[key] = manifest
        self.kinds[slot] = key.kind
        return False

    def _model(self, kind: Kind, manifest: Manifest) -> None:
        meta, status = manifest["metadata"], manifest.get("status") or {}
        name = meta["name"]
        if self._is_rival(Key(kind, name), manifest):
            return
        self._writer.observed(Key(kind, name), meta["resourceVersion"], status)
        entry = self._world.models.get(name)
        if entry is not None and not entry.gone and (entry.spec.uid, entry.spec.generation) == (meta["uid"], meta.get("generation", 0)):
            return
        spec = self._readers[kind.group].model(manifest)
        if entry is None:
            entry = self._world.models[name] = ModelEntry(spec, look_at=math.inf)  # it is looked at because it is new, and then says when again
            restore_model(entry, status)
        elif entry.spec.uid != spec.uid:
            take_over(entry, status)
        respecify(entry, spec)
        self._count(entry, "Model", name)
        self._dirty.models.add(name)

    def _server(self, kind: Kind, manifest: Manifest) -> None:
        meta, status = manifest["metadata"], manifest.get("status") or {}
        name = meta["name"]
        if self._is_rival(Key(kind, name), manifest):
            return
        self._writer.observed(Key(kind, name), meta["resourceVersion"], status)
        entry = self._world.servers.get(name)
        if entry is not None and (entry.spec.uid, entry.spec.generation) == (meta["uid"], meta.get("generation", 0)):
            return
        spec = self._readers[kind.group].server(manifest)
        if entry is None:
            entry = self._world.servers[name] = ServerEntry(spec)
            restore_server(entry, status)
        elif entry.spec.uid != spec.uid:
            restore_server(entry, status)
        entry.spec = spec
        self._count(entry, "Server", name)
        self._dirty.servers.add(name)
        self._dirty.models |= self._world.models.keys()

    def _count(self, entry: ModelEntry | ServerEntry, what: str, name: str) -> None:
        """Does an autoscaler decide its count?"""
        entry.hpa = (what, name) in self._autoscalers.values()

    def _autoscaler(self, name: str, target: tuple[str, str] | None) -> None:
        before = self._autoscalers.pop(name, None)
        if target is not None:
            self._autoscalers[name] = target
        for what, of in {before, target} - {None}:  # type: ignore[misc]  # mypy does not see that None has gone
            entries: Mapping[str, ModelEntry | ServerEntry] = self._world.models if what == "Model" else self._world.servers
            if (entry := entries.get(of)) is not None:
                self._count(entry, what, of)
                (self._dirty.models if what == "Model" else self._dirty.servers).add(of)

    def _stateful_set(self, name: str, manifest: Manifest | None) -> None:
        self.stateful_sets[name] = manifest
        self._dirty.servers.add(name)

    # ── pods and their agents ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pod(self, manifest: Manifest) -> None:
        meta = manifest["metadata"]
        now = observing.replica(manifest)
        if (before := self._pods.get(meta["name"])) is not None and before != meta["uid"]:
            self._gone(before)
        if now is None:
            self._gone(self._pods.pop(meta["name"], meta["uid"]))
            return
        self._pods[now.pod] = now.uid
        self._templates[now.uid] = (meta.get("labels") or {}).get(TEMPLATE_LABEL, "")
        (self._node_gone.add if now.lost else self._node_gone.discard)(now.uid)
        old = self._world.replicas.get(now.uid)
        now.agent, now.released = self._agents.get(now.uid), old is not None and old.released
        now.lost = now.uid in self._node_gone and now.agent is None
        if now != old:
            self._world.replicas[now.uid] = now
            self._changed(now)

    def _gone(self, uid: str) -> None:
        for known in (self._templates, self._agents, self._drains):
            known.pop(uid, None)
        self._node_gone.discard(uid)
        self.restarting.discard(uid)
        if (replica := self._world.replicas.pop(uid, None)) is not None:
            self._changed(replica)

    def _changed(self, replica: Replica) -> None:
        self._dirty.servers.add(replica.server)
        self._dirty.models |= affected(self._world, replica.uid)

    def _hello(self, hello: Hello) -> None:
        agent = self._agents[hello.uid] = observing.agent(hello, self._now())
        self._dirty.greeted.add(hello.uid)
        self._dirty.models |= agent.held.keys() & self._world.models.keys()
        self._attend(hello.uid, agent)

    def _silent(self, uid: str) -> None:
        self._agents.pop(uid, None)
        self._attend(uid, None)

    def _attend(self, uid: str, agent: Agent | None) -> None:
        if (replica := self._world.replicas.get(uid)) is not None:
            replica.agent, replica.lost = agent, uid in self._node_gone and agent is None
            self._changed(replica)

    def _report(self, uid: str, report: Report) -> None:
        if (agent := self._agents.get(uid)) is not None:
            self._turned(uid, observing.turned(agent, report))
            self._touch(observing.take(agent, report, self._now()))

    def _turned(self, uid: str, turned: Mapping[str, bool]) -> None:
        """Models have fallen asleep there, or have woken. Where they are does not change by that."""
        if turned and (replica := self._world.replicas.get(uid)) is not None:
            self._dirty.servers.add(replica.server)
            self._dirty.notes += [observing.turn_note(name, replica.pod, asleep=asleep) for name, asleep in turned.items()]

    def _drain_asked(self, uid: str) -> None:
        self._drains[uid] = self._now()

    def _look_at_drains(self) -> None:
        now = self._now()
        for uid, since in list(self._drains.items()):
            replica = self._world.replicas.get(uid)
            if replica is not None and replica.leaving_by is not None:
                del self._drains[uid]
            elif now - since > RESTART:
                del self._drains[uid]
                self.restarting.add(uid)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _woken(self, model: str) -> None:
        if (entry := self._world.models.get(model)) is not None:
            entry.wanted_until = self._now() + max(limits_in(self._world, entry).hold, WANTED)
            self._dirty.models.add(model)

    def _dirty_server(self, name: str) -> None:
        self._dirty.servers.add(name)

    def _touch(self, models: Iterable[str]) -> None:
        self._dirty.models |= self._world.models.keys() & set(models)
