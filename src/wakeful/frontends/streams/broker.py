"""What a stream needs of a broker. Each has a module of its own, which alone knows its library and is imported when a stream asks for it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from wakeful.config.settings import StreamSettings

RECEIVE_SECONDS = 0.5
"""Longest wait for messages: so long a stream that is idle takes to stop."""


class Delivery(NamedTuple):
    """A message that was handed out, and is the broker's until it is acknowledged."""

    payload: bytes
    handle: Any
    """What the broker knows it by."""
    times: int = 1
    """How many times it has been handed out, this one among them, as far as the broker counts."""


class Undeliverable(Exception):
    """The broker is there, and takes nothing for this topic."""


class Broker(ABC):
    """The way to one input topic. Whatever else its methods raise means that the way is lost: it is closed then, and opened anew."""

    def __init__(self, settings: StreamSettings, consumer: str) -> None:
        """`consumer` is this daemon's name within the group, the same after a restart."""
        self.settings = settings
        self.consumer = consumer

    @abstractmethod
    async def open(self) -> None:
        """Connect, create what is missing if that is wanted, and take up what was handed out before and never acknowledged."""

    @abstractmethod
    async def receive(self, most: int) -> Sequence[Delivery]:
        """The next messages, at most so many; none when RECEIVE_SECONDS have brought none."""

    async def last(self) -> Sequence[Delivery]:
        """Ask for no more, and give what had been handed out unasked. Brokers that give only what they are asked for have none."""
        return ()

    @abstractmethod
    async def publish(self, topic: str, payload: bytes, id: str) -> None:
        """Returns when the broker has it. Raises Undeliverable, or TooLarge. `id` goes beside the payload, as the broker has a place for it."""

    @abstractmethod
    async def acknowledge(self, delivery: Delivery) -> None:
        """It need not be handed out again."""

    @abstractmethod
    async def close(self) -> None:
        """What is not acknowledged is handed out again, to whomever."""


def broker_of(settings: StreamSettings, consumer: str) -> Broker:
    """Imports the library, which takes a quarter of a second: call it in a thread."""
    if settings.broker == "redis":
        from wakeful.frontends.streams.redis import Redis  # noqa: PLC0415 - a library that most daemons do not need, or have

        return Redis(settings, consumer)
    if settings.broker == "rabbitmq":
        from wakeful.frontends.streams.rabbitmq import RabbitMQ  # noqa: PLC0415 - likewise

        return RabbitMQ(settings, consumer)
    from wakeful.frontends.streams.kafka import Kafka  # noqa: PLC0415 - likewise

    return Kafka(settings, consumer)
