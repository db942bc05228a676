"""Pods of one Server as a StatefulSet, kubelets and nodes make them: started, deleted with a grace, lost with their node."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tests.cluster.simulation.ground import Daemon, Events
from wakeful.cluster.planning.world import Replica

BOOT = 20.0
GRACE, MARGIN = 120.0, 10.0
"""Seconds until a deleted pod is killed, and before that, by which its models must be elsewhere."""
SILENT, NOTICED, REPLACED = 15.0, 45.0, 300.0
"""Seconds after a node is lost: its streams are closed; the API server knows; somebody has deleted the pod."""
SLOW, SLOWNESS = 3, 30.0
"""The ordinal on which loads take so many times as long."""


class Watcher(Protocol):
    """Who hears of pods."""

    def touched(self, uid: str) -> None:
        """It leaves, or is gone."""

    def ready(self, uid: str) -> None: ...

    def lost(self, uid: str) -> None: ...

    def told(self, daemon: Daemon, name: str) -> None:
        """A daemon has another state of a model."""

    def sends(self, name: str, uid: str) -> bool:
        """Does a gateway send requests for a model there?"""


class Pods:
    def __init__(self, watcher: Watcher, sizes: Mapping[str, int], events: Events, now: Callable[[], float]) -> None:
        self.all: dict[str, Replica] = {}
        """By uid; the leader's world has the same objects."""
        self.daemons: dict[str, Daemon] = {}
        self._watcher, self._sizes, self._events, self._now = watcher, sizes, events, now
        self._count = self._births = 0

    def follow(self, count: int, boot: float = BOOT) -> None:
        """Have pods of the ordinals below `count` and no others."""
        self._count = count
        present = {pod.ordinal: pod for pod in self.all.values()}
        for ordinal in range(count):
            if ordinal not in present:
                self._start(ordinal, boot)
        for ordinal, pod in present.items():
            if ordinal >= count:
                self.delete(pod.uid)

    def delete(self, uid: str) -> None:
        pod = self.all.get(uid)
        if pod is not None and pod.leaving_by is None:
            pod.leaving_by = self._now() + GRACE - MARGIN
            self._watcher.touched(uid)
            self._events.at(self._now() + GRACE, lambda _: self.end(uid))

    def lose(self, uid: str) -> list[str]:
        """Its node is gone: nothing there answers. Models that it had."""
        daemon = self.daemons[uid]
        daemon.alive = False

        def silent(_: float) -> None:
            if uid in self.all:
                self.all[uid].agent = None

        def noticed(_: float) -> None:
            if uid in self.all:
                self.all[uid].lost, self.all[uid].ready = True, False
                self._watcher.lost(uid)

        self._events.at(self._now() + SILENT, silent)
        self._events.at(self._now() + NOTICED, noticed)
        self._events.at(self._now() + REPLACED, lambda _: self.end(uid))
        return list(daemon.held)

    def end(self, uid: str) -> None:
        """It is gone; its StatefulSet makes another if the count asks for its ordinal."""
        pod = self.all.pop(uid, None)
        if pod is None:
            return
        self.daemons.pop(uid).alive = False
        self._watcher.touched(uid)
        if pod.ordinal < self._count:
            self._start(pod.ordinal, BOOT)

    def staying(self) -> list[str]:
        return [uid for uid, pod in self.all.items() if pod.ready and pod.leaving_by is None and self.daemons[uid].alive]

    def _start(self, ordinal: int, boot: float) -> None:
        uid = f"u{self._births}"
        self._births += 1
        pod = self.all[uid] = Replica(uid, f"triton-{ordinal}", "triton", ordinal, f"10.0.{ordinal}.1", http_port=8000)
        slowness = SLOWNESS if ordinal == SLOW else 1.0
        daemon = self.daemons[uid] = Daemon(uid, slowness, self._sizes, self._events, self._watcher.told)
        daemon.sent = lambda name: self._watcher.sends(name, uid)
        self._watcher.touched(uid)

        def ready(_: float) -> None:
            pod.ready = True
            self._watcher.ready(uid)

        self._events.at(self._now() + boot, ready)
