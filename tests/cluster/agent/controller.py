"""A controller that says what a test says: a real gRPC server, in a thread with its own loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec

from tests.daemon import Daemon, running, wait_until
from wakeful.cluster.wire import (
    ATTEND,
    PROTOCOL,
    Adopt,
    Desired,
    FromAgent,
    HeldNow,
    Hello,
    Refused,
    Report,
    ToAgent,
    Trigger,
    UseNow,
    Wanted,
)

OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 5_000))
AnyMessage = TypeVar("AnyMessage", bound=msgspec.Struct)


class Controller:
    """Everything that agents say is kept in `heard`, and what reports say together in `held` and `use`. `tell` sends to all streams that are open."""

    def __init__(self, epoch: int = 1, port: int = 0) -> None:
        self.epoch = epoch
        self.port = port
        self.heard: list[FromAgent] = []
        self.held: dict[str, HeldNow] = {}
        self.use: dict[str, UseNow] = {}
        self.states: list[tuple[str, str, str]] = []
        """Model, state and revision, in the order in which they were told."""
        self.models: dict[str, Wanted] = {}
        self.refusal = ""
        self._version = 0
        self._streams: set[Any] = set()
        self._one = asyncio.Lock()
        """Of what agents are told, one thing after the other."""
        self._loop = asyncio.new_event_loop()
        self._server: Any = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def start(self) -> None:
        self._do(self._serve())

    async def _serve(self) -> None:
        self._server = grpc.aio.server(options=OPTIONS)
        attend = grpc.stream_stream_rpc_method_handler(self._attend)
        service, method = ATTEND.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: attend}),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def _attend(self, requests: AsyncIterator[bytes], context: Any) -> None:
        decoder = msgspec.msgpack.Decoder(FromAgent)
        hello = decoder.decode(await anext(requests))
        self._keep(hello)
        if self.refusal:
            await context.write(msgspec.msgpack.encode(Refused(self.refusal)))
            return
        await context.write(msgspec.msgpack.encode(Adopt(self.epoch, PROTOCOL)))
        async with self._one:
            self._version += 1
            await context.write(msgspec.msgpack.encode(Desired(self.epoch, self._version, 0, self.models)))
            self._streams.add(context)
        try:
            async for data in requests:
                self._keep(decoder.decode(data))
        finally:
            self._streams.discard(context)

    def _keep(self, message: FromAgent) -> None:
        self.heard.append(message)
        if isinstance(message, Hello):
            self.held.clear()
            self.use.clear()
        if isinstance(message, Hello | Report):
            news = [(name, held.state, held.revision) for name, held in message.held.items()]
            news = [one for one in news if (before := self.held.get(one[0])) is None or one[1:] != (before.state, before.revision)]
            self.states += sorted(news, key=lambda one: one[1] == "loading")  # a report has no order: what has ended made room for what begins
            self.held |= message.held
            self.use |= message.use
        if isinstance(message, Report):
            for name in message.gone:
                self.held.pop(name, None)
                self.states.append((name, "gone", ""))

    def tell(self, *messages: ToAgent) -> None:
        self._do(self._tell(messages))

    async def _tell(self, messages: Sequence[ToAgent]) -> None:
        async with self._one:
            await self._write(messages)

    async def _write(self, messages: Sequence[ToAgent]) -> None:
        for context in list(self._streams):
            for message in messages:
                await context.write(msgspec.msgpack.encode(message))

    def want(self, **models: Wanted | None) -> None:
        """A change of what is wanted; None: not any more."""
        self._do(self._want(models))

    async def _want(self, models: dict[str, Wanted | None]) -> None:
        changed = {name: wanted for name, wanted in models.items() if wanted is not None}
        gone = [name for name, wanted in models.items() if wanted is None]
        async with self._one:
            self.models = {name: wanted for name, wanted in (self.models | changed).items() if name not in gone}
            if self._streams:
                self._version += 1
                await self._write([Desired(self.epoch, self._version, self._version - 1, changed, gone)])

    def of(self, kind: type[AnyMessage]) -> list[AnyMessage]:
        return [message for message in self.heard if isinstance(message, kind)]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        try:
            wait_until(condition, what, 60.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; heard last: {self.heard[-5:]}") from None

    def wait_state(self, name: str, state: str, revision: str = "") -> HeldNow:
        def there() -> bool:
            held = self.held.get(name)
            return held is not None and held.state == state and revision in ("", held.revision)

        self.wait(there, f"{name} is {state} {revision}")
        return self.held[name]

    def triggers(self, model: str) -> list[str]:
        return [trigger.kind for trigger in self.of(Trigger) if trigger.model == model]

    def stop(self) -> None:
        if self._server is not None:
            self._do(self._server.stop(0))
            self._server = None

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@contextmanager
def controlling(epoch: int = 1) -> Iterator[Controller]:
    controller = Controller(epoch)
    try:
        yield controller
    finally:
        controller.close()


def pod_options(directory: Path, controllers: Sequence[Controller], **more: str) -> dict[str, str]:
    """Variables of a pod whose directories are below `directory`."""
    return {
        "WAKEFUL_CLUSTER_CONTROLLERS": ",".join(one.address for one in controllers), "WAKEFUL_CLUSTER_SERVER": "triton",
        "POD_NAME": "triton-0", "POD_UID": "uid-0", "WAKEFUL_CLUSTER_SOCKET": str(directory / "agent.sock"),
        "WAKEFUL_CLUSTER_STATE_DIR": str(directory / "state"), "WAKEFUL_CLUSTER_STATS_PERIOD_SECS": "0.2", **more,
    }


@contextmanager
def pod(directory: Path, *controllers: Controller, options: Sequence[str] = (), **more: str) -> Iterator[Daemon]:
    """A daemon with an agent. Containers of one pod share the directory."""
    directory.mkdir(exist_ok=True)
    with running(directory, *options, env=pod_options(directory, controllers, **more)) as daemon:
        yield daemon


def wanted(path: Path, revision: str = "r1", **more: Any) -> Wanted:
    return Wanted(revision, f"file://{path}", **more)
