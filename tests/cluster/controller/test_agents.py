"""The streams of agents and gateways, over a real grpc.aio channel. The loop behind them is a list of what it was told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest

from tests.cluster.waiting import until
from wakeful import __version__
from wakeful.cluster.controller.agents import OPTIONS, Agents
from wakeful.cluster.wire import (
    ATTEND,
    MODELS,
    PROTOCOL,
    WAKE,
    Adopt,
    Desired,
    DrainAsked,
    HeldNow,
    Hello,
    ModelsAsk,
    ModelsTold,
    Refused,
    Released,
    Report,
    Standing,
    ToAgent,
    Trigger,
    WakeAsk,
    WakeTold,
    Wanted,
)

EPOCH = 9
CAT, DOG = Wanted("r1", "file:///cat"), Wanted("r1", "file:///dog")


class Told:
    """What the loop would hear."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.answers: dict[str, WakeTold] = {}
        self.news: dict[str, asyncio.Future[None]] = {}
        self.opened = asyncio.Event()
        self.opened.set()

    def hello(self, hello: Hello) -> None:
        self.heard.append(hello)

    def report(self, uid: str, report: Report) -> None:
        self.heard.append((uid, report))

    def trigger(self, uid: str, trigger: Trigger) -> None:
        self.heard.append((uid, trigger))

    def drain_asked(self, uid: str) -> None:
        self.heard.append((uid, "drain"))

    def silent(self, uid: str) -> None:
        self.heard.append((uid, "silent"))

    def models(self) -> ModelsTold:
        return ModelsTold([Standing("cat", "Available", serves=True)])

    def wake(self, model: str) -> WakeTold:
        return self.answers.get(model, WakeTold("unknown", near=["cat"]))

    def changed(self, model: str) -> Awaitable[None]:
        return self.news.setdefault(model, asyncio.get_running_loop().create_future())

    async def has(self, what: object) -> None:
        await until(lambda: what in self.heard)


class Stream:
    """An agent that says and hears what the test wants."""

    def __init__(self, channel: Any) -> None:
        self._call = channel.stream_stream(ATTEND)()

    async def say(self, message: Any) -> None:
        await self._call.write(msgspec.msgpack.encode(message))

    async def hear(self) -> Any:
        """The next message; None: the stream has ended."""
        async with asyncio.timeout(5):
            data = await self._call.read()
        return None if data is grpc.aio.EOF else msgspec.msgpack.decode(data, type=ToAgent)

    async def end(self) -> None:
        await self._call.done_writing()


def hello(uid: str = "u1", *, protocol: int = PROTOCOL, epoch: int = 0, token: str = "good") -> Hello:
    return Hello(protocol, "triton-0", uid, "triton", 8080, None, ["onnx"], 1 << 30, "1", epoch, token=token)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Agents, Told, Any]]:
    async def identify(hello: Hello) -> str:
        return "" if hello.token == "good" else "a stranger"

    told = Told()
    agents = Agents(EPOCH, told, told, identify)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((agents,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield agents, told, channel
    await server.stop(0)


def run(test: Callable[[Agents, Told, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served() as (agents, told, channel):
            await test(agents, told, channel)

    asyncio.run(main())


async def adopted(channel: Any, told: Told, greeting: Hello | None = None) -> Stream:
    stream = Stream(channel)
    greeting = greeting or hello()
    await stream.say(greeting)
    assert await stream.hear() == Adopt(EPOCH, PROTOCOL)
    await told.has(greeting)
    return stream


def test_an_agent_is_told_everything_first_and_then_what_changes() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = await adopted(channel, told)
        agents.want("u1", {"cat": CAT}, 1)
        assert await stream.hear() == Desired(EPOCH, 1, 0, {"cat": CAT})
        agents.want("u1", {"cat": CAT}, 2)
        agents.want("u1", {"dog": DOG}, 3)
        assert await stream.hear() == Desired(EPOCH, 3, 1, {"dog": DOG}, ["cat"])
        agents.want("u1", {}, 4)
        agents.want("u1", {"dog": DOG}, 5)
        assert await stream.hear() == Desired(EPOCH, 5, 3), "nothing has changed in between, and the agent is to say that it knows"
        agents.want("someone else", {"cat": CAT}, 6)
        agents.release("u1")
        assert await stream.hear() == Released()

    run(test)


def test_to_have_nothing_is_said_too_but_not_before_it_is_known() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = await adopted(channel, told)
        agents.release("u1")
        assert await stream.hear() == Released()
        agents.want("u1", {}, 1)
        assert await stream.hear() == Desired(EPOCH, 1, 0)

    run(test)


def test_what_an_agent_says_is_passed_on() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = await adopted(channel, told)
        report = Report({"cat": HeldNow("ready", "r1", 1000)}, ["dog"])
        trigger = Trigger("cat", "lag")
        for message in (report, trigger, DrainAsked()):
            await stream.say(message)
        await told.has(("u1", "drain"))
        assert told.heard[1:] == [("u1", report), ("u1", trigger), ("u1", "drain")]
        assert agents.connected == 1
        await stream.end()
        await told.has(("u1", "silent"))
        assert agents.connected == 0

    run(test)


def test_an_agent_that_has_lost_count_says_hello_again_and_is_told_everything() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = await adopted(channel, told)
        agents.want("u1", {"cat": CAT}, 1)
        assert await stream.hear() == Desired(EPOCH, 1, 0, {"cat": CAT})
        await stream.say(hello())
        assert await stream.hear() == Desired(EPOCH, 1, 0, {"cat": CAT})

    run(test)


def test_a_new_stream_of_a_pod_replaces_the_old_one_and_the_pod_is_never_silent() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        old = await adopted(channel, told)
        new = await adopted(channel, told)
        assert await old.hear() is None
        agents.want("u1", {"cat": CAT}, 1)
        assert await new.hear() == Desired(EPOCH, 1, 0, {"cat": CAT})
        assert ("u1", "silent") not in told.heard

    run(test)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (hello(token="bad"), "a stranger"),
        (hello(protocol=PROTOCOL + 2),
         f"the agent (1) speaks protocol {PROTOCOL + 2}, and this controller ({__version__}) {PROTOCOL}: they may differ by one"),
        (hello(epoch=EPOCH + 1), f"the agent has obeyed epoch {EPOCH + 1}, and this controller leads in {EPOCH}: another one leads now"),
        (DrainAsked(), "the first message is to be a Hello, and is a DrainAsked"),
        ({"t": "hello"}, "the first message cannot be read: Object missing required field `protocol`"),
    ],
)
def test_who_is_refused_is_told_why(first: Any, why: str) -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = Stream(channel)
        await stream.say(first)
        assert await stream.hear() == Refused(why)
        assert await stream.hear() is None
        assert told.heard == []

    run(test)


def test_a_message_that_cannot_be_read_ends_the_stream_with_a_reason() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        stream = await adopted(channel, told)
        await stream.say({"t": "trigger", "model": 5})
        refused = await stream.hear()
        assert isinstance(refused, Refused)
        assert refused.why.startswith("a message cannot be read: ")
        await told.has(("u1", "silent"))

    run(test)


def test_a_gateway_hears_how_far_a_model_is_until_it_is_routed() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        told.answers["cat"] = WakeTold("waking", hold=5.0)
        call = channel.unary_stream(WAKE)(msgspec.msgpack.encode(WakeAsk("cat")))
        assert msgspec.msgpack.decode(await call.read(), type=WakeTold) == WakeTold("waking", hold=5.0)
        told.answers["cat"] = WakeTold("routed")
        told.news.pop("cat").set_result(None)
        assert msgspec.msgpack.decode(await call.read(), type=WakeTold) == WakeTold("routed")
        assert await call.read() is grpc.aio.EOF

    run(test)


def test_a_gateway_is_told_the_names_that_are_near() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        call = channel.unary_stream(WAKE)(msgspec.msgpack.encode(WakeAsk("cta")))
        assert msgspec.msgpack.decode(await call.read(), type=WakeTold) == WakeTold("unknown", near=["cat"])
        assert await call.read() is grpc.aio.EOF

    run(test)


def test_a_leader_that_learns_how_things_stand_calls_no_model_unknown_and_lists_none() -> None:
    async def test(agents: Agents, told: Told, channel: Any) -> None:
        told.opened.clear()
        call = channel.unary_stream(WAKE)(msgspec.msgpack.encode(WakeAsk("cat")))
        assert msgspec.msgpack.decode(await call.read(), type=WakeTold) == WakeTold("waking")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(MODELS)(msgspec.msgpack.encode(ModelsAsk()))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        told.answers["cat"] = WakeTold("routed")
        told.opened.set()
        assert msgspec.msgpack.decode(await call.read(), type=WakeTold) == WakeTold("routed")
        listed = msgspec.msgpack.decode(await channel.unary_unary(MODELS)(msgspec.msgpack.encode(ModelsAsk())), type=ModelsTold)
        assert [model.name for model in listed.models] == ["cat"]

    run(test)
