"""Models that are asked as one. A pipeline holds no memory and no process: each step's model is batched, scaled and put to sleep on its own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from wakeful.batching.settling import Settler
from wakeful.clock import monotonic
from wakeful.config.settings import PipelineSettings, StepSettings
from wakeful.config.wiring import label
from wakeful.errors import Overloaded, Unavailable, WakefulError
from wakeful.inference import InferRequest
from wakeful.models.pipelines.passage import Passage
from wakeful.models.pipelines.plan import Plan, PlannedStep, make_plan, of_step
from wakeful.models.portrait import Portrait, ShownStep, State
from wakeful.runtime.messages import Signature
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import ModelStats

VERSION = "1"
MOST_HELD = 2048
"""Requests that may wait while the signatures of models are looked up."""


class Door(Protocol):
    """The engine, as a pipeline asks it for its models by their names. Each raises NotFound for one that is not there."""

    def infer(self, request: InferRequest, version: str | None = None) -> None: ...

    def known_signature(self, name: str, version: str | None = None) -> Signature | None: ...

    async def signature(self, name: str, version: str | None = None) -> Signature: ...

    def portrait(self, name: str, version: str | None = None) -> Portrait: ...


@dataclass(frozen=True)
class Around:
    """What all pipelines share."""

    door: Door
    events: Events
    spawn: Callable[[Coroutine[Any, Any, None]], None]


class Pipeline:
    def __init__(self, settings: PipelineSettings, stats: ModelStats, around: Around) -> None:
        self.id = settings.id
        self.settings = settings
        self.stats = stats
        self._settler = Settler(stats)
        self._around = around
        self.last_used: float | None = None
        self._plan: Plan | None = None
        """For the signatures that the models had when it was made."""
        self._told = ""
        """What is wrong with it, as people were told last."""
        self._held: dict[InferRequest, asyncio.TimerHandle] = {}
        """Requests that came before all signatures were known, each with the timer of its deadline."""

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: InferRequest) -> None:
        """Begin a request. Raises the error of one that is not taken."""
        request.deadline = min(request.deadline, request.arrived + self.settings.request_timeout)
        self.last_used = request.arrived
        plan = self._current()
        if plan is None:
            self._hold(request)
        else:
            self._begin(plan, request)

    def _begin(self, plan: Plan, request: InferRequest) -> None:
        plan.validate(request)
        Passage(request, plan, self._settler, self._around.door.infer).begin()

    def _hold(self, request: InferRequest) -> None:
        """Keep it until the models have been looked at, under its own deadline."""
        if len(self._held) >= MOST_HELD:
            raise Overloaded(f"pipeline {self.id} has {MOST_HELD} requests waiting until its models are known", unstarted=True)
        if not self._held:
            self._around.spawn(self._look_up())
        left = max(request.deadline - monotonic(), 0.0)
        self._held[request] = asyncio.get_running_loop().call_later(left, self._expire, request)

    def _expire(self, request: InferRequest) -> None:
        del self._held[request]
        self._settler.drop(request, request.deadline)

    async def _look_up(self) -> None:
        try:
            await self.signature()
        except WakefulError as error:
            self.refuse_held(error)
        else:
            self.take_over(self.release())

    def release(self) -> list[InferRequest]:
        """What is held, for somebody else to begin or to refuse."""
        held, self._held = self._held, {}
        for timer in held.values():
            timer.cancel()
        return list(held)

    def take_over(self, requests: Iterable[InferRequest]) -> None:
        for request in requests:
            if request.left:
                self._settler.drop(request, monotonic())
                continue
            try:
                self.submit(request)
            except WakefulError as error:
                self._settler.refuse(request, error)

    def refuse_held(self, error: WakefulError) -> None:
        for request in self.release():
            self._settler.refuse(request, error)

    # ── what it is made of ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def signature(self) -> Signature:
        """What it takes and gives. Looks into the files of models that were never opened, without waking them; raises what does not fit."""
        if (plan := self._current()) is None:
            for index, step in enumerate(self.settings.steps):
                try:
                    await self._around.door.signature(step.model, _version(step))
                except WakefulError as error:
                    raise of_step(label(self.settings, index), error) from None
            if (plan := self._current()) is None:
                raise Unavailable(f"pipeline {self.id}: one of its models has changed at this moment; try again", unstarted=True)
        return plan.signature

    @property
    def known_signature(self) -> Signature | None:
        plan = self._current()
        return None if plan is None else plan.signature

    def _current(self) -> Plan | None:
        """The plan for the models as they are; None: one of them has not been opened yet. Raises what does not fit."""
        learnt = tuple(self._known(index) for index in range(len(self.settings.steps)))
        plan = self._plan
        if plan is not None and learnt == plan.learnt:
            return plan
        signatures = [signature for signature in learnt if signature is not None]
        if len(signatures) < len(learnt):
            return None
        try:
            plan = self._plan = make_plan(self.settings, signatures)
        except Unavailable as error:
            self._tell(error.message)
            raise
        self._told = ""
        return plan

    def _known(self, index: int) -> Signature | None:
        step = self.settings.steps[index]
        try:
            return self._around.door.known_signature(step.model, _version(step))
        except WakefulError as error:
            raise of_step(label(self.settings, index), error) from None

    def check(self) -> None:
        """Tell what is wrong with it, as far as that is known."""
        try:
            self._current()
        except WakefulError as error:
            self._tell(error.message)

    def _tell(self, message: str) -> None:
        if message != self._told:
            self._told = message
            self._around.events.emit("config", self.id, message, code="wiring")

    async def each(self, verb: Callable[[str], Awaitable[None]]) -> None:
        """Do something to all its models, at the same time. Raises the first error when all are done."""
        first = {step.model: label(self.settings, index) for index, step in reversed(list(enumerate(self.settings.steps)))}
        outcomes = await asyncio.gather(*map(verb, first), return_exceptions=True)
        for with_label, outcome in zip(first.values(), outcomes, strict=True):
            if isinstance(outcome, WakefulError):
                raise of_step(with_label, outcome)
            if isinstance(outcome, BaseException):
                raise outcome

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def portrait(self) -> Portrait:
        """It is as ready as the least ready of its models."""
        state, reason, pinned = self._state()
        plan = self._plan
        return Portrait(
            name=self.id, version=VERSION, versions=(VERSION,), state=state, reason=reason, merges=False, max_rows=0,
            batching="each step is batched on its own, by the settings of its model",
            path="", description=self.settings.description, pinned=pinned, idle_timeout=0.0, max_batch_size=0, max_delay=0.0,
            last_used=None if self.last_used is None else monotonic() - self.last_used, resident_bytes=0, stats=self.stats,
            steps=tuple(map(_shown, self.settings.steps, plan.steps)) if plan else (),
        )

    def _state(self) -> tuple[State, str, bool]:
        """With the reason, and whether all its models are kept loaded."""
        try:
            self._current()
            shown = [self._around.door.portrait(step.model, _version(step)) for step in self.settings.steps]
        except WakefulError as error:
            return "asleep", error.message, False
        pinned = all(one.pinned for one in shown)
        for index, one in enumerate(shown):
            if not one.ready:
                loading = all(other.ready or other.state == "loading" for other in shown)
                return "loading" if loading else "asleep", f"waiting for {label(self.settings, index)}, which is {one.reason}", pinned
        return "busy" if any(one.state == "busy" for one in shown) else "ready", "", pinned


def _version(step: StepSettings) -> str | None:
    return None if step.version is None else str(step.version)


def _shown(step: StepSettings, planned: PlannedStep) -> ShownStep:
    return ShownStep(step.model, step.version, dict(planned.takes), dict(planned.gives))
