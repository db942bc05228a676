"""What the controller shows on /metrics, and what it says in its log."""

from collections import Counter as Counts
from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from wakeful.cluster.planning.effects import Effect, Note
from wakeful.cluster.planning.world import State, World
from wakeful.telemetry.logs import Log

NAMESPACE = "wakeful_controller"
_PLAN_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Figures:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace=NAMESPACE, registry=self.registry)
        counter = partial(Counter, namespace=NAMESPACE, registry=self.registry)
        self.leads = gauge("leads", "1: this process leads")
        self.epoch = gauge("epoch", "Epoch in which this process leads or led last")
        self.agents = gauge("agents", "Agents that are connected")
        self.gateways = gauge("gateways", "Gateways that are waited for")
        self.written = gauge("status_writes", "Statuses written since this process leads")
        self.write_failures = gauge("status_write_failures", "Statuses that could not be written, each try of them")
        self.waiting = gauge("statuses_waiting", "Statuses that are still to be written")
        self._objects = gauge("objects", "Objects that it knows", ["kind"])
        self._placements = gauge("placements", "Copies of models", ["state"])
        self._plans = Histogram("plan_seconds", "Time of a plan", namespace=NAMESPACE, buckets=_PLAN_BUCKETS, registry=self.registry)
        self._effects = counter("effects", "What plans had done", ["kind"])
        self._told = counter("events", "Events told", ["reason"])

    def planned(self, seconds: float, effects: Iterable[Effect]) -> None:
        self._plans.observe(seconds)
        for kind, count in Counts(type(effect).__name__ for effect in effects).items():
            self._effects.labels(kind).inc(count)

    def stands(self, world: World) -> None:
        """How many there are of everything."""
        for kind, entries in (("Model", world.models), ("Server", world.servers), ("Replica", world.replicas)):
            self._objects.labels(kind).set(len(entries))
        counts = Counts(placement.state for entry in world.models.values() for placement in entry.placements.values())
        for state in State:
            self._placements.labels(state.value).set(counts[state])

    def event(self, note: Note) -> None:
        """A note, for the log and the counters; the API server gets it by `Events`."""
        self._told.labels(note.reason).inc()
        self._log.write("warning" if note.type == "Warning" else "info", f"{note.kind} {note.name}", f"{note.reason}: {note.message}")

    def say(self, text: str) -> None:
        self._log.write("info", "controller", text)

    def complain(self, text: str) -> None:
        self._log.write("warning", "controller", text)

    def page(self) -> bytes:
        return generate_latest(self.registry)
