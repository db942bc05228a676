"""The only door that front ends know. Each verb is one thing that a caller may want of a model."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wakeful import admission
from wakeful.clock import monotonic
from wakeful.errors import Overloaded, Unavailable, WakefulError
from wakeful.inference import InferRequest
from wakeful.memory.supervisor import Supervisor
from wakeful.models.model import Model
from wakeful.models.registry import Registry
from wakeful.runtime.messages import Signature
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import Metrics


@dataclass
class Condition:
    """Of the whole daemon."""

    ready: bool = False
    """May new work be sent here?"""
    draining: bool = False
    """No new work is taken."""


class Engine:
    def __init__(
        self,
        registry: Registry,
        supervisor: Supervisor,
        metrics: Metrics,
        events: Events,
        inspect: Callable[[Model], Awaitable[None]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self.registry = registry
        self.supervisor = supervisor
        self.metrics = metrics
        self.events = events
        self.condition = Condition()
        self._inspect = inspect
        self._refresh = refresh

    # ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def infer(self, request: InferRequest, version: str | None = None) -> None:
        """Take a request; its `answer` or `refuse` is called later, once. Raises the error of a request that is not taken."""
        try:
            if self.condition.draining:
                raise Unavailable("the server is stopping", unstarted=True)
            model = self.registry.get(request.model, version)
            admission.admit(request, model.settings, model.batcher)
            model.submit(request)
        except WakefulError as error:
            self.refused(request.model, request.protocol, error, monotonic() - request.arrived)
            if isinstance(error, Overloaded):
                self.events.emit("refuse", request.model, error.message)
            raise

    def refused(self, model: str, protocol: str, error: WakefulError, seconds: float) -> None:
        """Count a request that did not get as far as a model."""
        stats = self.metrics.model(model) if model in self.registry else self.metrics.unnamed
        stats.settled(protocol, error.code, seconds)

    # ── a model's life ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self, name: str) -> Model:
        model = self.registry.get(name)
        await model.load()
        return model

    async def unload(self, name: str) -> Model:
        """Put a model to sleep, pinned or not: an operator's word goes before a setting."""
        model = self.registry.get(name)
        await model.unload()
        return model

    async def pin(self, name: str) -> Model:
        """Load a model and keep it from sleeping by time, eviction or ceiling."""
        model = self.registry.get(name)
        model.pinned = True
        await model.load()
        return model

    async def unpin(self, name: str) -> Model:
        model = self.registry.get(name)
        model.pinned = False
        model.group.sweep()
        return model

    async def signature(self, name: str, version: str | None = None) -> Signature:
        """What a model takes and gives, without waking it: from what is known, else by a look into its file in a process of its own."""
        model = self.registry.get(name, version)
        if model.interface.signature is None:
            await self._inspect(model)
        assert model.interface.signature is not None
        return model.interface.signature

    async def refresh(self) -> list[Model]:
        """Look into the models directory for new, changed and vanished files."""
        await self._refresh()
        return list(self.registry)
