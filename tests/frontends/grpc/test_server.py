"""The door: what is checked before a method sees a call."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frontends.grpc.heard import Heard
from wakeful.config.settings import AuthSettings, Role
from wakeful.errors import WakefulError
from wakeful.frontends.access import Access
from wakeful.frontends.grpc.call import Call
from wakeful.frontends.grpc.errors import Code
from wakeful.frontends.grpc.server import GrpcServer

LIMIT = 100


def echo(call: Call, message: bytes) -> None:
    call.respond(message)


def broken(call: Call, message: bytes) -> None:
    raise KeyError("nobody's business")


@pytest.fixture
def server() -> Iterator[GrpcServer]:
    """pygrpc-native's server looks for a loop when it is made."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield GrpcServer([], Access(AuthSettings()), lambda _: None, LIMIT, 60, None, strangers=False)
    asyncio.set_event_loop(None)
    loop.close()


def take(server: GrpcServer, message: bytes = b"x", handler: Any = echo, role: Role | None = Role.INFERENCE) -> Heard:
    call = Heard(handler, role)
    server.take(call, message)
    return call


def test_a_call_goes_to_its_method(server: GrpcServer) -> None:
    assert take(server, b"x" * LIMIT).answers == [b"x" * LIMIT]


def test_a_fault_of_ours_is_internal_and_tells_nothing(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    assert take(server, handler=broken).ended == (Code.INTERNAL, "internal error", ())
    assert "nobody's business" in caplog.text


def test_a_message_over_the_limit(server: GrpcServer) -> None:
    ended = take(server, b"x" * (LIMIT + 1)).ended
    assert ended is not None
    assert (ended[0], "max_body" in ended[1]) == (Code.RESOURCE_EXHAUSTED, True)


def test_a_stranger(server: GrpcServer) -> None:
    told: list[WakefulError] = []
    server = GrpcServer([], Access(AuthSettings(enabled=True)), told.append, LIMIT, 60, None, strangers=False)
    ended = take(server, handler=broken).ended
    assert ended is not None
    assert ended[0] == Code.UNAUTHENTICATED
    assert [error.code for error in told] == ["unauthenticated"]
    assert take(server, role=None).answers == [b"x"]
