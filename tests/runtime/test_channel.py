import asyncio
import os
import socket
from typing import Any

import msgspec

from wakeful.runtime import channel
from wakeful.runtime.channel import Channel
from wakeful.runtime.messages import PACKET, TEXT_LIMIT, FromReplica, Hello, Refused, Run, ToReplica, encode


class Ear:
    """Hears what a channel says, and lets a test wait for it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ended = 0
        self._news = asyncio.Event()

    def message(self, message: Any) -> None:
        self.heard.append(message)
        self._news.set()

    def end(self) -> None:
        self.ended += 1
        self._news.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._news.wait(), 10)
        self._news.clear()


def opened(kind: Any = FromReplica) -> tuple[Channel[Any], socket.socket, Ear]:
    ours, theirs = channel.pair()
    ear = Ear()
    return Channel(ours, channel.decoder(kind), ear.message, ear.end), theirs, ear


def test_whole_messages_in_order_and_then_the_end() -> None:
    async def scene() -> None:
        ours, theirs, ear = opened()
        for pid in (1, 2, 3):
            theirs.send(encode(Hello(pid)))
        theirs.close()
        while not ear.ended:
            await ear.wait()
        assert ear.heard == [Hello(1), Hello(2), Hello(3)]
        assert ear.ended == 1
        assert ours.closed

    asyncio.run(scene())


def test_garbage_ends_the_channel() -> None:
    async def scene(garbage: bytes) -> None:
        ours, theirs, ear = opened()
        theirs.send(garbage)
        await ear.wait()
        assert (ear.heard, ear.ended, ours.closed) == ([], 1, True)
        theirs.close()

    for garbage in (b"\x00", b"hello", encode(Run(1, 0, 0, ())), b"\x93" + b"\xff" * 50):
        asyncio.run(scene(garbage))


def test_a_peer_that_is_gone_is_told_by_its_end_and_not_by_an_exception() -> None:
    async def scene() -> None:
        ours, theirs, ear = opened()
        theirs.send(encode(Hello(7)))  # its last words come first
        theirs.close()
        ours.send(Run(1, 0, 0, ()))
        while not ear.ended:
            await ear.wait()
        ours.send(Run(2, 0, 0, ()))
        await asyncio.sleep(0)
        assert ear.ended == 1

    asyncio.run(scene())


def test_a_peer_that_never_reads_is_given_up() -> None:
    async def scene() -> None:
        ours, theirs, ear = opened()
        for run in range(100_000):
            ours.send(Run(run, 0, 0, ()))
            await asyncio.sleep(0)
            if ear.ended:
                break
        assert ear.ended == 1
        theirs.close()

    asyncio.run(scene())


def test_descriptors_travel_beside_their_message() -> None:
    async def scene() -> None:
        ours, theirs, _ = opened()
        reading, writing = os.pipe()
        ours.send(Hello(1), [writing])
        os.close(writing)
        data, descriptors = channel.receive_descriptors(theirs, 4)
        assert msgspec.msgpack.decode(data, type=FromReplica) == Hello(1)
        [received] = descriptors
        assert not os.get_inheritable(received)
        os.write(received, b"through")
        os.close(received)
        assert os.read(reading, 100) == b"through"
        assert os.read(reading, 100) == b""
        os.close(reading)
        ours.close()
        theirs.close()

    asyncio.run(scene())


def test_closing_is_silent_and_may_be_repeated() -> None:
    async def scene() -> None:
        ours, theirs, ear = opened()
        ours.close()
        ours.close()
        ours.send(Hello(1))
        assert theirs.recv(100) == b""
        await asyncio.sleep(0)
        assert ear.ended == 0
        theirs.close()

    asyncio.run(scene())


def test_the_longest_text_fits_a_packet() -> None:
    assert len(encode(Refused("out_of_memory", "\U0001f634" * TEXT_LIMIT))) < PACKET


def test_every_order_can_be_told_from_every_other() -> None:
    decode = channel.decoder(ToReplica)
    assert decode(encode(Run(5, 1, 64, ()))) == Run(5, 1, 64, ())
