"""What a controller costs: memory, time of processor, statuses a second, bytes of agents, with a real API server and agents that only talk.

usage: python -m bench.cluster_controller [--models 1000] [--replicas 50] [--copies 50] [--seconds 30]

By hand, since it takes minutes. Needs the control plane of the tests (`make test-cluster` builds it).
"""

import argparse
import asyncio
import re
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

from bench.toy_agents import ToyPods
from tests.cluster.ground.api import Api
from tests.cluster.ground.control_plane import ControlPlane
from tests.cluster.ground.processes import Process
from wakeful.cluster.crds import crds

NAMESPACE, SERVER = "bench", "triton"
PATIENCE = 400.0
AT_ONCE = 8


class Cost(NamedTuple):
    """Of a process, at one time."""

    time: float
    cpu: float
    rss: int


class Bench:
    def __init__(self, plane: ControlPlane, directory: Path, options: argparse.Namespace) -> None:
        self.plane, self.api, self.options = plane, Api(plane.url, plane.api.token, plane.authority), options
        self.host = f"{plane.network.prefix}.0.9"
        command = [
            sys.executable, "-m", "wakeful", "cluster", "controller", "-n", NAMESPACE, "--host", self.host, "--kubeconfig",
            str(plane.kubeconfig_path),
        ]
        self.controller = Process("controller", command, directory / "controller.log")
        self.pods = ToyPods(self.api, NAMESPACE, f"ipv4:{self.host}:9100")

    def cost(self, process: Process) -> Cost:
        seen = psutil.Process(process.pid)
        times = seen.cpu_times()
        return Cost(time.monotonic(), times.user + times.system, seen.memory_info().rss)

    def figure(self, name: str) -> float:
        page = urllib.request.urlopen(f"http://{self.host}:9102/metrics", timeout=60).read().decode()
        found = re.search(rf"^wakeful_controller_{re.escape(name)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def until(self, what: str, condition: Callable[[], Any]) -> float:
        """Seconds until it held."""
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            if await asyncio.to_thread(condition):
                return time.monotonic() - began
            await asyncio.sleep(0.2)
        raise SystemExit(f"waited {PATIENCE:g} s in vain: {what}\n{self.controller.log[-3000:]}")

    async def run(self) -> None:
        options = self.options
        for thing in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "wakeful-server", "namespace": NAMESPACE}},
        ):
            self.api.apply(thing)
        self.controller.start()
        await self.until("it is ready", self._ready)
        print(f"without anything: {self.cost(self.controller).rss / 1e6:.0f} MB")
        playing = asyncio.create_task(self.pods.run())
        await asyncio.to_thread(self._apply, "Server", SERVER, {"replicas": options.replicas})
        took = await self.until("agents are there", lambda: self.figure("agents") == options.replicas)
        print(f"{options.replicas} agents connected after {took:.1f} s, {self.cost(self.controller).rss / 1e6:.0f} MB")
        await self._measured("all Models made and placed", self._place)
        await self._measured(f"steady for {options.seconds:g} s", lambda: asyncio.sleep(options.seconds))
        await self._measured("one replica lost and its copies gone", self._lose_one)
        await self._measured("another process leads", self._take_over)
        self.controller.kill()
        playing.cancel()

    async def _place(self) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def make(number: int) -> None:
            async with gate:
                spec = {"storageUri": f"gs://models/{number}", "replicas": self.options.copies, "memory": "50Mi"}
                await asyncio.to_thread(self._apply, "Model", f"m{number:04d}", spec)

        began = time.monotonic()
        await asyncio.gather(*map(make, range(self.options.models)))
        print(f"  {self.options.models} Models made in {time.monotonic() - began:.1f} s")
        wanted = self.options.models * self.options.copies
        took = await self.until("all are routed", lambda: self.figure('placements{state="Routed"}') == wanted)
        print(f"  all {wanted} copies routed after {took:.1f} s more")
        took = await self.until("statuses are written", lambda: self.figure("statuses_waiting") == 0)
        print(f"  all statuses written after {took:.1f} s more")

    async def _lose_one(self) -> None:
        uid = next(iter(self.pods.agents))
        name = self.pods.agents[uid].hello.pod
        before = self.options.models * self.options.copies
        await asyncio.to_thread(self.api.delete, f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", gracePeriodSeconds=0)
        took = await self.until("it is noticed", lambda: self.figure('placements{state="Routed"}') < before)
        print(f"  noticed after {took:.1f} s")
        await self.until("all are routed again", lambda: self.figure('placements{state="Routed"}') == before)

    async def _take_over(self) -> None:
        self.controller.stop()
        self.controller.start()
        took = await self.until("it is ready again", self._ready)
        print(f"  ready {took:.1f} s after its start")

    async def _measured(self, what: str, work: Callable[[], Any]) -> None:
        print(f"{what}:", flush=True)
        pid = self.controller.pid
        before, api_before = self.cost(self.controller), self.cost(self.plane.apiserver)
        sent = sum(agent.sent_bytes for agent in self.pods.agents.values())
        written, plans, planning = self.figure("status_writes"), self.figure("plan_seconds_count"), self.figure("plan_seconds_sum")
        await work()
        after, api_after = self.cost(self.controller), self.cost(self.plane.apiserver)
        if self.controller.pid != pid:
            print(f"  {after.rss / 1e6:.0f} MB and {after.cpu:.1f} s of processor since its start", flush=True)
            return
        seconds = after.time - before.time
        sent = sum(agent.sent_bytes for agent in self.pods.agents.values()) - sent
        written, plans, planning = (
            now - then for now, then in zip(map(self.figure, ("status_writes", "plan_seconds_count", "plan_seconds_sum")),
                                            (written, plans, planning), strict=True))
        print(
            f"  {seconds:.1f} s; controller {after.rss / 1e6:.0f} MB, {(after.cpu - before.cpu) / seconds * 100:.1f} % of a core; "
            f"API server {(api_after.cpu - api_before.cpu) / seconds * 100:.0f} %; {written:.0f} statuses ({written / seconds:.1f}/s); "
            f"{plans:.0f} plans of {planning / max(plans, 1) * 1e3:.1f} ms; agents sent {sent / seconds / 1e3:.0f} KB/s", flush=True,
        )

    def _ready(self) -> bool:
        assert self.controller.running, self.controller.log[-3000:]
        try:
            return bool(urllib.request.urlopen(f"http://{self.host}:9102/readyz", timeout=5).read() == b"leads\n")
        except OSError:
            return False

    def _apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        self.api.apply({"apiVersion": "wakeful.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_controller", description="What a controller costs.")
    for option, default in (("--models", 1000), ("--replicas", 50), ("--copies", 50)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    plane = ControlPlane(crds())
    try:
        with TemporaryDirectory() as directory:
            asyncio.run(Bench(plane, Path(directory), options).run())
    finally:
        plane.close()


if __name__ == "__main__":
    main()
