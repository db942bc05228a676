"""Real brokers on free ports of this machine, for tests. Each ends with the test that started it."""

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.daemon import wait_until

GROUP = "snoozeml-group"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class RedisServer:
    """Keeps what it was told on disk, so that it can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.endpoint = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [redis_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "", "--appendonly", "yes",
             "--appendfsync", "always"],
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )
        with self.client() as client:
            wait_until(lambda: _answers(client), "Redis answers")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.endpoint)


def _answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def redis_program() -> str:
    """Skips the test where there is none."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    return program


@contextmanager
def redis_server(directory: Path) -> Iterator[RedisServer]:
    directory.mkdir(parents=True, exist_ok=True)
    server = RedisServer(directory)
    try:
        yield server
    finally:
        server.stop()


def letters(broker: "redis.Redis", topic: str) -> list[dict[str, Any]]:
    """All messages of a topic."""
    entries: Any = broker.xrange(topic)
    return [json.loads(fields[b"payload"]) for _, fields in entries]


def letter(broker: "redis.Redis", topic: str, id: str) -> dict[str, Any]:
    """The message with this id, once it is there."""
    wait_until(lambda: any(one["id"] == id for one in letters(broker, topic)), f"an answer to {id} is in {topic}")
    return next(one for one in letters(broker, topic) if one["id"] == id)


def send(broker: "redis.Redis", topic: str, body: Any) -> None:
    broker.xadd(topic, {"payload": body if isinstance(body, bytes) else json.dumps(body)})


def tensor(data: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "data": data, **more}


def pending(broker: "redis.Redis", topic: str) -> int:
    """Messages that somebody has taken and not acknowledged."""
    summary: Any = broker.xpending(topic, GROUP)
    return int(summary["pending"])
