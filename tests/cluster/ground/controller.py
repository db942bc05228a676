"""What of a controller a gateway sees, in a thread of the test's process: the real services, and in place of the planner the test."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc

from wakeful.clock import monotonic
from wakeful.cluster.controller.agents import OPTIONS, Agents
from wakeful.cluster.controller.identity import Door, Identity, Office
from wakeful.cluster.controller.tls import Pem
from wakeful.cluster.controller.xds import Discovery
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.world import Endpoint, Routing
from wakeful.cluster.wire import Hello, ModelsTold, Report, Trigger, WakeTold

T = TypeVar("T")
UNKNOWN = WakeTold("unknown")


class Planner:
    """The listener that the test speaks for: what it answers to Wake, and who asked."""

    def __init__(self) -> None:
        self.answers: dict[str, WakeTold] = {}
        self.asked: list[str] = []
        self.opened = asyncio.Event()
        self.listed = ModelsTold()
        self.lists = 0
        """How often it was asked for the list."""
        self._news: dict[str, asyncio.Future[None]] = {}

    def wake(self, model: str) -> WakeTold:
        self.asked.append(model)
        return self.answers.get(model, UNKNOWN)

    def models(self) -> ModelsTold:
        self.lists += 1
        return self.listed

    def changed(self, model: str) -> asyncio.Future[None]:
        return self._news.setdefault(model, asyncio.get_running_loop().create_future())

    def answer(self, model: str, told: WakeTold) -> None:
        self.answers[model] = told
        if (news := self._news.pop(model, None)) is not None and not news.done():
            news.set_result(None)

    def hello(self, hello: Hello) -> None: ...

    def report(self, uid: str, report: Report) -> None: ...

    def trigger(self, uid: str, trigger: Trigger) -> None: ...

    def drain_asked(self, uid: str) -> None: ...

    def silent(self, uid: str) -> None: ...


class Controller:
    """Leads from its beginning. `port` 0: the system's choice. Its gate is open, unless told otherwise. `pem`: it speaks TLS."""

    def __init__(
        self, routes: Mapping[str, tuple[Endpoint, ...]] | None = None, *, port: int = 0, opened: bool = True, pem: Pem | None = None,
        identity: Identity | None = None,
    ) -> None:
        """`identity`: it lets gateways in alone that show a token."""
        self.notes: list[Note] = []
        self.port, self._pem = port, pem
        self.leads = True
        """It holds the Lease, as far as it knows."""
        self._doors = (Office(lambda: self.leads), *(() if identity is None else (Door(identity),)))
        self.changes = 0
        """How often the routing has changed."""
        self.planner = Planner()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(routes or {}, opened)), daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def set_routes(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None:
        self.call(self.discovery.set_routes, routes)

    def open(self) -> None:
        self.call(self.discovery.open, {})
        self.call(self.planner.opened.set)

    def answer(self, model: str, told: WakeTold) -> None:
        self.call(self.planner.answer, model, told)

    def routing(self) -> dict[str, Routing]:
        return self.call(lambda: dict(self.discovery.routing()))

    def wait(self, condition: Callable[[dict[str, Routing]], bool], what: str, seconds: float = 20.0) -> None:
        """Until it holds of the routing."""
        end = time.monotonic() + seconds
        while not condition(routing := self.routing()):
            assert time.monotonic() < end, f"waited {seconds} s in vain until {what}: {routing}"
            time.sleep(0.002)

    def route(self, model: str, *endpoints: Endpoint) -> None:
        """Only this model, acknowledged by all."""
        self.settle({model: endpoints})

    def settle(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None:
        """Set the routes, and wait until every gateway has acknowledged them."""
        self.set_routes(routes)
        expected = {model: frozenset(endpoint.replica for endpoint in endpoints) for model, endpoints in routes.items() if endpoints}
        self.wait(
            lambda routing: {model: one.everywhere for model, one in routing.items()} == expected
            and all(one.anywhere <= one.everywhere for one in routing.values()), "the routes are acknowledged",
        )

    def gateways(self) -> frozenset[str]:
        return self.call(lambda: self.discovery.gateways)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        async def there() -> T:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(30)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(10)

    async def _main(self, routes: Mapping[str, tuple[Endpoint, ...]], opened: bool) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.discovery = Discovery(self._changed, self.notes.append, lambda: self.leads, monotonic)
        self.discovery.set_routes(routes)
        if opened:
            self.discovery.open({})
            self.planner.opened.set()
        server = grpc.aio.server(interceptors=self._doors, options=OPTIONS)
        server.add_generic_rpc_handlers((Agents(1, self.planner, self.planner, _anybody),))
        self.discovery.add_to(server)
        address = f"127.0.0.1:{self.port}"
        self.port = server.add_insecure_port(address) if self._pem is None else server.add_secure_port(address, self._pem.credentials())
        await server.start()
        ticking = asyncio.create_task(self.discovery.run())
        self._started.set()
        await self._ended.wait()
        ticking.cancel()
        await server.stop(0)

    def _changed(self, models: frozenset[str]) -> None:
        self.changes += 1


async def _anybody(hello: Hello) -> str:
    return ""
