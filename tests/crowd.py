"""Many clients at once, each with questions that have one right answer."""

import http.client
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.daemon import Daemon


@dataclass
class Crowd:
    """`clients` threads that ask `model` (x FP32 [rows,width] -> y the same) until the block ends, or `requests` times each.

    Every number says who asks and what: an answer that was somebody else's, or of another question, is found among `wrong`.
    """

    daemon: Daemon
    model: str
    clients: int = 8
    requests: int | None = None
    rows: int = 1
    width: int = 4
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Bodies of answers other than 200, and what went wrong with the connection (status 0)."""
    unanswered: list[float] = field(default_factory=list)
    """When those requests had been sent whose connection broke; infinity for those that could not be sent."""
    factor: Callable[[str], float] = lambda _: 1.0
    """What a version of the model multiplies x with."""
    versions: Counter[str] = field(default_factory=Counter)
    """Which ones answered."""

    def __enter__(self) -> Self:
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(number,), daemon=True) for number in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.requests is None:
            self._enough.set()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), f"a client of {self.model} hangs:\n{self.daemon.log}"

    def stop(self) -> None:
        """Ask no more questions."""
        self._enough.set()

    @property
    def answered(self) -> int:
        return self.statuses[200]

    def _client(self, number: int) -> None:
        connection = http.client.HTTPConnection(self.daemon.host, self.daemon.port, timeout=100)
        asked = 0
        while not self._enough.is_set() and asked != self.requests:
            asked += 1
            question = [float(1000 * number + asked), *range(1, self.rows * self.width)]
            sent, failure = math.inf, None
            try:
                put(connection, self.model, question, [self.rows, self.width])
                sent = time.monotonic()
                status, body = take(connection)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                failure = error
                status, body = 0, f"{type(error).__name__}: {error}"
            with self._lock:
                self.statuses[status] += 1
                if failure:
                    self.unanswered.append(sent)
                if status != 200:
                    self.errors.append(str(body))
                else:
                    self._look_at(question, body["outputs"][0]["data"], body["model_version"])
            if isinstance(failure, ConnectionRefusedError):  # nobody listens any more
                break
        connection.close()

    def _look_at(self, question: list[float], answer: list[float], version: str) -> None:
        self.versions[version] += 1
        if answer != [self.factor(version) * number for number in question]:
            self.wrong.append(f"asked {question[:4]} of version {version}, got {answer[:4]}")


def ask(connection: http.client.HTTPConnection, model: str, data: list[float], shape: list[int]) -> tuple[int, Any]:
    """One request over a connection that is kept."""
    put(connection, model, data, shape)
    return take(connection)


def put(connection: http.client.HTTPConnection, model: str, data: list[float], shape: list[int]) -> None:
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": data}
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}))


def take(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Auditor:
    """Looks again and again whether all models together hold more than the budget; `pause`: seconds between two looks."""

    def __init__(self, daemon: Daemon, pause: float = 0.0) -> None:
        self._daemon = daemon
        self._pause = pause
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0.0

    def _look(self) -> None:
        pattern = re.compile(r'^wakeful_resident_bytes\{model="[^"]+"\} (\S+)$', re.MULTILINE)
        while not self._done.wait(self._pause):
            page = self._daemon.call("GET", "/metrics")[1].decode()
            self.most = max(self.most, sum(float(value) for value in pattern.findall(page)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)


def calm(daemon: Daemon, model: str) -> bool:
    """Nothing of the model waits, runs or starts any more."""
    return (
        daemon.metric("wakeful_queue_requests", model=model) == 0
        and daemon.metric("wakeful_replicas", model=model, state="starting") == 0
        and daemon.metric("wakeful_replicas", model=model, state="waiting") == 0
        and daemon.metric("wakeful_replicas", model=model, state="draining") == 0
        and daemon.metric("wakeful_oldest_load_seconds") == 0
    )
