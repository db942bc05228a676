"""Kafka: a consumer of the group on the input topic, whose offsets are committed up to the lowest message that is not answered.

Kafka does not count how often it hands out a message. The name of a consumer is that of a static member, so that a daemon which was killed and is
back need not wait until the group has missed it.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from aiokafka import (  # type: ignore[import-untyped] # it ships no types
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
)
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped] # it ships no types
from aiokafka.errors import (  # type: ignore[import-untyped] # it ships no types
    CommitFailedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from wakeful.clock import monotonic
from wakeful.errors import TooLarge
from wakeful.frontends.streams.broker import RECEIVE_SECONDS, Broker, Delivery, Undeliverable

REPLICATION = 3
"""Copies of topics that are created here, where there are as many brokers."""
ANSWER_SECONDS = 10.0
"""A cluster that is silent for so long is lost."""
CHECK_SECONDS = 2.0
"""A consumer that hears nothing looks so often whether there is anybody to be heard: the library itself tries for ever, and does not tell."""
LARGEST = 1 << 30
"""Bytes of an answer: the broker's own limit counts, not the library's."""

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it cannot do is told once, by the stream


class Answered:
    """Up to where the messages of a partition are answered, though they are answered in any order."""

    def __init__(self) -> None:
        self._taken: deque[int] = deque()
        """Offsets that were handed out, up to which not everything is answered."""
        self._done: set[int] = set()
        self.position: int | None = None
        """All before it is answered; None: nothing has been."""
        self.committed: int | None = None

    def take(self, offset: int) -> None:
        self._taken.append(offset)

    def settle(self, offset: int) -> None:
        """One that is not known was taken before the partition went to somebody else and came back."""
        self._done.add(offset)
        while self._taken and self._taken[0] in self._done:
            self.position = self._taken.popleft() + 1
        self._done.intersection_update(self._taken)


class Kafka(Broker, ConsumerRebalanceListener):  # type: ignore[misc] # it ships no types
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._parts: dict[Any, Answered] = {}
        """By partition, of those that are ours."""
        self._open: list[Any] = []
        """Clients that have begun."""
        self._committing = asyncio.Lock()
        self._topics: Collection[str] = ()
        """Those that are known to be there."""
        self._heard = 0.0

    async def open(self) -> None:
        settings = self.settings
        common: dict[str, Any] = {
            "bootstrap_servers": settings.endpoint, "client_id": self.consumer, "request_timeout_ms": int(1000 * ANSWER_SECONDS),
        }
        if settings.auto_create_topics:
            await self._create(await self._begun(AIOKafkaAdminClient(**common)))
        self._producer = await self._begun(AIOKafkaProducer(**common, acks="all", max_request_size=LARGEST))
        self._consumer = AIOKafkaConsumer(
            **common, group_id=settings.consumer_group, group_instance_id=re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.consumer}-{settings.name}"),
            enable_auto_commit=False, auto_offset_reset="earliest",  # also what came before the group
        )
        self._consumer.subscribe([settings.input_topic], listener=self)
        await self._begun(self._consumer)
        self._heard = monotonic()

    async def receive(self, most: int) -> Sequence[Delivery]:
        batches = await self._consumer.getmany(timeout_ms=int(1000 * RECEIVE_SECONDS), max_records=most)
        now = monotonic()
        if batches:
            self._heard = now
        elif now - self._heard > CHECK_SECONDS:
            await self._consumer.topics()
            self._heard = now
        deliveries = []
        for partition, records in batches.items():
            answered = self._parts.setdefault(partition, Answered())
            for record in records:
                answered.take(record.offset)
                deliveries.append(Delivery(record.value or b"", (partition, record.offset)))
        return deliveries

    async def publish(self, topic: str, payload: bytes, id: str) -> None:
        await self._check_topic(topic)
        try:
            await asyncio.wait_for(self._producer.send_and_wait(topic, payload, headers=[("id", id.encode(errors="replace"))]), ANSWER_SECONDS)
        except MessageSizeTooLargeError as error:
            raise TooLarge(f"the broker takes no message of {len(payload)} bytes (max.message.bytes)") from error
        except (InvalidTopicError, TopicAuthorizationFailedError) as error:
            raise Undeliverable(str(error)) from error

    async def _check_topic(self, topic: str) -> None:
        """For one that is not there the library waits until it is out of patience."""
        if topic not in self._topics:
            self._topics = await self._consumer.topics()
            if topic not in self._topics:
                raise Undeliverable("there is no such topic")

    async def acknowledge(self, delivery: Delivery) -> None:
        partition, offset = delivery.handle
        answered = self._parts.get(partition)
        if answered is None:  # somebody else's by now, who answers it once more
            return
        answered.settle(offset)
        async with self._committing:  # one after the other: a late commit must not set back
            position = answered.position
            if position is None or position == answered.committed or self._parts.get(partition) is not answered:
                return
            try:
                await self._consumer.commit({partition: position})
            except (CommitFailedError, IllegalStateError):  # likewise
                return
            answered.committed = position

    async def close(self) -> None:
        self._parts.clear()
        while self._open:
            client = self._open.pop()
            await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """They begin anew from what is committed, here or elsewhere."""
        for partition in revoked:
            self._parts.pop(partition, None)

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """They count from their first message on."""

    async def _begun(self, client: Any) -> Any:
        self._open.append(client)
        await asyncio.wait_for(client.start(), ANSWER_SECONDS)
        return client

    async def _create(self, admin: Any) -> None:
        settings = self.settings
        brokers = len((await admin.describe_cluster())["brokers"])
        topics = dict.fromkeys((settings.input_topic, settings.output_topic, settings.error_topic))
        wanted = [NewTopic(topic, settings.partitions, min(REPLICATION, brokers)) for topic in topics]
        for topic, code, *_ in (await admin.create_topics(wanted)).topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise KafkaError(f"the topic {topic} cannot be created: {error.description}")
