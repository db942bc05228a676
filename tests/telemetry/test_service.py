"""What a service manager hears: by a socket as it would have one, from the class alone and from a real daemon."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, alive, freeze, running, wait_until
from wakeful.config.service import ServiceSettings, service_settings
from wakeful.telemetry.service import Service

SECONDS = 30.0


class Manager:
    """Receives what is told, as systemd does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(SECONDS)

    def next(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))

    def until(self, **fields: str) -> dict[str, str]:
        """The first message that says all this."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            message = self.next()
            if message | fields == message:
                return message
        raise AssertionError(f"{fields} was never told")

    def drain(self) -> list[dict[str, str]]:
        """All that lies there."""
        self.socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            self.socket.settimeout(SECONDS)
            return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@wakeful-test-{os.getpid()}-{tmp_path.name}"
    manager = Manager(address)
    with closing(manager.socket):
        yield manager


def test_the_order_of_a_life(manager: Manager) -> None:
    status = "1 awake, 2 asleep"
    service = Service(ServiceSettings(manager.address), lambda: status)
    _tell_a_life(service, manager)
    service.close()
    service.stopping("again")
    assert manager.drain() == []


def _tell_a_life(service: Service, manager: Manager) -> None:
    service.ready()
    assert manager.next() == {"READY": "1", "STATUS": "1 awake, 2 asleep"}
    before = time.monotonic()
    service.reloading()
    message = manager.next()
    assert message["RELOADING"] == "1"
    assert before <= int(message["MONOTONIC_USEC"]) / 1e6 + 1e-6 <= time.monotonic() + 1e-6
    service.ready()
    assert manager.next()["READY"] == "1"
    service.stopping("stopping: 3 requests are being answered")
    assert manager.next() == {"STOPPING": "1", "STATUS": "stopping: 3 requests are being answered"}
    service.reloading()
    service.ready()  # a reload that ends after the signal to stop
    assert manager.drain() == []


def test_what_could_not_be_told_goes_with_the_next(tmp_path: Path) -> None:
    """Such as while the manager is exchanged for a newer one; what has been overtaken is not told any more."""
    service = Service(ServiceSettings(str(tmp_path / "notify")), lambda: "1 awake")
    service.reloading()
    service.ready()
    manager = Manager(str(tmp_path / "notify"))
    with closing(manager.socket), closing(service):
        service.stopping("stopping")
        message = manager.next()
    assert message["READY"] == message["STOPPING"] == "1"
    assert message["STATUS"] == "stopping"
    assert "RELOADING" not in message


def test_without_a_manager_nothing_happens() -> None:
    service = Service(ServiceSettings(), lambda: "1 awake")
    assert not service.wanted
    service.ready()
    service.reloading()
    service.stopping("stopping")


@pytest.mark.parametrize(("environ", "expected"), [
    ({}, ServiceSettings()),
    ({"WATCHDOG_USEC": "30000000"}, ServiceSettings()),
    ({"NOTIFY_SOCKET": ""}, ServiceSettings()),
    ({"NOTIFY_SOCKET": "vsock:2:1234"}, ServiceSettings()),
    ({"NOTIFY_SOCKET": "/run/notify"}, ServiceSettings("/run/notify")),
    ({"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "30000000"}, ServiceSettings("@notify", 30.0)),
    ({"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, ServiceSettings("@notify", 30.0)),
    ({"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, ServiceSettings("@notify")),
    ({"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "0"}, ServiceSettings("@notify")),
    ({"NOTIFY_SOCKET": "@notify", "WATCHDOG_USEC": "soon"}, ServiceSettings("@notify")),
])
def test_what_the_environment_says(environ: dict[str, str], expected: ServiceSettings) -> None:
    assert service_settings(environ, pid=7) == expected


def test_a_daemon_tells_its_whole_life(manager: Manager, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.ident(models / "one.onnx")
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"}
    with running(tmp_path / "d", "--models-dir", str(models), "--no-grpc", env=environment) as daemon:
        assert manager.until(READY="1")["STATUS"] == "0 awake, 1 asleep"
        manager.until(WATCHDOG="1")
        assert daemon.infer("one", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        manager.until(STATUS="1 awake, 0 asleep")
        assert_children_were_told_nothing(daemon)
        daemon.process.send_signal(signal.SIGHUP)
        manager.until(RELOADING="1")
        manager.until(READY="1")
        (models / "models.toml").write_text("[defaults]\nno_such_key = 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        manager.until(RELOADING="1")
        manager.until(READY="1")  # as it was before: a wrong file changes nothing
        assert daemon.stop() == 0
        manager.until(STOPPING="1")
    assert not [message for message in manager.drain() if "READY" in message or "RELOADING" in message]


def assert_children_were_told_nothing(daemon: Daemon) -> None:
    """Nobody may speak in the daemon's name."""
    for pid in daemon.children():
        if alive(pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_daemon_that_stands_still_gives_no_sign_of_life(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "400000"}
    with closing(manager.socket), running(tmp_path / "d", "--no-grpc", env=environment) as daemon:
        manager.until(WATCHDOG="1")
        freeze(daemon.process.pid)
        manager.drain()
        before = time.monotonic()
        wait_until(lambda: time.monotonic() - before > 0.8, "two periods are over")
        assert manager.drain() == []
        daemon.process.send_signal(signal.SIGCONT)
        manager.until(WATCHDOG="1")
