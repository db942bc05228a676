"""Who leads. The step is pure; the loop runs against a Lease in memory that refuses stale versions as the API server does."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.clock import Clock
from tests.cluster.waiting import until
from wakeful.cluster.controller.api import CONFLICT, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.lease import Acquire, Follow, Lease, LeaseConfig, LeaseView, Renew, StepDown, lease_step

CFG = LeaseConfig()


def view(holder: str = "other", *, seen: float = 0.0, renewed: float | None = None, transitions: int = 7) -> LeaseView:
    return LeaseView(holder, transitions, 15.0, seen, renewed)


@pytest.mark.parametrize(
    ("lease", "now", "step"),
    [
        (None, 0.0, Acquire(None)),
        (view(""), 0.0, Acquire(8)),
        (view(), 15.0, Follow()),
        (view(), 15.1, Acquire(8)),
        (view(seen=10.0), 20.0, Follow()),
        (view("me", renewed=0.0), 2.0, Renew()),
        (view("me", renewed=0.0), 10.0, Renew()),
        (view("other", renewed=9.0), 10.0, StepDown("other holds it")),
        (view("", renewed=9.0), 10.0, StepDown("nobody holds it")),
        (view("me", renewed=0.0), 10.5, StepDown("it could not be renewed for 10.5 s")),
    ],
)
def test_the_step(lease: LeaseView | None, now: float, step: object) -> None:
    assert lease_step(lease, "me", now, CFG) == step


def test_a_former_life_of_the_same_name_is_waited_for_like_another_process() -> None:
    assert lease_step(view("me", renewed=None), "me", 5.0, CFG) == Follow()


class Store:
    """One Lease. `away`: the API server is not reached."""

    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.away = False
        self._versions = itertools.count(1)

    async def get(self, kind: Kind, name: str) -> Manifest | None:
        self._reach()
        return self.lease

    async def create(self, kind: Kind, body: Manifest) -> Manifest:
        self._reach()
        if self.lease is not None:
            raise Refusal(CONFLICT, "it is there")
        return self._store(dict(body["spec"]))

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest:
        self._reach()
        if self.lease is None:
            raise Refusal(404, "it is gone")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Refusal(CONFLICT, "somebody was faster")
        return self._store({**self.lease["spec"], **body["spec"]})

    def _store(self, spec: dict[str, Any]) -> Manifest:
        self.lease = {"metadata": {"resourceVersion": str(next(self._versions))}, "spec": spec}
        return self.lease

    def _reach(self) -> None:
        if self.away:
            raise Refusal(UNREACHED, "no answer")


class Process:
    """A controller as far as its lease is concerned. Its lease looks every 10 ms, by the clock that the test moves."""

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        self.said: list[str] = []
        self.epochs: list[int] = []
        self.leads = False
        self.fails: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.lease = Lease(store, name, LeaseConfig(15.0, 10.0, 0.01), self.said.append, now=clock)
        self.task = asyncio.ensure_future(self.lease.run(self._lead))

    async def _lead(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.leads = True
        try:
            raise await asyncio.shield(self.fails)
        finally:
            self.leads = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_one_leads_and_the_other_follows_until_the_first_has_ended() -> None:
    async def main() -> None:
        store, clock = Store(), Clock()
        one = Process(store, "one", clock)
        await until(lambda: one.leads)
        other = Process(store, "other", clock)
        await until(lambda: other.lease.holder == "one")
        assert not other.leads
        assert one.lease.held
        assert not other.lease.held
        await one.stop()
        await until(lambda: other.leads)
        assert other.epochs == [one.epochs[0] + 1]
        await other.stop()
        assert store.lease is not None
        assert store.lease["spec"]["holderIdentity"] == ""

    asyncio.run(main())


def test_who_cannot_renew_steps_down_and_leads_again_when_the_api_server_is_back() -> None:
    async def main() -> None:
        store, clock = Store(), Clock()
        one = Process(store, "one", clock)
        await until(lambda: one.leads)
        store.away = True
        clock.time += 9
        await asyncio.sleep(0.05)
        assert one.leads
        clock.time += 2
        await until(lambda: not one.leads)
        assert "leads no more: it could not be renewed" in one.said[-1]
        store.away = False
        clock.time += 16
        await until(lambda: one.leads)
        assert one.epochs[1] == one.epochs[0] + 1
        await one.stop()

    asyncio.run(main())


def test_a_frozen_leader_knows_that_it_may_not_write_before_it_has_looked() -> None:
    async def main() -> None:
        store, clock = Store(), Clock()
        one = Process(store, "one", clock)
        await until(lambda: one.leads)
        clock.time += 15
        assert not one.lease.held
        await one.stop()

    asyncio.run(main())


def test_a_deleted_lease_is_given_up_at_once_and_the_next_epoch_is_higher() -> None:
    async def main() -> None:
        store, clock = Store(), Clock()
        one = Process(store, "one", clock)
        await until(lambda: one.leads)
        store.lease = None
        await until(lambda: len(one.epochs) == 2)
        assert one.epochs[1] >= one.epochs[0]
        assert any("nobody holds it" in said for said in one.said)
        await one.stop()

    asyncio.run(main())


def test_a_leader_whose_work_fails_gives_the_lease_back_and_ends() -> None:
    async def main() -> None:
        store, clock = Store(), Clock()
        one = Process(store, "one", clock)
        await until(lambda: one.leads)
        one.fails.set_result(RuntimeError("broken"))
        with pytest.raises(RuntimeError, match="broken"):
            await one.task
        assert store.lease is not None
        assert store.lease["spec"]["holderIdentity"] == ""

    asyncio.run(main())
