"""Messages of RabbitMQ by the unmodified aio-pika, against a real node and a real daemon."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aiormq.abc import FieldTable

from tests import onnx_models
from tests.brokers import RabbitServer, rabbit_server, tensor
from tests.daemon import Daemon, frozen, running, wait_until

CONFIG = """
[[streams]]
name = "classic"
broker = "rabbitmq"
endpoint = "{endpoint}"
model_id = "ident"
concurrency = 4

[[streams]]
name = "quorum"
broker = "rabbitmq"
endpoint = "{endpoint}"
input_topic = "quorum.in"
output_topic = "quorum.out"
error_topic = "quorum.dead"
model_id = "ident"
"""


class Client:
    """aio-pika for tests that wait for nothing else."""

    def __init__(self, server: RabbitServer) -> None:
        self._runner = asyncio.Runner()
        self.run = self._runner.run
        self._connection = self.run(_connect(server.endpoint))
        self._channel = self.run(self._open())
        self.got: dict[str, list[dict[str, Any]]] = {}
        """What was taken from each queue."""

    async def _open(self) -> aio_pika.abc.AbstractChannel:
        return await self._connection.channel()

    def close(self) -> None:
        self.run(self._connection.close())
        self._runner.close()

    def declare(self, queue: str, kind: str = "classic") -> int:
        """Messages that are in it and that nobody has taken."""
        declared = self.run(self._declare(queue, kind))
        return declared.declaration_result.message_count or 0

    async def _declare(self, queue: str, kind: str) -> aio_pika.abc.AbstractQueue:
        arguments: FieldTable | None = {"x-queue-type": "quorum"} if kind == "quorum" else None
        return await self._channel.declare_queue(queue, durable=True, arguments=arguments)

    def send(self, queue: str, body: Any) -> None:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.run(self._publish(queue, encoded))

    async def _publish(self, queue: str, body: bytes) -> None:
        await self._channel.default_exchange.publish(aio_pika.Message(body), queue)

    def take(self, queue: str, kind: str = "classic") -> AbstractIncomingMessage | None:
        """The next message, not acknowledged."""

        async def take() -> AbstractIncomingMessage | None:
            return await (await self._declare(queue, kind)).get(fail=False)

        return self.run(take())

    def give_back(self, queue: str, kind: str) -> bool:
        """Take the next message and refuse it; False where there is none (yet)."""
        message = self.take(queue, kind)
        if message is not None:
            self.run(message.nack())
        return message is not None

    def answers(self, queue: str) -> list[dict[str, Any]]:
        """All that have come so far."""
        while message := self.take(queue):
            body = json.loads(message.body)
            assert message.correlation_id == body["id"]
            self.got.setdefault(queue, []).append(body)
            self.run(message.ack())
        return self.got.get(queue, [])

    def answer(self, queue: str, id: str) -> dict[str, Any]:
        wait_until(lambda: any(one["id"] == id for one in self.answers(queue)), f"an answer to {id} is in {queue}")
        return next(one for one in self.got[queue] if one["id"] == id)

    def ask(self, *ids: str) -> None:
        for id in ids:
            self.send("snooze.requests", {"id": id, "inputs": [tensor([[1, 2, 3, 4]])]})


async def _connect(endpoint: str) -> aio_pika.abc.AbstractConnection:
    return await aio_pika.connect(endpoint)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    with rabbit_server(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RabbitServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


@pytest.fixture(scope="module")
def poisoned(client: Client) -> None:
    """Before any daemon: a queue that somebody else has declared, of the kind that counts, with a message that was given back five times."""
    client.declare("quorum.in", "quorum")
    client.send("quorum.in", {"id": "poison", "inputs": [tensor([[1, 2, 3, 4]])]})
    for _ in range(5):
        wait_until(lambda: client.give_back("quorum.in", "quorum"), "it is given back")


@pytest.fixture(scope="module")
def start(server: RabbitServer, poisoned: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], AbstractContextManager[Daemon]]:
    models = tmp_path_factory.mktemp("models")
    onnx_models.ident(models / "ident.onnx")
    (models / "models.toml").write_text(CONFIG.format(endpoint=server.endpoint))
    return lambda: running(Path(tmp_path_factory.mktemp("daemon")), "--models-dir", str(models))


@pytest.fixture(scope="module")
def daemon(start: Callable[[], AbstractContextManager[Daemon]]) -> Iterator[Daemon]:
    with start() as daemon:
        wait_until(lambda: daemon.metric("wakeful_stream_connected", stream="classic") == 1, "it is connected")
        wait_until(lambda: daemon.metric("wakeful_stream_connected", stream="quorum") == 1, "it is connected")
        yield daemon


def in_hand(daemon: Daemon) -> float:
    return daemon.metric("wakeful_stream_in_flight", stream="classic")


def test_a_message_that_nobody_survives_is_a_dead_letter(daemon: Daemon, client: Client) -> None:
    assert "was handed out 5 times and never answered" in client.answer("quorum.dead", "poison")["error"]


def test_answers(daemon: Daemon, client: Client) -> None:
    """Queues are created; those that are there are taken as they are."""
    client.ask("first")
    answer = client.answer("snooze.responses", "first")
    assert (answer["model_id"], answer["status"]) == ("ident", "success")
    assert answer["outputs"] == [{"name": "y", "shape": [1, 4], "data": [1, 2, 3, 4]}]
    client.send("quorum.in", {"id": "second", "inputs": [tensor([[1, 2, 3, 4]])]})
    assert client.answer("quorum.out", "second")["status"] == "success"


def test_errors_are_told_to_both(daemon: Daemon, client: Client) -> None:
    client.send("snooze.requests", {"id": "wrong", "inputs": [tensor([[1, 2, 3, 4]], name="z")]})
    client.send("snooze.requests", b"no JSON")
    for id in ("wrong", "unknown"):
        assert client.answer("snooze.dlq", id) == client.answer("snooze.responses", id)


def test_an_answer_goes_where_the_sender_wants_it_if_that_is_there(daemon: Daemon, client: Client) -> None:
    client.declare("mine")
    body = {"inputs": [tensor([[1, 2, 3, 4]])]}
    client.send("snooze.requests", {"id": "there", "reply_to": "mine", **body})
    assert client.answer("mine", "there")["status"] == "success"
    client.send("snooze.requests", {"id": "nowhere", "reply_to": "nobody's", **body})
    client.send("snooze.requests", {"id": "lost", "reply_to": "nobodys", **body})
    assert "reply_to: expected" in client.answer("snooze.responses", "nowhere")["error"]
    assert "nothing can be published to nobodys: there is no such queue" in client.answer("snooze.dlq", "lost")["error"]


def test_a_queue_that_is_deleted_is_made_again(daemon: Daemon, client: Client) -> None:
    client.run(_delete(client, "quorum.in"))
    wait_until(lambda: "the queue quorum.in was deleted" in daemon.log, "it is noticed")
    wait_until(lambda: daemon.metric("wakeful_stream_connected", stream="quorum") == 1, "it is there again")
    client.send("quorum.in", {"id": "third", "inputs": [tensor([[1, 2, 3, 4]])]})
    assert client.answer("quorum.out", "third")["status"] == "success"
    assert "guest" not in daemon.log


async def _delete(client: Client, queue: str) -> None:
    await client._channel.queue_delete(queue)


def test_no_more_are_taken_than_may_be_in_hand(daemon: Daemon, client: Client) -> None:
    ids = [f"many-{number}" for number in range(10)]
    with frozen(daemon.replica()):
        client.ask(*ids)
        wait_until(lambda: in_hand(daemon) == 4, "four are in hand")
        wait_until(lambda: client.declare("snooze.requests") == 6, "the others are where they were")
    for id in ids:
        assert client.answer("snooze.responses", id)["status"] == "success"


def test_a_daemon_that_is_killed_or_stopped_goes_on_where_it_was(
    daemon: Daemon, start: Callable[[], AbstractContextManager[Daemon]], client: Client
) -> None:
    """This ends the daemon of the tests above."""
    ids = [f"killed-{number}" for number in range(10)]
    with frozen(daemon.replica()):
        client.ask(*ids)
        wait_until(lambda: in_hand(daemon) == 4, "four are in hand")
        daemon.stop(signal.SIGKILL)
    with start() as second:
        for id in ids:
            assert client.answer("snooze.responses", id)["status"] == "success"
        more = [f"stopped-{number}" for number in range(10)]
        with frozen(second.replica()):
            client.ask(*more)
            wait_until(lambda: in_hand(second) == 4, "four are in hand")
            second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(30) == 0
    with start():
        for id in more:
            assert client.answer("snooze.responses", id)["status"] == "success"
    counts = [sum(one["id"] == id for one in client.got["snooze.responses"]) for id in ids + more]
    assert counts == [1] * 20
