"""What people are told of a model's life: one event, and so one line of the log, for each thing that happens to it."""

from collections.abc import Iterable

from wakeful.batching.parts import outermost
from wakeful.errors import WakefulError
from wakeful.inference import InferRequest
from wakeful.models.culprits import describe
from wakeful.models.interface import UNKNOWN
from wakeful.replicas.replica import Replica
from wakeful.runtime.messages import Ready, Verdict
from wakeful.runtime.processes import Death
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import UnloadReason
from wakeful.telemetry.units import show_bytes, show_seconds

TOLD_WAIT = 0.1
"""Seconds of waiting for room from which a load's line tells of it."""


class News:
    """Of one model, which calls it; nothing follows from it."""

    def __init__(self, key: str, events: Events) -> None:
        self._key = key
        self._events = events
        self._told = UNKNOWN
        """The verdict on its batching that was told last."""

    def ready(self, replica: Replica, message: Ready, took: float, room: float, waiting: int) -> None:
        """A replica is loaded. Seconds that the load took, and of those the ones for room in memory; requests that wait."""
        how = "copied from a live replica" if replica.split_from else "prepared copy" if message.prepared else "as shipped"
        for_room = f", {show_seconds(room)} of it for room" if room >= TOLD_WAIT else ""
        self._events.emit(
            "load", self._key,
            f"#{replica.index} ready in {show_seconds(took)} ({how}{for_room}), {show_bytes(replica.private_bytes)} private, {waiting} waiting",
            replica=replica.index, seconds=took, room_seconds=room, private_bytes=replica.private_bytes, waiting=waiting, how=how,
        )

    def died(self, replica: Replica, death: Death) -> None:
        self._events.emit("restart", self._key, f"#{replica.index}: {death.text}", cause=death.kind, replica=replica.index)

    def gone(self, replica: Replica, reason: UnloadReason, mapped: int) -> None:
        """A replica was ended. `mapped`: bytes of the prepared copy that stay in the page cache."""
        cached = f", left {show_bytes(mapped)} of its prepared copy to the page cache" if mapped else ""
        self._events.emit(
            "unload", self._key, f"#{replica.index}: {reason}, freed {show_bytes(replica.private_bytes)}{cached}",
            reason=reason, replica=replica.index, private_bytes=replica.private_bytes, mapped_bytes=mapped,
        )

    def scaled(self, reason: str, replicas: int) -> None:
        self._events.emit("scale", self._key, reason, replicas=replicas)

    def not_scaled(self, reason: str) -> None:
        self._events.emit("scale", self._key, reason)

    def load_failed(self, error: WakefulError, pause: float) -> None:
        self._events.emit("refuse", self._key, f"load failed: {error.message}; not tried again for {show_seconds(pause)}", code=error.code)

    def declared_otherwise(self, disagreements: Iterable[str]) -> None:
        """What another server's configuration says of the model is not what its file says."""
        for text in disagreements:
            self._events.emit("config", self._key, f"{text}; the file counts", code="declared")

    def untested(self, reason: str) -> None:
        self._events.emit("probe", self._key, f"the self-test could not be made, requests run one by one: {reason}")

    def batching(self, verdict: Verdict) -> None:
        """Whether its requests are merged, where that is not what was told last."""
        if verdict != self._told:
            self.tested(verdict)

    def tested(self, verdict: Verdict) -> None:
        """A self-test has ended with this."""
        self._told = verdict
        batching = "merges requests" if verdict.mergeable else "runs requests one by one"
        self._events.emit("probe", self._key, f"{batching}: {verdict.reason}", mergeable=verdict.mergeable)

    def blamed(self, request: InferRequest, reason: str, refused: str) -> None:
        """A request has ended replicas. `refused`: what becomes of such requests from now on."""
        whole = outermost(request)
        self._events.emit(
            "blame", self._key, f"{describe(whole)}: {reason}, {request.deaths} times while it ran this request{refused}",
            request=whole.id, attempts=request.deaths, reason=reason,
        )
