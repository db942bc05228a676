"""The only door that front ends know. Each verb is one thing that a caller may want of a model."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wakeful import admission
from wakeful.batching.settling import LEFT
from wakeful.clock import monotonic
from wakeful.config.foreign import Account
from wakeful.config.override import SOURCE, with_override
from wakeful.config.settings import ModelSettings
from wakeful.errors import Conflict, InvalidInput, Overloaded, Unavailable, WakefulError
from wakeful.inference import InferRequest
from wakeful.memory.supervisor import Supervisor
from wakeful.models.drafts import Draft
from wakeful.models.model import Model
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.portrait import Portrait, portrait
from wakeful.models.registry import Registry
from wakeful.models.repository import Change
from wakeful.models.uploads import Uploads
from wakeful.runtime.messages import Signature
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import SUCCESS, Metrics


class Condition:
    """Of the whole daemon."""

    def __init__(self) -> None:
        self.draining = False
        """No new work is taken."""
        self.listeners: list[Callable[[], None]] = []
        """Hear when readiness comes or goes."""
        self._ready = False

    @property
    def ready(self) -> bool:
        """May new work be sent here?"""
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._ready = ready
        for tell in self.listeners:
            tell()


class Engine:
    def __init__(
        self,
        registry: Registry,
        pipelines: Pipelines,
        supervisor: Supervisor,
        metrics: Metrics,
        events: Events,
        inspect: Callable[[Model], Awaitable[None]],
        refresh: Callable[[str | None, Change | None], Awaitable[None]],
        uploads: Uploads | None = None,
    ) -> None:
        self.registry = registry
        self.pipelines = pipelines
        self.supervisor = supervisor
        self.metrics = metrics
        self.events = events
        self.condition = Condition()
        self.calls: dict[object, tuple[str, float]] = {}
        """What is in flight and takes several requests: its model, and when it arrived."""
        self._inspect = inspect
        self._refresh = refresh
        self._uploads = uploads

    # ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def infer(self, request: InferRequest, version: str | None = None) -> None:
        """Take a request; its `answer` or `refuse` is called later, once. Raises the error of a request that is not taken."""
        try:
            if self.condition.draining:
                raise Unavailable("the server is stopping", unstarted=True)
            if request.model in self.pipelines.by_name:
                self.pipelines.get(request.model, version).submit(request)
                return
            model = self.registry.get(request.model, version)
            request.version = model.version
            if version is not None:
                request.addressed = True
            admission.admit(request, model.settings, model.batcher)
            model.submit(request)
        except WakefulError as error:
            self.refused(request.model, request.protocol, error, monotonic() - request.arrived)
            if isinstance(error, Overloaded):
                self.events.emit("refuse", request.model, error.message)
            raise

    def refused(self, model: str, protocol: str, error: WakefulError, seconds: float) -> None:
        """Count a request that did not get as far as a model. A part of another has no protocol: the whole is counted."""
        if not protocol:
            return
        known = self.pipelines.by_name.get(model) or self.registry.find(model)
        stats = known.stats if known is not None else self.metrics.unnamed
        stats.settled(protocol, error.code, seconds)

    @contextmanager
    def counted(self, model: str, protocol: str, arrived: float) -> Iterator[None]:
        """Count as one request what takes several of its own. It is in flight as long as the block lasts."""
        call, outcome = object(), LEFT
        self.calls[call] = model, arrived
        try:
            yield
            outcome = SUCCESS
        except WakefulError as error:
            outcome = error.code
            raise
        finally:
            del self.calls[call]
            known = self.pipelines.by_name.get(model) or self.registry.find(model)
            (known.stats if known is not None else self.metrics.unnamed).settled(protocol, outcome, monotonic() - arrived)

    def model(self, name: str) -> Model:
        """For what only a model can be asked. Raises InvalidInput for a pipeline."""
        if name in self.pipelines:
            raise InvalidInput(f"{name} is a pipeline, which can be asked for inference alone; ask one of its models")
        return self.registry.get(name)

    def rouse(self, name: str) -> None:
        """Wake a model for a request that is on its way. Raises what keeps it from waking."""
        self.registry.get(name).rouse()

    # ── a model's life: of all its versions that are served ──────────────────────────────────────────────────────────────────────────────

    async def load(self, name: str) -> None:
        """Look whether its files have changed, or have come only now, and wake it."""
        if name in self.pipelines:
            await self.pipelines.get(name).each(self.load)
        else:
            await self._refresh(name, None)
            await self._all(name, Model.load)

    async def load_by(self, name: str, config: Mapping[str, Any]) -> Account:
        """The same by other settings than its own, until it is looked at again. Returns what came of each of them."""
        if name in self.pipelines:
            raise InvalidInput(f"{SOURCE}: {name} is a pipeline; its models have settings, each of its own")
        accounts: list[Account] = []

        def change(settings: ModelSettings) -> ModelSettings:
            made, account = with_override(settings, config)
            accounts.append(account)
            return made

        await self._refresh(name, change)
        self.registry.get(name)
        account = accounts[-1] if accounts else Account()
        honoured, ignored = ", ".join(account.honoured) or "nothing", ", ".join(account.ignored) or "nothing"
        text = f"a load brought settings, which count until the next load or refresh: honoured: {honoured}; not honoured: {ignored}"
        self.events.emit("config", name, text, code="override")
        await self._all(name, Model.load)
        return account

    async def unload(self, name: str) -> None:
        """Put a model to sleep, pinned or not: an operator's word goes before a setting."""
        await self._all(name, Model.unload)

    async def pin(self, name: str) -> None:
        """Load a model and keep it from sleeping by time, eviction or ceiling."""
        await self._all(name, Model.pin)

    async def unpin(self, name: str) -> None:
        await self._all(name, Model.unpin)

    async def _all(self, name: str, verb: Callable[[Model], Awaitable[None]]) -> None:
        """Do the same with every version, or every model of a pipeline, at once; whatever fails is raised when all have ended."""
        if name in self.pipelines:
            await self.pipelines.get(name).each(lambda model: self._all(model, verb))
            return
        self.registry.get(name)
        outcomes = await asyncio.gather(*map(verb, self.registry.versions(name)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def portrait(self, name: str, version: str | None = None) -> Portrait:
        if name in self.pipelines:
            return self.pipelines.get(name, version).portrait()
        return self._portrait_of(self.registry.get(name, version))

    def portraits(self, name: str | None = None) -> list[Portrait]:
        """Of every version of everything that can be asked, or of one model."""
        if name is None:
            return [*map(self._portrait_of, self.registry), *(pipeline.portrait() for pipeline in self.pipelines)]
        if name in self.pipelines:
            return [self.pipelines.get(name).portrait()]
        self.registry.get(name)
        return [self._portrait_of(model) for model in self.registry.versions(name)]

    def _portrait_of(self, model: Model) -> Portrait:
        versions = tuple(one.version for one in self.registry.versions(model.id))
        return portrait(model, versions, self.supervisor.resident_of(model.key))

    async def signature(self, name: str, version: str | None = None) -> Signature:
        """What a model takes and gives, without waking it: from what is known, else by a look into its file in a process of its own."""
        if name in self.pipelines:
            return await self.pipelines.get(name, version).signature()
        model = self.registry.get(name, version)
        if model.interface.signature is None:
            await self._inspect(model)
        assert model.interface.signature is not None
        return model.interface.signature

    def known_signature(self, name: str, version: str | None = None) -> Signature | None:
        """The same where it takes no look into a file; else None."""
        if name in self.pipelines:
            return self.pipelines.get(name, version).known_signature
        return self.registry.get(name, version).interface.signature

    async def refresh(self) -> None:
        """Look into the models directory for new, changed and vanished files."""
        await self._refresh(None, None)

    # ── bringing models ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_uploads(self) -> Uploads:
        """Raises Conflict where no model can be brought, before anybody sends one."""
        if self._uploads is None:
            raise Conflict("this server takes no models")
        self._uploads.check()
        return self._uploads

    def draft(self, filename: str) -> Draft:
        """A place for a model's file that is on its way. It blocks, and may be called in a thread."""
        return self.check_uploads().draft(filename)

    async def upload(self, draft: Draft, parts: Mapping[str, str]) -> Portrait:
        """Serve a file that has come whole; it is listed when this returns. `parts`: what was said about it, by name."""
        return self._portrait_of(await self.check_uploads().place(draft, parts))
