"""Who leads: one Lease object, a pure step that reads it, and a loop that carries the step out.

Times are monotonic seconds of this process: what another one wrote is judged by how long its record has not changed here, so that clocks need not
agree.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from wakeful import clock
from wakeful.cluster.controller.api import CONFLICT, LEASE, NOT_FOUND, Kind, Manifest, Refusal, unreachable_or
from wakeful.cluster.manifests import CONTROLLER

ADDRESS = "wakeful.dev/address"
"""Annotation: where who leads is reached by the others."""
NAME = CONTROLLER
"""The role lets the controller change the Lease of this name alone."""
EPOCH_ORIGIN = 1_577_836_800
"""2020-01-01. The first epoch of a new Lease is the seconds since then: also after somebody has deleted the old one, epochs go up. It fits the
32 bits of `leaseTransitions` until 2088."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Seconds. As Kubernetes' own controllers have them."""

    duration: float = 15.0
    """A leader that has not renewed for so long has lost it."""
    deadline: float = 10.0
    """A leader that could not renew for so long steps down; the rest until `duration` is for its last writes to end."""
    retry: float = 2.0

    @classmethod
    def lasting(cls, duration: float) -> "LeaseConfig":
        """The same proportions for another duration."""
        return cls(duration, duration * 2 / 3, duration * 2 / 15)


class LeaseView(NamedTuple):
    """A Lease as one process sees it."""

    holder: str
    """Empty: free."""
    transitions: int
    duration: float
    seen: float
    """When its record was first seen as it is now."""
    renewed: float | None = None
    """When this process last renewed it; None: it does not lead."""
    address: str = ""
    """Of its holder, where that one told it."""


class Acquire(NamedTuple):
    epoch: int | None
    """None: the Lease has to be made, too."""


class Renew(NamedTuple):
    pass


class Follow(NamedTuple):
    pass


class StepDown(NamedTuple):
    why: str


def lease_step(lease: LeaseView | None, me: str, now: float, cfg: LeaseConfig) -> Acquire | Renew | Follow | StepDown:
    """What to do about the Lease; None: there is none."""
    leading = lease is not None and lease.renewed is not None
    if lease is None:
        return Acquire(None)
    if leading:
        assert lease.renewed is not None
        if now - lease.renewed > cfg.deadline:
            return StepDown(f"it could not be renewed for {now - lease.renewed:.1f} s")
        if lease.holder != me:
            return StepDown(f"{lease.holder or 'nobody'} holds it")
        return Renew()
    if not lease.holder or now - lease.seen > lease.duration:
        return Acquire(lease.transitions + 1)
    return Follow()


class Store(Protocol):
    """What a lease needs of the API server."""

    async def get(self, kind: Kind, name: str) -> Manifest | None: ...

    async def create(self, kind: Kind, body: Manifest) -> Manifest: ...

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest: ...


class Lease:
    """Runs `lead(epoch)` as long as this process holds the Lease, and cancels it when it does not any more."""

    def __init__(
        self, store: Store, me: str, cfg: LeaseConfig, say: Callable[[str], None], *, address: str = "", now: clock.Clock = clock.monotonic
    ) -> None:
        self._address = address
        self._store, self._me, self._cfg, self._say, self._now = store, me, cfg, say, now
        self._view: LeaseView | None = None
        self._version = ""
        self._record: tuple[Any, ...] = ()
        self._failing = False

    @property
    def held(self) -> bool:
        """Nobody else can lead now. To be asked before each write: a process that was frozen does not know yet that it lost the Lease."""
        view = self._view
        return view is not None and view.renewed is not None and self._now() - view.renewed < self._cfg.duration

    @property
    def holder(self) -> str:
        return self._view.holder if self._view else ""

    @property
    def address(self) -> str:
        """Of who leads; empty: not known."""
        return self._view.address if self._view else ""

    async def run(self, lead: Callable[[int], Awaitable[None]]) -> None:
        """Until cancelled, and then the Lease is given back. An error of `lead` gives it back, too, and ends this."""
        leading: asyncio.Future[None] | None = None
        try:
            while True:
                epoch = await self._turn()
                if epoch is not None:
                    self._say(f"leads, epoch {epoch}")
                    leading = asyncio.ensure_future(lead(epoch))
                if leading is not None:
                    if self._view is None or self._view.renewed is None:
                        await _cancelled(leading)
                        leading = None
                    elif leading.done():
                        leading.result()
                        raise RuntimeError("the leader's work has ended by itself")
                await asyncio.wait([leading], timeout=self._cfg.retry) if leading else await asyncio.sleep(self._cfg.retry)
        finally:
            if leading is not None:
                await _cancelled(leading)
            await self._give_back()

    async def _turn(self) -> int | None:
        """Look, step, write. The epoch, if this process leads from now on."""
        with suppress(Refusal):  # the view stays as it is, and its age decides
            await self._look()
        step = lease_step(self._view, self._me, self._now(), self._cfg)
        try:
            if isinstance(step, Acquire):
                return await self._acquire(step)
            if isinstance(step, Renew):
                await self._renew()
        except Refusal as error:
            if error.code == CONFLICT:
                return None  # somebody was faster; the next look tells who
            self._failed(error)
            if error.code == NOT_FOUND and self._view is not None:
                self._view = self._view._replace(holder="")  # somebody has deleted it, and whoever asks next gets it
            step = lease_step(self._view, self._me, self._now(), self._cfg)
        if isinstance(step, StepDown):
            self._say(f"leads no more: {step.why}")
            assert self._view is not None
            self._view = self._view._replace(renewed=None, seen=self._now())
        return None

    def _failed(self, error: Refusal) -> None:
        """Said once in a row: it is tried again every few seconds."""
        if not self._failing:
            self._say(f"the Lease {NAME}: {error}; trying again")
        self._failing = True

    async def _look(self) -> None:
        if self._view is not None and self._view.renewed is not None:
            return  # who leads learns by a conflict that another has taken it
        found = await unreachable_or(self._store.get(LEASE, NAME), self._cfg.retry)
        if found is None:
            self._view = None
        else:
            self._take(found)

    def _take(self, found: Manifest, renewed: float | None = None) -> None:
        self._failing = False
        spec = found.get("spec") or {}
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        seen = self._view.seen if self._view is not None and record == self._record else self._now()
        self._record, self._version = record, found["metadata"]["resourceVersion"]
        duration = float(spec.get("leaseDurationSeconds") or self._cfg.duration)
        address = (found["metadata"].get("annotations") or {}).get(ADDRESS, "")
        self._view = LeaseView(spec.get("holderIdentity") or "", int(spec.get("leaseTransitions") or 0), duration, seen, renewed, address)

    async def _acquire(self, step: Acquire) -> int:
        epoch = step.epoch if step.epoch is not None else int(clock.wall()) - EPOCH_ORIGIN
        asked = self._now()
        spec = self._spec(leaseTransitions=epoch, acquireTime=_stamp())
        if step.epoch is None:
            answer = self._store.create(LEASE, {"metadata": {"name": NAME, **self._addressed()}, "spec": spec})
        else:
            answer = self._store.patch(LEASE, NAME, {"metadata": {"resourceVersion": self._version, **self._addressed()}, "spec": spec})
        self._take(await unreachable_or(answer, self._cfg.deadline), asked)
        return epoch

    async def _renew(self) -> None:
        assert self._view is not None
        asked = self._now()
        body = {"metadata": {"resourceVersion": self._version}, "spec": self._spec()}
        try:
            self._take(await unreachable_or(self._store.patch(LEASE, NAME, body), self._cfg.retry), asked)
        except Refusal as error:
            if error.code != CONFLICT:
                raise
            found = await unreachable_or(self._store.get(LEASE, NAME), self._cfg.retry)
            if found is not None:
                self._take(found, self._view.renewed)  # ours, if an answer was lost on its way; else the next step tells

    async def _give_back(self) -> None:
        if self._view is None or self._view.renewed is None or self._view.holder != self._me:
            return
        body = {"metadata": {"resourceVersion": self._version}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
        self._view = self._view._replace(renewed=None)
        with suppress(Refusal):  # then it runs out
            await unreachable_or(self._store.patch(LEASE, NAME, body), self._cfg.retry)

    def _addressed(self) -> Manifest:
        return {"annotations": {ADDRESS: self._address}} if self._address else {}

    def _spec(self, **more: Any) -> Manifest:
        seconds = max(1, round(self._cfg.duration))
        return {"holderIdentity": self._me, "leaseDurationSeconds": seconds, "renewTime": _stamp(), **more}


async def _cancelled(work: asyncio.Future[None]) -> None:
    """Cancel it and wait until it has ended. What it then raises is lost on purpose: it was told to end."""
    work.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await work


def _stamp() -> str:
    return datetime.fromtimestamp(clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
