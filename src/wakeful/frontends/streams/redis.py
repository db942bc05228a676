"""Redis streams: a consumer group on the input stream, XADD and then XACK for each message.

What a consumer has taken and not acknowledged is pending under its name. A daemon that comes back reads its own pending messages first; those of
daemons that do not come back are claimed after ABANDONED_SECONDS. Redis counts how often each was handed out.
"""

from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError

from wakeful.clock import monotonic
from wakeful.frontends.streams.broker import RECEIVE_SECONDS, Broker, Delivery, Undeliverable

CONNECTIONS = 8
"""One waits for messages; the others publish and acknowledge."""
ANSWER_SECONDS = 10.0
"""A server that is silent for so long is lost."""
ABANDONED_SECONDS = 300.0
"""A message that another consumer has had for so long is nobody's: ten times the usual request_timeout_ms."""
CLAIM_SECONDS = 30.0
"""So often abandoned messages are looked for."""

Entry = tuple[bytes, dict[bytes, bytes]]


class Redis(Broker):
    _client: "Client"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun: set[bytes] = set()
        """Ids that this process has taken and not acknowledged."""
        self._pending: bytes | None = None
        """Up to where this consumer's pending messages have been taken up; None: all of them."""
        self._next_claim = 0.0

    async def open(self) -> None:
        settings = self.settings
        pool = BlockingConnectionPool.from_url(
            settings.endpoint, max_connections=CONNECTIONS, timeout=ANSWER_SECONDS, protocol=2, retry=Retry(NoBackoff(), 0),
            socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS,
        )
        self._client = Client.from_pool(pool)
        try:  # from the first message on, also of those that came before the group
            await self._client.xgroup_create(settings.input_topic, settings.consumer_group, id="0", mkstream=settings.auto_create_topics)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._pending, self._next_claim = b"0-0", 0.0

    async def receive(self, most: int) -> Sequence[Delivery]:
        if self._pending is not None:
            entries = await self._read(most, after=self._pending)
            self._pending = entries[-1][0] if entries else None
            return await self._once_more(entries)
        if monotonic() >= self._next_claim:
            entries = await self._claim(most)
            if entries:
                return await self._once_more(entries)
            self._next_claim = monotonic() + CLAIM_SECONDS
        return self._taken([(id, fields, 1) for id, fields in await self._read(most, after=b">")])

    async def publish(self, topic: str, payload: bytes, id: str) -> None:
        try:
            await self._client.xadd(topic, {"payload": payload, "id": id})
        except NoPermissionError as error:
            raise Undeliverable(str(error)) from error
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                raise Undeliverable(str(error)) from error
            raise

    async def acknowledge(self, delivery: Delivery) -> None:
        await self._client.xack(self.settings.input_topic, self.settings.consumer_group, delivery.handle)
        self._begun.discard(delivery.handle)

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, most: int, after: bytes) -> list[Entry]:
        """New messages (">"), for which it waits, or this consumer's pending ones behind an id."""
        answer: Any = await self._client.xreadgroup(
            self.settings.consumer_group, self.consumer, {self.settings.input_topic: after}, count=most, block=int(1000 * RECEIVE_SECONDS),
        )
        return answer[0][1] if answer else []

    async def _claim(self, most: int) -> list[Entry]:
        """Take over what others have left behind; not what is in hand here, however long it takes."""
        answer: Any = await self._client.xautoclaim(
            self.settings.input_topic, self.settings.consumer_group, self.consumer, int(1000 * ABANDONED_SECONDS), count=most,
        )
        return [entry for entry in answer[1] if entry[0] not in self._begun]

    async def _once_more(self, entries: list[Entry]) -> list[Delivery]:
        """With their counts. That this process took one before says nothing against it, as the process lives."""
        if not entries:
            return []
        topic, group = self.settings.input_topic, self.settings.consumer_group
        if known := [id for id, _ in entries if id in self._begun]:
            await self._client.xclaim(topic, group, self.consumer, 0, known, retrycount=1, justid=True)  # type: ignore[arg-type] # ids are bytes
        gone = [id for id, fields in entries if not fields]
        if gone:  # deleted from the stream while they were pending
            await self._client.xack(topic, group, *gone)
        rows: Any = await self._client.xpending_range(
            topic, group, entries[0][0], entries[-1][0], len(entries) + len(self._begun), self.consumer,
        )
        counts = {row["message_id"]: row["times_delivered"] for row in rows}
        return self._taken([(id, fields, counts.get(id, 1)) for id, fields in entries if fields])

    def _taken(self, entries: Sequence[tuple[bytes, dict[bytes, bytes], int]]) -> list[Delivery]:
        self._begun.update(id for id, _, _ in entries)
        return [Delivery(_payload(fields), id, count) for id, fields, count in entries]


def _payload(fields: dict[bytes, bytes]) -> bytes:
    """As SnoozeML's client looks for it."""
    return fields.get(b"payload") or fields.get(b"data") or next(iter(fields.values()))
