"""A process of its own that watches a daemon under load: is it alive, what does it tell a caller, what does it hold.

It is apart from the load generator, so that a probe that came late tells of the daemon and not of a generator that was busy.
"""

import http.client
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

import psutil

from tests.daemon import Daemon
from wakeful.loadgen.slices import short_slice

PROBE, FRESH, ASK, LOOK = 0.02, 0.05, 0.05, 0.2
"""Seconds between two probes over one connection, two over new ones, two requests of a plain caller, and two looks at memory."""
PATIENCE = 30.0


class Reply(NamedTuple):
    """To the plain caller's request."""

    status: int
    retry_after: str | None
    right: bool
    """The answer is the caller's own, or says why there is none."""
    seconds: float


@dataclass
class Seen:
    kept: list[float] = field(default_factory=list)
    """Seconds of liveness probes over one connection."""
    fresh: list[float] = field(default_factory=list)
    """The same, each over a new connection, as Kubernetes asks."""
    overslept: list[float] = field(default_factory=list)
    """How much too late the prober itself woke: what the machine, and not the daemon, adds to a probe."""
    replies: list[Reply] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """Private bytes of the daemon."""
    broken: list[str] = field(default_factory=list)
    """Connections that failed, probes that were not answered with 200."""


@contextmanager
def watching(daemon: Daemon, model: str) -> Iterator[Seen]:
    """For the time of a block; what was seen is there when it ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    enough, begun = context.Event(), context.Event()
    process = context.Process(target=_watch, args=(daemon.host, daemon.port, daemon.process.pid, model, begun, enough, theirs), daemon=True)
    process.start()
    seen = Seen()
    try:
        assert begun.wait(PATIENCE), "the witness did not start"
        yield seen
        enough.set()
        assert ours.poll(2 * PATIENCE), "the witness does not end"
        seen.__dict__.update(ours.recv().__dict__)
    finally:
        process.kill()
        process.join()


def _watch(host: str, port: int, pid: int, model: str, begun: Event, enough: Event, pipe: Connection) -> None:
    seen = Seen()
    kept, plain = (http.client.HTTPConnection(host, port, timeout=PATIENCE) for _ in range(2))
    process = psutil.Process(pid)
    numbers = iter(range(1 << 30))

    def probe(connection: http.client.HTTPConnection, times: list[float]) -> None:
        start = time.monotonic()
        status, _, _ = _call(connection, "GET", "/v2/health/live")
        times.append(time.monotonic() - start)
        if status != 200:
            seen.broken.append(f"liveness: {status}")

    def probe_anew() -> None:
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        probe(connection, seen.fresh)
        connection.close()

    def ask() -> None:
        question = [float(next(numbers)), 1.0, 2.0, 3.0]
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": question}
        start = time.monotonic()
        status, retry_after, body = _call(plain, "POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}))
        right = body["outputs"][0]["data"] == question if status == 200 else bool(body["error"])
        seen.replies.append(Reply(status, retry_after, right, time.monotonic() - start))

    def look() -> None:
        seen.memory.append(process.memory_full_info().uss)

    looks: list[tuple[float, Callable[[], None]]] = [
        (PROBE, lambda: probe(kept, seen.kept)), (FRESH, probe_anew), (ASK, ask), (LOOK, look),
    ]
    threads = [threading.Thread(target=_again, args=(every, act, enough, seen)) for every, act in looks]
    begun.set()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send(seen)


def _again(every: float, act: Callable[[], None], enough: Event, seen: Seen) -> None:
    with short_slice():
        due = time.monotonic()
        while not enough.is_set():
            try:
                act()
            except (OSError, http.client.HTTPException, ValueError) as error:
                seen.broken.append(f"{type(error).__name__}: {error}")
            due = max(due + every, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))
            seen.overslept.append(time.monotonic() - due)


def _call(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> tuple[int, str | None, Any]:
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.getheader("retry-after"), json.loads(answer.read())
