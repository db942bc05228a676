"""RabbitMQ: durable queues, the default exchange, publisher confirms.

The broker pushes up to `concurrency` messages, and hands out again what was not acknowledged when a connection ends. Only quorum queues count how
often; a queue that is created here is a classic one, as most clients declare theirs.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity, PublishError

from wakeful.frontends.streams.broker import RECEIVE_SECONDS, Broker, Delivery, Undeliverable

ANSWER_SECONDS = 10.0
"""A server that is silent for so long is lost."""


class RabbitMQ(Broker):
    _connection: AbstractConnection | None = None
    _channel: AbstractChannel

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pushed: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    async def open(self) -> None:
        settings = self.settings
        self._connection = await aio_pika.connect(settings.endpoint, timeout=ANSWER_SECONDS)
        for topic in (settings.input_topic, settings.output_topic, settings.error_topic):
            await self._create(self._connection, topic)
        self._channel = await self._connection.channel(on_return_raises=True)
        await self._channel.set_qos(prefetch_count=settings.concurrency)
        self._queue = await self._channel.declare_queue(settings.input_topic, passive=True)
        self._pushed = asyncio.Queue()
        self._tag = await self._queue.consume(self._pushed.put, consumer_tag=self.consumer)

    async def receive(self, most: int) -> Sequence[Delivery]:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                messages = [await self._pushed.get()]
        except TimeoutError:
            await self._check()
            return ()
        while len(messages) < most and not self._pushed.empty():
            messages.append(self._pushed.get_nowait())
        return [_delivery(message) for message in messages]

    async def last(self) -> Sequence[Delivery]:
        """There are not too many: those that were pushed and those in hand together are `concurrency` at most."""
        await self._queue.cancel(self._tag)
        return [_delivery(self._pushed.get_nowait()) for _ in range(self._pushed.qsize())]

    async def publish(self, topic: str, payload: bytes, id: str) -> None:
        message = aio_pika.Message(payload, correlation_id=id, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        try:
            await self._channel.default_exchange.publish(message, topic, mandatory=True, timeout=ANSWER_SECONDS)
        except PublishError as error:  # it came back
            raise Undeliverable("there is no such queue") from error

    async def acknowledge(self, delivery: Delivery) -> None:
        await delivery.handle.ack()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _check(self) -> None:
        """Nothing came: is anything to be expected? A consumer whose queue is deleted hears no more."""
        channel: Any = await self._channel.get_underlay_channel()
        if self._tag not in channel.consumers:
            raise ConnectionError(f"the queue {self.settings.input_topic} was deleted")

    async def _create(self, connection: AbstractConnection, topic: str) -> None:
        """If it is missing and that is wanted. One that is there is taken as it is, whatever kind of queue it is."""
        probe = await connection.channel()
        try:
            await probe.declare_queue(topic, passive=True)
        except ChannelNotFoundEntity:  # which closes the channel
            if not self.settings.auto_create_topics:
                return
            probe = await connection.channel()
            await probe.declare_queue(topic, durable=True)
        await probe.close()


def _delivery(message: AbstractIncomingMessage) -> Delivery:
    before = message.headers.get("x-delivery-count", 0)
    return Delivery(message.body, message, 1 + (before if isinstance(before, int) else 0))
