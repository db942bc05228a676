"""Messages of Kafka by the unmodified aiokafka, against a real daemon and the broker that WAKEFUL_TEST_KAFKA names: no distribution has one."""

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped] # it ships no types
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped] # it ships no types

from tests import onnx_models
from tests.brokers import tensor
from tests.daemon import Daemon, frozen, running, wait_until

BROKER = os.environ.get("WAKEFUL_TEST_KAFKA", "")
NAME = f"wakeful-test-{uuid.uuid4().hex[:8]}"
"""Of this run: its topics and its group are of no use afterwards."""
CONFIG = f"""
[[streams]]
name = "kafka"
broker = "kafka"
endpoint = "{BROKER}"
input_topic = "{NAME}.in"
output_topic = "{NAME}.out"
error_topic = "{NAME}.dead"
consumer_group = "{NAME}"
model_id = "ident"
concurrency = 4
partitions = 2
"""

pytestmark = pytest.mark.skipif(not BROKER, reason="WAKEFUL_TEST_KAFKA=HOST:PORT names no Kafka broker")


class Client:
    """aiokafka for tests that wait for nothing else."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._run = self._runner.run
        self.got: dict[str, list[dict[str, Any]]] = {}
        """What came of each topic."""
        self._run(self._start())

    async def _start(self) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=BROKER)
        self._consumer = AIOKafkaConsumer(f"{NAME}.out", f"{NAME}.dead", bootstrap_servers=BROKER, auto_offset_reset="earliest")
        await self._producer.start()
        await self._consumer.start()

    def close(self) -> None:
        self._run(self._producer.stop())
        self._run(self._consumer.stop())
        self._runner.close()

    def send(self, body: Any) -> None:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._run(self._producer.send_and_wait(f"{NAME}.in", encoded))

    def ask(self, *ids: str) -> None:
        for id in ids:
            self.send({"id": id, "inputs": [tensor([[1, 2, 3, 4]])]})

    def answer(self, topic: str, id: str) -> dict[str, Any]:
        wait_until(lambda: any(one["id"] == id for one in self._look(topic)), f"an answer to {id} is in {topic}")
        return next(one for one in self.got[topic] if one["id"] == id)

    def _look(self, topic: str) -> list[dict[str, Any]]:
        batches = self._run(self._consumer.getmany(timeout_ms=50))
        for records in batches.values():
            for record in records:
                body = json.loads(record.value)
                assert dict(record.headers)["id"].decode() == body["id"]
                self.got.setdefault(record.topic.rpartition(".")[2], []).append(body)
        return self.got.get(topic, [])

    def behind(self) -> int:
        """Messages of the input whose offsets the group has not committed."""

        async def count() -> int:
            consumer = AIOKafkaConsumer(bootstrap_servers=BROKER, group_id=NAME, enable_auto_commit=False)
            await consumer.start()
            try:
                parts = [TopicPartition(f"{NAME}.in", part) for part in range(2)]
                ends = await consumer.end_offsets(parts)
                return sum([ends[part] - (await consumer.committed(part) or 0) for part in parts])
            finally:
                await consumer.stop()

        return int(self._run(count()))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], AbstractContextManager[Daemon]]:
    models = tmp_path_factory.mktemp("models")
    onnx_models.ident(models / "ident.onnx")
    (models / "models.toml").write_text(CONFIG)
    return lambda: running(tmp_path_factory.mktemp("daemon"), "--models-dir", str(models))


@pytest.fixture(scope="module")
def daemon(start: Callable[[], AbstractContextManager[Daemon]]) -> Iterator[Daemon]:
    with start() as daemon:
        wait_until(lambda: daemon.metric("wakeful_stream_connected") == 1, "it is connected")
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


def test_answers_and_errors(daemon: Daemon, client: Client) -> None:
    client.ask("first")
    answer = client.answer("out", "first")
    assert (answer["model_id"], answer["status"]) == ("ident", "success")
    assert answer["outputs"] == [{"name": "y", "shape": [1, 4], "data": [1, 2, 3, 4]}]
    client.send({"id": "wrong", "inputs": [tensor([[1, 2, 3, 4]], name="z")]})
    client.send(b"no JSON")
    for id in ("wrong", "unknown"):
        assert client.answer("dead", id) == client.answer("out", id)


@pytest.mark.parametrize("target", ["nowhere", "no:topic"])
def test_a_target_that_is_not_there_is_a_dead_letter(target: str, daemon: Daemon, client: Client) -> None:
    client.send({"id": target, "reply_to": target, "inputs": [tensor([[1, 2, 3, 4]])]})
    assert f"nothing can be published to {target}: there is no such topic" in client.answer("dead", target)["error"]


def test_an_answer_that_the_broker_does_not_take_is_told(daemon: Daemon, client: Client) -> None:
    """A request under one megabyte, a broker's usual limit, and an answer over it: 1 becomes 1.0."""
    rows = 75_000
    client.send({"id": "large", "inputs": [tensor([1] * 4 * rows, shape=[rows, 4])]})
    for topic in ("dead", "out"):
        assert client.answer(topic, "large")["code"] == "too_large"


def test_many_at_once_and_nothing_is_left_open(daemon: Daemon, client: Client) -> None:
    ids = [f"many-{number}" for number in range(200)]
    client.ask(*ids)
    for id in ids:
        assert client.answer("out", id)["status"] == "success"
    wait_until(lambda: client.behind() == 0, "all are committed")


def test_a_daemon_that_is_killed_or_stopped_goes_on_where_it_was(
    daemon: Daemon, start: Callable[[], AbstractContextManager[Daemon]], client: Client
) -> None:
    """This ends the daemon of the tests above."""
    ids, more = [f"killed-{number}" for number in range(10)], [f"stopped-{number}" for number in range(10)]
    with frozen(daemon.replica()):
        client.ask(*ids)
        wait_until(lambda: daemon.metric("wakeful_stream_in_flight") == 4, "four are in hand")
        assert client.behind() == 10
        daemon.stop(signal.SIGKILL)
    with start() as second:
        for id in ids:
            assert client.answer("out", id)["status"] == "success"
        with frozen(second.replica()):
            client.ask(*more)
            wait_until(lambda: second.metric("wakeful_stream_in_flight") == 4, "four are in hand")
            second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(30) == 0
    with start():
        for id in more:
            assert client.answer("out", id)["status"] == "success"
    wait_until(lambda: client.behind() == 0, "all are committed")
    assert [sum(one["id"] == id for one in client.got["out"]) for id in ids + more] == [1] * 20
