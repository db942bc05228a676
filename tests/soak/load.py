"""Callers of all kinds, good and bad, who know what the right answer is."""

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.crowd import ask
from tests.daemon import Daemon

TIMEOUT = 60.0
"""Seconds without an answer from which on a request counts as lost."""
TELLS_WHY = {429, 500, 503, 504}
"""What a request may get whose model somebody is killing; all of them with a reason."""


@dataclass
class Ledger:
    """What became of all requests of one model."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crossed: Counter[str] = field(default_factory=Counter)
    """Those of them under which something was done to the daemon."""
    wrong: list[str] = field(default_factory=list)
    """Answers that were not right, and requests that got none: the first few."""
    seconds: list[float] = field(default_factory=list)
    """Of good answers."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, outcome: str, problem: str = "", seconds: float | None = None, *, crossed: bool = False) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            self.crossed[outcome] += crossed
            if seconds is not None:
                self.seconds.append(seconds)
            if problem and len(self.wrong) < 20:
                self.wrong.append(problem)


class Load:
    """Threads that ask until `stop`. Each has a seed of its own, so that the same seed asks the same questions."""

    def __init__(self, daemon: Daemon, models: Sequence[str], clients: int, seed: int) -> None:
        self.ledgers = {model: Ledger() for model in models}
        self.bad = Counter[str]()
        """Callers who misbehaved, by how."""
        self.moments = 0
        """Beginnings and ends of faults: odd while one is being injected."""
        self._daemon = daemon
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(models[number % len(models)], number, random.Random(f"{seed} {number}")), daemon=True)
            for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[str]:
        """End all callers. Returns those that hang."""
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT)
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _ask_on(self, model: str, number: int, rng: random.Random) -> None:
        ledger, asked = self.ledgers[model], 0
        connection = self._connection()
        while not self._enough.is_set():
            asked += 1
            if rng.random() < 0.03:
                bad = rng.choice(MISBEHAVIOUR)
                with suppress(OSError):
                    bad(self._daemon, model, rng)
                self.bad[bad.__name__.strip("_").replace("_", " ")] += 1
                continue
            rows = rng.choice((1, 1, 1, 2, 5, 200))
            question = [float(1000 * number + asked), *(float(value) for value in range(1, rows * 4))]
            begun, moment = time.monotonic(), self.moments
            seconds, problem = None, ""
            try:
                status, body = ask(connection, model, question, [rows, 4])
            except (OSError, http.client.HTTPException, ValueError) as error:
                outcome, problem = "no answer", f"{type(error).__name__}: {error}"
                connection.close()
                connection = self._connection()
            else:
                outcome, problem = _judged(status, body, question)
                seconds = time.monotonic() - begun if outcome == "200" else None
            ledger.note(outcome, problem, seconds, crossed=moment % 2 == 1 or self.moments != moment)
            time.sleep(rng.expovariate(200.0))
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._daemon.host, self._daemon.port, timeout=TIMEOUT)


def _judged(status: int, body: Any, question: list[float]) -> tuple[str, str]:
    """The outcome, and what is wrong about it."""
    if status != 200:
        reason = str(body.get("error", "")) if isinstance(body, dict) else ""
        return str(status), "" if status in TELLS_WHY and reason else f"{status}: {body}"
    if body["outputs"][0]["data"] != question:
        return "wrong", f"asked {question[:4]}, got {body['outputs'][0]['data'][:4]}"
    return "200", ""


# Callers one would rather not have ------------------------------------------------------------------------------------------------------


def _request(model: str, rows: int) -> bytes:
    tensor = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [0.5] * (4 * rows)}
    body = json.dumps({"inputs": [tensor]}).encode()
    return b"POST /v2/models/%s/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (model.encode(), len(body), body)


def _connect(daemon: Daemon) -> socket.socket:
    return socket.create_connection((daemon.host, daemon.port), TIMEOUT)


def _leaves_at_once(daemon: Daemon, model: str, rng: random.Random) -> None:
    with _connect(daemon) as sock:
        sock.sendall(_request(model, rng.choice((1, 500))))


def _leaves_in_mid_body(daemon: Daemon, model: str, rng: random.Random) -> None:
    with _connect(daemon) as sock:
        request = _request(model, 2000)
        sock.sendall(request[: rng.randrange(1, len(request))])


def _pipelines(daemon: Daemon, model: str, rng: random.Random) -> None:
    with _connect(daemon) as sock:
        sock.sendall(_request(model, 1) * rng.randrange(2, 20))
        sock.recv(1000)


def _sends_nonsense(daemon: Daemon, model: str, rng: random.Random) -> None:
    with _connect(daemon) as sock:
        sock.sendall(rng.randbytes(rng.randrange(1, 5000)) + b"\r\n\r\n")
        sock.recv(1000)


def _reads_nothing(daemon: Daemon, model: str, rng: random.Random) -> None:
    with _connect(daemon) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(_request(model, 20_000))
        time.sleep(rng.random())


MISBEHAVIOUR: tuple[Callable[[Daemon, str, random.Random], None], ...] = (
    _leaves_at_once, _leaves_in_mid_body, _pipelines, _sends_nonsense, _reads_nothing,
)
