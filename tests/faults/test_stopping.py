"""The daemon is told to stop, or is killed, while something else goes on: loading, draining, evicting, trying again, or standing still."""

import http.client
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, alive, freeze, running, wait_until
from tests.e2e.asking import oip, receive, send_and_see_taken, tensor

MODELS = """
[server]
shutdown_grace_secs = {grace}

[defaults]
prepare = "off"
request_timeout_ms = 60000
memory_limit = "100MiB"
min_residency_secs = 0

[[models]]
id = "steady"
path = "steady.onnx"
max_replicas = 1

[[models]]
id = "big"
path = "big.onnx"

[[models]]
id = "long"
path = "long.onnx"
batching = "off"

[[models]]
id = "endless"
path = "endless.onnx"
batching = "off"

[[models]]
id = "broken"
path = "broken.onnx"
min_replicas = 1
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stopping")
    onnx_models.slow(directory / "steady.onnx", 2000)
    onnx_models.slow(directory / "long.onnx", 20_000)
    onnx_models.slow(directory / "endless.onnx", 50_000_000)
    onnx_models.weighty(directory / "big.onnx", 64)
    (directory / "broken.onnx").write_bytes(b"no model")
    return directory


def options(directory: Path, tmp_path: Path, *, grace: float = 60) -> list[str]:
    config = directory / f"{tmp_path.name}.toml"
    config.write_text(MODELS.format(grace=grace))
    return ["--config", str(config), "--no-grpc"]


def state(daemon: Daemon, model: str, name: str) -> float:
    return daemon.metric("wakeful_replicas", model=model, state=name)


def begun(daemon: Daemon, model: str, count: int = 1) -> bool:
    return daemon.metric("wakeful_queue_seconds_count", model=model) >= count


class Scene:
    """Requests that are accepted, and somebody who has put the daemon into a certain state."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.answers: list[object] = []
        self.threads: list[threading.Thread] = []

    def ask(self, model: str) -> None:
        """It has been sent, and its connection taken, when this returns."""
        connection = send_and_see_taken(self.daemon, oip(model, tensor("x", [1, 4], [1, 2, 3, 4])))

        def answer() -> int:
            with closing(connection):
                return receive(connection).status

        self._expect(answer)

    def call(self, path: str) -> None:
        self._expect(lambda: self.daemon.call("POST", path)[0])

    def _expect(self, answer: Callable[[], int]) -> None:
        def wait() -> None:
            try:
                self.answers.append(answer())
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(type(error).__name__)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()

    def ended(self) -> list[object]:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.answers


def loading(scene: Scene) -> None:
    scene.ask("big")
    wait_until(lambda: state(scene.daemon, "big", "starting") or scene.answers, "it loads")


def draining(scene: Scene) -> None:
    """Told to sleep, with a run to finish and a request that waits for the model to wake again."""
    scene.ask("long")
    wait_until(lambda: begun(scene.daemon, "long"), "it runs")
    scene.call("/v2/repository/models/long/unload")
    wait_until(lambda: state(scene.daemon, "long", "draining") or scene.answers, "it drains")
    scene.ask("long")


def evicting(scene: Scene) -> None:
    """One waits for the room of another that runs."""
    scene.ask("big")
    wait_until(lambda: scene.answers, "it is loaded")
    for _ in range(2):
        scene.ask("long")
    wait_until(lambda: begun(scene.daemon, "long") or state(scene.daemon, "long", "waiting") or len(scene.answers) > 1, "it waits or runs")


def trying_again(scene: Scene) -> None:
    """A run is begun once more after the death of its process, and a model that does not load is between two tries."""
    scene.daemon.wait_event("refuse", "broken")
    scene.ask("long")
    wait_until(lambda: begun(scene.daemon, "long"), "it runs")
    since = scene.daemon.events()[-1]["seq"]
    for pid in scene.daemon.replicas():
        os.kill(pid, signal.SIGKILL)
    scene.daemon.wait_event("restart", "long", since=since)


def without_a_nursery(scene: Scene) -> None:
    """It stands still while somebody waits for a process of it."""
    scene.daemon.wait_event("refuse", "broken")  # so it is awake
    nursery = scene.daemon.nursery()
    freeze(nursery)
    scene.ask("steady")
    wait_until(lambda: state(scene.daemon, "steady", "starting"), "it is asked for a process")


STATES: list[Callable[[Scene], None]] = [loading, draining, evicting, trying_again, without_a_nursery]


@pytest.mark.parametrize("reach", STATES)
def test_what_was_accepted_is_answered(directory: Path, tmp_path: Path, reach: Callable[[Scene], None]) -> None:
    with running(tmp_path, *options(directory, tmp_path)) as daemon:
        scene = Scene(daemon)
        reach(scene)
        assert daemon.stop(signal.SIGINT if reach is draining else signal.SIGTERM) == 0
        assert set(scene.ended()) == {200}
        assert "Traceback" not in daemon.log


@pytest.mark.parametrize("reach", [draining, without_a_nursery])
def test_a_daemon_that_is_killed_takes_all_its_processes_along(directory: Path, tmp_path: Path, reach: Callable[[Scene], None]) -> None:
    with running(tmp_path, *options(directory, tmp_path)) as daemon:
        scene = Scene(daemon)
        reach(scene)
        children = list(daemon.children())
        daemon.process.kill()
        daemon.process.wait(30)
        scene.ended()  # a connection that is cut at once, and no client that hangs
        wait_until(lambda: not any(alive(pid) for pid in children), "all processes are gone")


def test_what_stands_still_is_cut_off_and_the_status_says_so(directory: Path, tmp_path: Path) -> None:
    """Nothing that is frozen can hold up the end: its callers get 503."""
    with running(tmp_path, *options(directory, tmp_path, grace=1)) as daemon:
        scene = Scene(daemon)
        scene.ask("endless")
        wait_until(lambda: begun(daemon, "endless"), "it runs")
        scene.ask("endless")
        for pid in daemon.children():
            freeze(pid)
        wait_until(lambda: daemon.metric("wakeful_queue_requests", model="endless") or begun(daemon, "endless", 2), "another one waits")
        assert daemon.stop() == 1
        assert scene.ended() == [503, 503]
