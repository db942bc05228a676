"""A gateway's end: its PreStop hook waits for what a real Envoy has open, and callers are told to go elsewhere."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.brokers import free_port
from tests.cluster.gateway.calls import call, told_to_go
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import wait_until
from wakeful.cli import cluster_leave
from wakeful.cli.parser import DONE, NO
from wakeful.cluster.planning.world import Endpoint


class Slow(ThreadingHTTPServer):
    """In place of a daemon: a first half of its answer at once, and the second when it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.told = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Slow

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"[1,")
        self.server.told.wait(60)
        self.wfile.write(b" 2]")

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def slow() -> Iterator[Slow]:
    server = Slow()
    yield server
    server.told.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def leaving(slow: Slow, tmp_path: Path) -> Iterator[GatewayPod]:
    """A gateway of its own, with a way to the slow model."""
    controller = Controller()
    pod = GatewayPod(tmp_path, controller.address, node="gw-leaving")
    controller.settle({"slow": (Endpoint("uid-slow", "127.0.0.1", slow.server_address[1], None),)})
    yield pod
    pod.stop()
    controller.stop()


def leave(port: str, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "wakeful", "cluster", "leave", "--admin-port", port, "--forget-seconds", "0.5", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_ends_after_its_last_answer(leaving: GatewayPod, slow: Slow) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call, leaving.url, "GET", "/v2/models/slow")
        wait_until(lambda: leaving.envoy.stat("http.requests.downstream_rq_active") == 1, "a request is open")
        assert not told_to_go(leaving.address)
        hook = leave(leaving.envoy.admin.rpartition(":")[2])
        wait_until(lambda: told_to_go(leaving.address), "who comes is answered, and told to go elsewhere")
        assert hook.poll() is None
        slow.told.set()
        assert answer.result(30)[:2] == (200, [1, 2])
        assert hook.communicate(timeout=30)[0].endswith("all requests are answered\n")
    assert hook.returncode == DONE


def test_what_is_open_too_long_is_told(leaving: GatewayPod, slow: Slow) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call, leaving.url, "GET", "/v2/models/slow")
        wait_until(lambda: leaving.envoy.stat("http.requests.downstream_rq_active") == 1, "a request is open")
        hook = leave(leaving.envoy.admin.rpartition(":")[2], "--seconds", "1")
        assert "1 requests are still open after 1 s" in hook.communicate(timeout=30)[1]
        assert hook.returncode == NO
        slow.told.set()
        answer.result(30)


def test_a_helper_that_hangs_is_no_pod_that_ends(leaving: GatewayPod) -> None:
    """Kubernetes calls the hook when it restarts a container, too."""
    with socket.create_server(("127.0.0.1", 0)) as hung:
        hook = leave(leaving.envoy.admin.rpartition(":")[2], "--helper-port", str(hung.getsockname()[1]))
        assert "it is restarted, and Envoy goes on" in hook.communicate(timeout=60)[1]
    assert hook.returncode == NO
    assert not told_to_go(leaving.address)


def test_an_envoy_that_stands_still_is_not_told_to_drain() -> None:
    """It fails the helper's probe, too, so that the helper is restarted; and it would send everybody away from when it goes on."""
    with socket.create_server(("127.0.0.1", 0)) as still:
        hook = leave(str(still.getsockname()[1]))
        assert "Envoy cannot be asked" in hook.communicate(timeout=60)[1]
        line, _ = still.accept()
        with line:
            assert line.recv(1 << 16).startswith(b"GET /stats")
        still.setblocking(False)
        with pytest.raises(BlockingIOError):
            still.accept()
    assert hook.returncode == NO


def test_without_an_envoy() -> None:
    hook = leave(str(free_port()))
    told = hook.communicate(timeout=30)[1]
    assert hook.returncode == NO
    assert "Envoy cannot be asked" in told
    assert "--admin-port" in told


def test_a_helper_that_ends_while_it_is_asked_is_not_a_pod_that_leaves() -> None:
    """It is killed to be restarted; only one that was not there at all says nothing of the kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        port = listener.getsockname()[1]
        asked = pool.submit(cluster_leave._is_hung, port)
        line, _ = listener.accept()
        line.close()
        assert asked.result(30)
    assert not cluster_leave._is_hung(port)
