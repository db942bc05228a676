"""Real brokers on free ports of this machine, for tests. Each ends with the test that started it."""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.certificates import AUTHORITY, issue
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
        self.port, self.secure_port = free_port(), free_port()
        self.endpoint = f"redis://127.0.0.1:{self.port}"
        issue(directory)
        AUTHORITY.cert_pem.write_to_path(directory / "authority.pem")
        self.start()

    def secure_endpoint(self, login: str) -> str:
        """With name and password."""
        return f"rediss://{login}@127.0.0.1:{self.secure_port}?ssl_ca_certs={self.directory / 'authority.pem'}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [redis_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "", "--appendonly", "yes",
             "--appendfsync", "always", "--tls-port", str(self.secure_port), "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem",
             "--tls-ca-cert-file", "authority.pem", "--tls-auth-clients", "no"],
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


class RabbitServer:
    """A node with its own name server, home and directories, which begins in some seconds."""

    PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    """Debian's /usr/sbin/rabbitmq-server changes the user."""

    def __init__(self, directory: Path) -> None:
        if not self.PROGRAM.exists():
            pytest.skip("rabbitmq-server is not installed: apt-get install rabbitmq-server")
        self.port, names, nodes = free_port(), str(free_port()), str(free_port())
        self.endpoint = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        (directory / "plugins").write_text("[].")
        environ = os.environ | {
            "HOME": str(directory), "ERL_EPMD_PORT": names, "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": "wakeful@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": nodes,
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"), "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"), "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(directory / "none"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        }
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.names = subprocess.Popen(["epmd", "-port", names, "-address", "127.0.0.1"], **quiet)
        self.node = subprocess.Popen([self.PROGRAM], env=environ, start_new_session=True, **quiet)
        try:
            wait_until(self._answers, "RabbitMQ answers", 120)
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.node.poll() is None, "RabbitMQ has ended"
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.node.pid, signal.SIGKILL)  # nobody needs what it has
        self.node.wait(20)
        self.names.kill()
        self.names.wait(20)


@contextmanager
def rabbit_server(directory: Path) -> Iterator[RabbitServer]:
    directory.mkdir(parents=True, exist_ok=True)
    server = RabbitServer(directory)
    try:
        yield server
    finally:
        server.stop()
