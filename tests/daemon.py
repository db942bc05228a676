"""A real daemon in a process of its own, for tests that cross a border."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
STOP_SECONDS = 30.0
READY = re.compile(rb'ready[ ",:a-z]+https?://([0-9.]+):(\d+)')  # in a line of text or of JSON


def sample(page: str, name: str, **labels: str) -> float:
    """Of a page of metrics; 0 when there is none."""
    for line in page.splitlines():
        if line.startswith((name + " ", name + "{")) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


class Daemon:
    """`wakeful serve` with its own cache directory, on ports that the system picked. What it logs is kept in `log_path`."""

    def __init__(self, directory: Path, *options: str, env: dict[str, str] | None = None, launcher: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log_path = directory / "daemon.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *launcher, sys.executable, "-m", "wakeful", "serve", "--port", "0", "--grpc-port", "0", "--cache-dir", str(directory / "cache"),
                    *options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | (env or {}),
            )
        self.host, self.port = self._wait_ready()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def grpc(self) -> str:
        """Host and port of gRPC."""
        match = re.search(r"gRPC on port (\d+)", self.log)
        assert match, self.log
        return f"{self.host}:{match[1]}"

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def _wait_ready(self) -> tuple[str, int]:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            match = READY.search(self.log_path.read_bytes())
            if match:
                return match[1].decode(), int(match[2])
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.process.kill()
        raise AssertionError(f"the daemon did not start:\n{self.log}")

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and decoded JSON (bytes where it is no JSON). Lists and dicts are sent as JSON, bytes as they are."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def infer(self, model: str, name: str, data: list[Any], shape: list[int], datatype: str = "FP32", **more: Any) -> tuple[int, Any]:
        tensor = {"name": name, "shape": shape, "datatype": datatype, "data": data}
        return self.call("POST", f"/v2/models/{model}/infer", {"inputs": [tensor], **more})

    def events(self, **query: str) -> list[dict[str, Any]]:
        path = "/v1/events" + ("?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else "")
        events: list[dict[str, Any]] = self.call("GET", path)[1]["events"]
        return events

    def wait_event(self, kind: str, model: str = "", *, text: str = "", since: int = 0, seconds: float = 60.0) -> dict[str, Any]:
        """The first event of this kind after number `since`, waiting for it if it has not come yet."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for event in self.events(since=str(since)):
                if event["kind"] == kind and model in ("", event["model"]) and text in event["text"]:
                    return event
            time.sleep(0.02)
        raise AssertionError(f"no {kind} event for {model!r} with {text!r} in {seconds} s:\n{self.log}")

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics; 0 when there is none."""
        return sample(self.call("GET", "/metrics")[1].decode(), name, **labels)

    def children(self) -> dict[int, str]:
        """All processes below the daemon, by pid: "nursery" or "replica"."""
        return processes_below(self.process.pid)

    def nursery(self) -> int:
        """Pid of the only nursery."""
        (pid,) = (pid for pid, role in self.children().items() if role == "nursery")
        return pid

    def replicas(self) -> list[int]:
        """Pids of all replicas, those among them that only look into a file or take a self-test."""
        return [pid for pid, role in self.children().items() if role == "replica"]

    def replica(self) -> int:
        """Pid of the only replica, once the copy that takes its self-test is gone."""
        wait_until(lambda: len(self.replicas()) == 1, "there is one replica")
        return self.replicas()[0]

    def wake(self, model: str) -> int:
        """Load a model that has one replica, and wait until that is all: its pid."""
        before = set(self.replicas())
        status, answer = self.call("POST", f"/v2/repository/models/{model}/load")
        assert status == 200, answer
        wait_until(lambda: len(set(self.replicas()) - before) == 1, "the copy that took the self-test is gone")
        [pid] = set(self.replicas()) - before
        return pid

    def connections(self) -> dict[int, str]:
        """Those that were accepted: the client's port, and the inode of our end."""
        rows = [line.split() for line in Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]]
        listening, orphaned = "0A", "0"
        ports = ((int(row[1].rpartition(":")[2], 16), int(row[2].rpartition(":")[2], 16), row) for row in rows)
        return {theirs: row[9] for ours, theirs, row in ports if ours == self.port and row[3] != listening and row[9] != orphaned}

    def sockets(self) -> set[str]:
        """Inodes of all sockets that it holds open."""
        found = set()
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[len("socket:["):-1])
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit status; its children must be gone with it."""
        children = self.children() if self.process.poll() is None else {}
        self.process.send_signal(number)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the daemon did not stop:\n{self.log}") from None
        wait_until(lambda: not any(alive(pid) for pid in children), "all children of the daemon are gone")
        return status


def processes_below(daemon: int) -> dict[int, str]:
    """All descendants of a process, by pid: "nursery" for one that leads a process group, else "replica"."""
    parents, leaders = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                _, parent, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except (OSError, ValueError):
                continue
            parents[int(entry.name)] = int(parent)
            if group == entry.name:
                leaders.add(int(entry.name))
    below: dict[int, str] = {}
    for pid in sorted(parents):
        chain = [pid]
        while chain[-1] in parents and chain[-1] != daemon:
            chain.append(parents[chain[-1]])
        if chain[-1] == daemon and pid != daemon:
            below[pid] = "nursery" if pid in leaders else "replica"
    return below


def alive(pid: int) -> bool:
    return _state(pid) not in ("Z", "")


def _state(pid: int) -> str:
    """As /proc shows it: "R", "S", "T", "Z"; "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def freeze(pid: int) -> None:
    """Stop a process, and wait until it has stopped, or is gone: until then it may still take what it is sent."""
    with suppress(ProcessLookupError):  # such as a copy that took a self-test
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) in ("T", "Z", ""), f"process {pid} stands still")


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Processes that stand still for the time of a block, and whatever they have in hand with them."""
    try:
        for pid in pids:
            freeze(pid)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def wait_until(condition: Any, what: str, seconds: float = 30.0) -> None:
    """Poll until `condition()` holds. The limit only ends a test that would hang."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain until {what}"
        time.sleep(0.01)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


@contextmanager
def running(
    directory: Path, *options: str, env: dict[str, str] | None = None, launcher: Sequence[str] = ()
) -> Iterator[Daemon]:
    """A daemon for the time of a block. A test that fails shows the daemon's log. `launcher`: the command that executes the daemon's own."""
    daemon = Daemon(directory, *options, env=env, launcher=launcher)
    try:
        yield daemon
    except BaseException:
        print(daemon.log)
        raise
    finally:
        if daemon.process.poll() is None:
            daemon.stop()
