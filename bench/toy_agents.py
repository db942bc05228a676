"""Pods that are not there, with agents that only say that they load: for measuring a controller alone, against a real API server.

Each pod of a StatefulSet is bound to a node that does not exist, called ready, and has an agent with a real token on a real stream. When it is
deleted, it asks to drain, waits until it is released, and goes.
"""

import asyncio
import contextlib
import random
import time
from typing import Any

import grpc
import msgspec

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object
from wakeful.cluster.wire import (
    ATTEND,
    PROTOCOL,
    Adopt,
    Desired,
    DrainAsked,
    HeldNow,
    Hello,
    Refused,
    Released,
    Report,
    ToAgent,
    UseNow,
    Wanted,
)

CAPACITY = 64 << 30
PERIOD = 5.0
LOADS = 0.05
"""Seconds of a load."""


class ToyAgent:
    """One pod's. `lag` and `busy` are what it reports of each model that it has."""

    def __init__(self, uid: str, pod: str, server: str, token: str, target: str, authority: bytes) -> None:
        self.hello = Hello(PROTOCOL, pod, uid, server, 8080, 50051, ["onnx", "tensorflow"], CAPACITY, "toy", token=token)
        self.held: dict[str, HeldNow] = {}
        self.lag, self.busy, self.period = 1.0, 0.1, PERIOD
        self.epoch = 0
        self.heard = self.sent_bytes = self.adopted = 0
        self.refused = ""
        self.draining, self.released = asyncio.Event(), asyncio.Event()
        self._target, self._authority = target, authority
        self._wanted: dict[str, Wanted] = {}
        self._news: asyncio.Queue[Any] = asyncio.Queue()
        self._arrived = 0

    async def run(self) -> None:
        """Come back whenever the stream ends, for ever."""
        credentials = grpc.ssl_channel_credentials(self._authority)
        options = [
            ("grpc.ssl_target_name_override", "wakeful-controller"), ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
        ]
        while True:
            async with grpc.aio.secure_channel(self._target, credentials, options) as channel:
                try:
                    await self._attend(channel)
                except* grpc.aio.AioRpcError:
                    pass
            await asyncio.sleep(random.uniform(0.1, 0.3))

    async def _attend(self, channel: Any) -> None:
        call = channel.stream_stream(ATTEND)()
        await self._say(call, msgspec.structs.replace(self.hello, held=dict(self.held), epoch=self.epoch))
        async with asyncio.TaskGroup() as tasks:
            talking = tasks.create_task(self._talk(call))
            ticking = tasks.create_task(self._tick())
            async for data in call:
                self._take(msgspec.msgpack.decode(data, type=ToAgent))
            talking.cancel()
            ticking.cancel()

    def _take(self, message: Any) -> None:
        self.heard += 1
        match message:
            case Adopt(epoch):
                self.epoch, self.adopted = epoch, self.adopted + 1
            case Refused(why):
                self.refused = why
            case Released():
                self.released.set()
            case Desired(_, _, base, models, gone):
                if base == 0:
                    gone = [name for name in self.held if name not in models]
                    self._wanted.clear()
                for name in gone:
                    self._wanted.pop(name, None)
                    self.held.pop(name, None)
                if gone:
                    self._news.put_nowait(Report(gone=list(gone)))
                for name, one in models.items():
                    self._want(name, one)

    def _want(self, name: str, one: Wanted) -> None:
        self._wanted[name] = one
        held = self.held.get(name)
        if one.finish:
            self._become(name, HeldNow("quiet", one.revision))
        elif held is None or held.revision != one.revision or held.state in {"quiet", "finishing"}:
            self._become(name, HeldNow("loading", one.revision, serves=held.revision if held else ""))
            asyncio.get_running_loop().call_later(random.uniform(0.5, 1.5) * LOADS, self._loaded, name, one.revision)

    def _loaded(self, name: str, revision: str) -> None:
        wanted = self._wanted.get(name)
        if wanted is not None and wanted.revision == revision and not wanted.finish:
            self._become(name, HeldNow("ready", revision, 50 << 20, "", "a1", 20 << 20))

    def _become(self, name: str, held: HeldNow) -> None:
        self.held[name] = held
        self._news.put_nowait(Report({name: held}))

    async def _talk(self, call: Any) -> None:
        while True:
            news = await self._news.get()
            while not self._news.empty():  # what has come meanwhile goes along
                more = self._news.get_nowait()
                if not isinstance(news, Report) or not isinstance(more, Report):
                    await self._say(call, news)
                    news = more
                else:
                    gone = [name for name in (*news.gone, *more.gone) if name not in self.held]
                    news = Report({name: self.held[name] for name in {**news.held, **more.held} if name in self.held}, gone, {**news.use, **more.use})
            await self._say(call, news)

    async def _tick(self) -> None:
        await asyncio.sleep(random.uniform(0, self.period))
        while True:
            self._arrived += 10
            now = time.time()
            self._news.put_nowait(Report(use={name: UseNow(self._arrived, self._arrived - 1, self.lag, self.busy, now) for name in self.held}))
            await asyncio.sleep(self.period)

    async def _say(self, call: Any, message: Any) -> None:
        data = msgspec.msgpack.encode(message)
        self.sent_bytes += len(data)
        await call.write(data)

    def drain(self) -> None:
        self._news.put_nowait(DrainAsked())


class ToyPods:
    """Plays kubelet for all pods of Servers in a namespace."""

    def __init__(self, api: Api, namespace: str, target: str) -> None:
        self.agents: dict[str, ToyAgent] = {}
        self._api, self._namespace, self._target = api, namespace, target
        self._base = f"/api/v1/namespaces/{namespace}"
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            with contextlib.suppress(ApiError, *OFFLINE):
                await asyncio.to_thread(self._beat)
                pods = await asyncio.to_thread(self._api.list, f"{self._base}/pods", labelSelector="wakeful.dev/server")
                for pod in pods:
                    uid = pod["metadata"]["uid"]
                    if uid not in self._tasks:
                        self._tasks[uid] = asyncio.create_task(self._live(pod))
                    elif "deletionTimestamp" in pod["metadata"] and uid in self.agents and not self.agents[uid].draining.is_set():
                        self.agents[uid].draining.set()
            await asyncio.sleep(0.5)

    def _beat(self) -> None:
        """The node lives: pods of a dead one would be taken away."""
        name, now = "toy", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        ready = {"type": "Ready", "status": "True", "reason": "Toy", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}
        self._api.merge(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})

    async def _live(self, pod: Object) -> None:
        meta = pod["metadata"]
        name, uid = meta["name"], meta["uid"]
        if "nodeName" not in pod["spec"]:
            await self._call("POST", f"{self._base}/pods/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": "toy"}})
        token = await self._call("POST", f"{self._base}/serviceaccounts/{pod['spec']['serviceAccountName']}/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["wakeful"], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}}})
        authority = (await self._call("GET", f"{self._base}/configmaps/wakeful-ca"))["data"]["ca.crt"]
        number = len(self._tasks)
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "PodScheduled", "Initialized")]
        address = f"127.200.{number // 250}.{number % 250 + 1}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
        await asyncio.to_thread(self._api.merge, f"{self._base}/pods/{name}/status", {"status": status})
        server = meta["labels"]["wakeful.dev/server"]
        agent = self.agents[uid] = ToyAgent(uid, name, server, token["status"]["token"], self._target, authority.encode())
        running = asyncio.create_task(agent.run())
        try:
            await agent.draining.wait()
            agent.drain()
            await agent.released.wait()
            await asyncio.to_thread(self._api.delete, f"{self._base}/pods/{name}", gracePeriodSeconds=0)
        finally:
            running.cancel()
            self.agents.pop(uid, None)

    async def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        return await asyncio.to_thread(self._api.call, method, path, body)
