"""Servers under measurement: started in a process of their own, asked for nothing but answers, and watched from outside by the system's figures."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

START_SECONDS = 90.0
STOP_SECONDS = 20.0
ORPHAN_SECONDS = 2.0
QUIET_SECONDS, QUIET_AT_MOST = 0.4, 20.0
"""No processor used for so long, or not waited for any longer."""
LOG_LINES = 15
"""Lines of its log that explain why a server did not start."""
TICK = os.sysconf("SC_CLK_TCK")
GRPC = re.compile(rb"gRPC on port (\d+)")
READY = re.compile(rb'ready[ ",:a-z]+http://([0-9.]+):(\d+)')


class ServerFailed(Exception):
    """A server did not start, or did not do what it was told. The text has its reason."""


class Server(ABC):
    """One server with its models. A `with` block is its life.

    A subclass starts it in `start`, which returns once requests are answered, and sets `address` and `process`.
    """

    name: ClassVar[str]
    binary: ClassVar[bool] = False
    """Does it take tensors in binary form?"""

    def __init__(self, models: Mapping[str, Path]) -> None:
        self.models = dict(models)
        self.address = ("127.0.0.1", 0)
        self.grpc_port = 0
        """Where it speaks gRPC, if it does."""
        self.process: subprocess.Popen[bytes] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
        self.directory = Path(self._scratch.name)
        self.log_path = self.directory / "server.log"

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it is ready. Raises ServerFailed."""

    def stop(self) -> None:
        """End all of it: politely, then by force."""
        if self.process is not None and self.process.poll() is None:
            below = self.pids()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for pid in below[1:]:
                _outlive(pid)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        try:
            self.stop()
        finally:
            self._scratch.cleanup()

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self.process.pid

    def path(self, model: str) -> str:
        """Where the model takes inference requests."""
        return f"/v2/models/{model}/infer"

    def pids(self) -> list[int]:
        """All its processes, the first one first. A server whose processes leave the tree finds them in its own way."""
        return tree(self.pid)

    def tree_cpu(self) -> float:
        """Processor seconds, user and system, of all its processes so far, ended and reaped ones too. Exact to 10 ms a process."""
        return sum(map(_cpu, self.pids()))

    def tree_pss(self) -> int:
        """Bytes of memory of all its processes; what several share is counted once."""
        return sum(map(_pss, self.pids()))

    def launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes]:
        """Start its process, with what it says going to the log."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | dict(environment or {}), **more,
            )
        return self.process

    def wait_said(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        """Until its log has what it says when it is ready. Raises ServerFailed."""
        assert self.process is not None
        end = time.monotonic() + START_SECONDS
        while (match := pattern.search(self.log_path.read_bytes())) is None:
            if self.process.poll() is not None:
                raise self.failed(f"ended with status {self.process.returncode} before it was ready")
            if time.monotonic() > end:
                raise self.failed(f"was not ready within {START_SECONDS:.0f} s")
            time.sleep(0.005)
        return match

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def failed(self, what: str) -> ServerFailed:
        """The error that says what was waited for, with the end of the log."""
        tail = "\n".join(self.log().splitlines()[-LOG_LINES:])
        return ServerFailed(f"{self.name} {what}\n{tail}")

    def call(self, method: str, path: str, body: Any = None, seconds: float = 120.0) -> tuple[int, Any]:
        """Status and decoded JSON (text where it is none) of one request beside the measured ones."""
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data.decode("utf-8", "replace")


class Wakeful(Server):
    """The shipped daemon with its shipped defaults.

    `settings`: keys of models.toml that every model gets; `defaults`: keys of [defaults]; `arguments`: more of the command line. `cache` holds
    prepared models and what was learnt; without one it is empty at the start and gone at the end.
    """

    name = "Wakeful"
    binary = True

    def __init__(
        self, models: Mapping[str, Path], settings: Mapping[str, object] | None = None, arguments: Sequence[str] = (),
        cache: Path | None = None, defaults: Mapping[str, object] | None = None, grpc: bool = False,
    ) -> None:
        super().__init__(models)
        self._grpc = ["--grpc-port", "0"] if grpc else ["--no-grpc"]
        self.arguments = list(arguments)
        self.cache = cache or self.directory / "cache"
        self.config = self.directory / "models.toml"
        self.config.write_text(configuration(self.models, settings or {}, defaults or {}))

    def start(self) -> None:
        self.launch([
            sys.executable, "-m", "wakeful", "serve", "--host", "127.0.0.1", "--port", "0", *self._grpc, "--config", str(self.config),
            "--cache-dir", str(self.cache), *self.arguments,
        ])
        said = self.wait_said(READY)
        self.address = (said[1].decode(), int(said[2]))
        if over_grpc := GRPC.search(self.log_path.read_bytes()):
            self.grpc_port = int(over_grpc[1])

    def events(self, **query: str | int) -> list[dict[str, Any]]:
        """What it did and why, oldest first. Query: `since` (a number), `model`, `kind`, `limit`."""
        text = "&".join(f"{key}={value}" for key, value in query.items())
        events: list[dict[str, Any]] = self.call("GET", f"/v1/events?{text}")[1]["events"]
        return events

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of /metrics that have these labels."""
        total = 0.0
        status, text = self.call("GET", "/metrics")
        if status != http.HTTPStatus.OK:
            raise self.failed(f"answered /metrics with status {status}")
        for line in text.splitlines():
            if line.startswith((name + " ", name + "{")) and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total


def configuration(models: Mapping[str, Path], settings: Mapping[str, object], defaults: Mapping[str, object]) -> str:
    """models.toml. JSON's way of writing numbers, truth and text is TOML's too."""
    tables = ["[defaults]", *_pairs(defaults)]
    for model, path in models.items():
        tables += ["", "[[models]]", *_pairs({"id": model, "path": str(path), **settings})]
    return "\n".join(tables) + "\n"


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


# ── waiting for a server ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ServerFailed(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.02)


def wait_quiet(server: Server) -> None:
    """Until it has used no processor for a while: a daemon that has just started imports the models' library in another process."""
    used, since = server.tree_cpu(), time.monotonic()
    end = since + QUIET_AT_MOST
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < end:
        time.sleep(0.05)
        if (now := server.tree_cpu()) > used:
            used, since = now, time.monotonic()


# ── figures of the system ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none if the process is gone. Its name may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _cpu(pid: int) -> float:
    return sum(map(int, _stat(pid)[11:15])) / TICK  # utime, stime, cutime, cstime


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has ended meanwhile
        pass
    return 0


def _outlive(pid: int) -> None:
    """Wait for the end of a process whose parent is gone; it is killed if it goes on."""
    for number in (0, signal.SIGKILL):  # 0: only asks whether it is there
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        end = time.monotonic() + ORPHAN_SECONDS
        while _alive(pid) and time.monotonic() < end:
            time.sleep(0.01)
        if not _alive(pid):
            return


def _alive(pid: int) -> bool:
    return bool(fields := _stat(pid)) and fields[0] != "Z"
