"""A server of somebody else: in its own environment, and on a leash."""

import http.client
import json
import os
import signal
import socket
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import psutil

from bench.peers.install import environment
from bench.peers.interface import interface, zeros
from bench.servers import START_SECONDS, Server

LEASH = Path(__file__).with_name("leash.py")
INSIDE = Path(__file__).with_name("inside")
"""What runs in the peers' environments; on their module path."""
BATCH = 64
"""Rows of a batch at most, for every peer: above what the bench's connections can fill."""
CORES = len(os.sched_getaffinity(0))
LOOK_SECONDS = 0.1


class Peer(Server):
    """One peer, configured as its own documentation advises for throughput on processors.

    All of them: ONNX Runtime with one thread a session and no spinning, batching on, metrics and access logs off. `choice` says the rest.
    """

    key: ClassVar[str]
    """Its name in PEERS."""
    packages: ClassVar[str] = ""
    """Name of its list of packages and of its environment, where that is not its key."""
    python_all_through: ClassVar[bool] = True
    """What speaks HTTP is Python too."""
    choice: ClassVar[str]
    """What was chosen for it and why, for the report."""

    def __init__(self, models: Mapping[str, Path]) -> None:
        super().__init__(models)
        self.home = Path()

    @abstractmethod
    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        """Write its configuration into `directory`. Its command, and what its environment has beyond the bench's."""

    def start(self) -> None:
        self.home = environment(self.packages or self.key)
        port = free_port()
        self.address = ("127.0.0.1", port)
        command, variables = self.configure(port)
        path = f"{self.home / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        mine = {"PATH": path, "PYTHONPATH": str(INSIDE), "VIRTUAL_ENV": str(self.home)}
        self.launch([sys.executable, "-I", str(LEASH), *command], mine | dict(variables), start_new_session=True, cwd=self.directory)
        self._wait_ready()

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    def settings(self, **values: object) -> str:
        """Path of a JSON file with these values and the models, for what runs inside."""
        path = self.directory / "settings.json"
        path.write_text(json.dumps({"models": {name: str(model) for name, model in self.models.items()}, **values}))
        return str(path)

    def tree_pss(self) -> int:
        """Without the leash, which is the bench's."""
        return super().tree_pss() - int(psutil.Process(self.pid).memory_full_info().pss)

    def _wait_ready(self) -> None:
        """Until every model has answered a request."""
        end = time.monotonic() + START_SECONDS
        for name, path in self.models.items():
            body = zeros(interface(path).inputs)
            while (trouble := self._trouble(name, body)) is not None:
                if self.process is not None and self.process.poll() is not None:
                    raise self.failed(f"ended with status {self.process.returncode} before it was ready")
                if time.monotonic() > end:
                    raise self.failed(f"was not ready within {START_SECONDS:.0f} s: {trouble}")
                time.sleep(LOOK_SECONDS)

    def _trouble(self, model: str, body: object) -> str | None:
        try:
            status, answer = self.call("POST", self.path(model), body, seconds=START_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        if status == http.HTTPStatus.OK and isinstance(answer, dict) and answer.get("outputs"):
            return None
        return f"status {status}, {str(answer)[:300]}"

    def stop(self) -> None:
        super().stop()
        if self.process is not None and self.process.returncode == -signal.SIGKILL:  # then the leash has not ended what it held
            _kill_session(self.process.pid)


def _kill_session(leader: int) -> None:
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                process.kill()
        except (OSError, psutil.NoSuchProcess):
            continue


def free_port() -> int:
    """A port that was free a moment ago: these servers cannot say which one the system gave them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
