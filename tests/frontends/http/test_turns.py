"""However many ask at once, a turn of the loop stays short, and whoever comes anew is let in."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.frontends.http.stage import Stage
from wakeful.frontends.http.server import AT_ONCE
from wakeful.frontends.http.turns import PART, Turns


class Asker:
    """A connection that only goes on."""

    def go_on(self, handle: Callable[[], None]) -> None:
        handle()


def test_what_does_not_fit_into_a_turn_comes_in_the_next_ones_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 requests of which each takes a tenth of a turn's part."""
    now = 0.0
    monkeypatch.setattr("wakeful.frontends.http.turns.monotonic", lambda: now)
    turns, asker = Turns(), Asker()
    handled: list[int] = []
    by_turn: list[int] = []

    def handle(number: int) -> None:
        nonlocal now
        now += PART / 10
        handled.append(number)

    async def play() -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            if turns.free(now):
                handle(number)
            else:
                turns.later(asker, lambda number=number: handle(number))  # type: ignore[arg-type, misc]
        while not by_turn or by_turn[-1] < 100:
            by_turn.append(len(handled))
            turn: asyncio.Future[Any] = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
        assert turns.free(now), "a new turn has its own part"

    asyncio.run(play())
    assert handled == list(range(100))
    assert max(later - before for before, later in zip([0, *by_turn], by_turn, strict=False)) <= 2 * 10, "between two looks are two turns at most"


def test_many_who_come_at_once_are_let_in_within_few_turns(stage: Stage) -> None:
    """The loop takes one connection a turn. With thousands of requests in each, whoever came anew waited for seconds."""
    many, turns = 8 * AT_ONCE, 0
    loop = stage.loop
    done = loop.create_future()

    def count() -> None:
        nonlocal turns
        turns += 1
        if stage.server.connections == many:
            done.set_result(None)
        else:
            loop.call_soon(count)

    with ExitStack() as stack:
        def come() -> None:
            for _ in range(many):
                stack.enter_context(socket.create_connection(stage.address))  # the kernel lets it in, while the loop stands still here
            loop.call_soon(count)

        stage.here(come)
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(done, 60), loop).result(60)
    assert turns < many / 4
