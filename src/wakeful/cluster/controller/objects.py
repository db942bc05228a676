"""Makes of each Server what it consists of in Kubernetes, and keeps it so. What is in the API server already is not sent again."""

import asyncio
import json
from collections.abc import Callable
from typing import Protocol

from wakeful.clock import monotonic
from wakeful.cluster.controller.api import Manifest, Refusal
from wakeful.cluster.controller.intake import Intake
from wakeful.cluster.manifests import SURGING, TEMPLATE_LABEL, Install, desired_objects, template_digest
from wakeful.cluster.planning.rollout import StsView, rollout
from wakeful.cluster.planning.servers import target_of
from wakeful.cluster.planning.status import Observed
from wakeful.cluster.planning.world import ServerSpec, World

AGAIN = 5.0
"""Seconds after which what was refused is tried again."""
REFRESH = 600.0
"""Seconds after which all is sent again, whatever happened to it."""


class Store(Protocol):
    async def apply(self, manifest: Manifest) -> Manifest: ...


class Objects:
    """`ensure` says that a Server may need something; `run` does it, one object after the other."""

    def __init__(
        self, store: Store, world: World, intake: Intake, install: Install, may_write: Callable[[], bool], complain: Callable[[str], None]
    ) -> None:
        self.refused: dict[str, str] = {}
        """By Server, what the API server said last of an object that it did not take."""
        self._store, self._world, self._intake, self._install = store, world, intake, install
        self._may_write, self._complain = may_write, complain
        self._due: dict[str, None] = {}
        self._news = asyncio.Event()
        self._applied: dict[tuple[str, str], tuple[str, int]] = {}
        self._refresh_at = monotonic() + REFRESH
        self._digests: dict[str, tuple[ServerSpec, str]] = {}

    def ensure(self, server: str) -> None:
        self._due.setdefault(server)
        self._news.set()

    def observed(self, server: str) -> Observed:
        """What the status tells of the pods and of the ledger."""
        spec = self._world.servers[server].spec
        template = self._digest(spec)
        pods, stateful_set = self._intake.pods_of(server), self._view(server)
        replicas = [one for one in self._world.replicas.values() if one.server == server]
        accounts = self._world.ledger.accounts()
        mine = [accounts[one.uid] for one in replicas if one.uid in accounts]
        return Observed(
            updated=sum(pod.template == template and not pod.leaving for pod in pods),
            rolling=any(pod.template != template for pod in pods),
            refused=self.refused.get(server, ""),
            capacity=sum(one.agent.capacity for one in replicas if one.agent is not None),
            registered=sum(account.registered for account in mine),
            active=sum(account.active for account in mine),
            surging=stateful_set is not None and stateful_set.surging,
        )

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(AGAIN):
                    await self._news.wait()
            except TimeoutError:
                self._look_again()
            self._news.clear()
            due, self._due = self._due, {}
            for server in due:
                await self._make(server)

    def _look_again(self) -> None:
        for server in self.refused:
            self.ensure(server)
        if monotonic() >= self._refresh_at:
            self._refresh_at = monotonic() + REFRESH
            self._applied.clear()
            for server in self._world.servers:
                self.ensure(server)

    async def _make(self, server: str) -> None:
        entry = self._world.servers.get(server)
        if entry is None:
            self.refused.pop(server, None)
            self._digests.pop(server, None)
            return
        if entry.spec.errors:
            return  # its pods stay as they are
        patch = rollout(entry.spec, target_of(entry), self._digest(entry.spec), self._view(server), self._intake.pods_of(server))
        before = self.refused.pop(server, "")
        for manifest in desired_objects(entry.spec, self._install, patch):
            try:
                await self._apply(manifest)
            except Refusal as error:
                self.refused[server] = f"{manifest['kind']} {manifest['metadata']['name']}: {error}"
        if (now := self.refused.get(server, "")) != before:
            self._intake.touch_server(server)
            if now:
                self._complain(f"Server {server}: {now}; trying again")

    async def _apply(self, manifest: Manifest) -> None:
        """Unless it is there already, and of a StatefulSet nobody has made anything else since."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        text = json.dumps(manifest, sort_keys=True)
        before, generation = self._applied.get((kind, name), ("", 0))
        if before == text and (kind != "StatefulSet" or self._is_ours(name, generation)):
            return
        if self._may_write():
            answer = await self._store.apply(manifest)
            self._applied[kind, name] = text, answer["metadata"].get("generation", 0)

    def _is_ours(self, server: str, generation: int) -> bool:
        """What the API server has is what was applied last, or older: then the watch has not told of it yet."""
        if server not in self._intake.stateful_sets:
            return True
        there = self._intake.stateful_sets[server]
        return there is not None and there["metadata"].get("generation", 0) <= generation

    def _digest(self, spec: ServerSpec) -> str:
        """Of the template; a spec is never changed, so it is made once."""
        known = self._digests.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._digests[spec.name] = spec, template_digest(spec, self._install)
        return known[1]

    def _view(self, server: str) -> StsView | None:
        there = self._intake.stateful_sets.get(server)
        if there is None:
            return None
        notes = there["metadata"].get("annotations") or {}
        return StsView(notes.get(TEMPLATE_LABEL, ""), notes.get(SURGING) == "true")
