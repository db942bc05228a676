"""C06: callers that hang up, or whose time is up, while others wait. Nothing is run for them, and nobody else pays for them."""

import http.client
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import pytest

from tests import onnx_models
from tests.crowd import calm
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import Question, ask, binary, declared, oip, receive, send, tensor

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"
max_replicas = 1
batch_policy = "timer"
max_batch_delay_ms = 0
max_batch_size = 1000

[[models]]
id = "patient"
path = "ident.onnx"

[[models]]
id = "narrow"
path = "ident.onnx"
queue_limit = 30

[[models]]
id = "asleep"
path = "ident.onnx"
"""
LARGE = 131_072
"""Rows of [N,4] FP32 in 2 MiB: far more than one run may have."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("leaving")
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def replicas(daemon: Daemon) -> dict[str, int]:
    """Pid of the only replica of each model that is awake."""
    return {model: daemon.wake(model) for model in ("patient", "narrow")}


class Done(NamedTuple):
    """What a model has done."""

    rows: int
    left: int
    """Requests whose callers did not wait."""

    def since(self, before: "Done") -> "Done":
        return Done(self.rows - before.rows, self.left - before.left)


def done(daemon: Daemon, model: str) -> Done:
    left = daemon.metric("wakeful_requests_total", model=model, outcome="left")
    return Done(int(daemon.metric("wakeful_batch_rows_sum", model=model)), int(left))


def question(model: str, number: int, **more: object) -> Question:
    return oip(model, tensor("x", [1, 4], [number, 1, 2, 3]), **more)


def waiting(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_queue_requests", model=model))


def hang_up(daemon: Daemon, callers: Sequence[http.client.HTTPConnection]) -> None:
    """Half of them in good manner, half of them not. Returns when the daemon knows."""
    known = daemon.connections()
    gone = {known[caller.sock.getsockname()[1]] for caller in callers}
    for number, caller in enumerate(callers):
        if number % 2:
            caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
    wait_until(lambda: not gone & daemon.sockets(), "the daemon knows that they have left")


@contextmanager
def busy(daemon: Daemon, replicas: dict[str, int], asked: Question) -> Iterator[http.client.HTTPConnection]:
    """A run of `asked` that does not end within the block: whatever else comes has to wait. Gives the caller of that run."""
    model = asked.path.split("/")[3]
    runs = daemon.metric("wakeful_batch_rows_count", model=model)
    with frozen(replicas[model]):
        caller = send(daemon, asked)
        wait_until(lambda: daemon.metric("wakeful_batch_rows_count", model=model) > runs, "it runs")
        yield caller


def test_of_hundreds_who_hang_up_nobody_is_run_and_those_who_stay_are_answered(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C06: every eleventh of 220 stays."""
    before = done(daemon, "patient")
    wait_until(lambda: not daemon.connections(), "nobody is connected")
    sockets = len(daemon.sockets())
    with busy(daemon, replicas, question("patient", 1000)) as first:
        callers = [send(daemon, question("patient", number)) for number in range(220)]
        wait_until(lambda: waiting(daemon, "patient") == 220, "all of them wait")
        stay = {number: caller for number, caller in enumerate(callers) if number % 11 == 0}
        hang_up(daemon, [caller for number, caller in enumerate(callers) if number not in stay])
    assert receive(first).output() == [1000, 1, 2, 3]
    for number, caller in stay.items():
        assert receive(caller).output() == [number, 1, 2, 3]
    assert done(daemon, "patient").since(before) == Done(rows=1 + 20, left=200)
    wait_until(lambda: calm(daemon, "patient"), "nothing is under way")
    for caller in (first, *stay.values()):
        caller.close()
    wait_until(lambda: len(daemon.sockets()) <= sockets, "nothing of them is left")
    assert ask(daemon, question("patient", 5)).output() == [5, 1, 2, 3]


def test_those_who_have_left_take_no_place_in_the_queue(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C06: while one run lasts and lasts, a queue full of callers who gave up is no queue."""
    before = done(daemon, "narrow")
    with busy(daemon, replicas, question("narrow", 1000)) as first:
        callers = [send(daemon, question("narrow", number)) for number in range(30)]
        wait_until(lambda: waiting(daemon, "narrow") == 30, "all of them wait")
        refused = ask(daemon, question("narrow", 30))
        assert (refused.status, "queue_limit" in refused.json["error"]) == (429, True)
        hang_up(daemon, callers)
        fresh = [send(daemon, question("narrow", number)) for number in range(30)]
        wait_until(lambda: waiting(daemon, "narrow") == 30, "they have taken their places")
        assert ask(daemon, question("narrow", 30)).status == 429
    assert receive(first).status == 200
    for number, caller in enumerate(fresh):
        assert receive(caller).output() == [number, 1, 2, 3]
        caller.close()
    first.close()
    assert done(daemon, "narrow").since(before) == Done(rows=31, left=30)


def test_time_is_up_when_it_is_up_and_not_when_the_run_before_ends(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C06: the run lasts until the impatient has been answered."""
    before = done(daemon, "patient")
    with busy(daemon, replicas, question("patient", 1)) as first:
        impatient = ask(daemon, question("patient", 2, parameters={"timeout": 300_000}))
        assert (impatient.status, "in the queue" in impatient.json["error"]) == (504, True)
    assert receive(first).output() == [1, 1, 2, 3]
    first.close()
    assert done(daemon, "patient").since(before) == Done(rows=1, left=0)


def test_who_leaves_during_the_load_costs_no_run_and_does_not_end_it(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C06, before the model is there."""
    nursery = daemon.nursery()
    with frozen(nursery):
        callers = [send(daemon, question("asleep", number)) for number in range(20)]
        wait_until(lambda: waiting(daemon, "asleep") == 20, "all of them wait")
        hang_up(daemon, callers[:-1])
    assert receive(callers[-1]).output() == [19, 1, 2, 3]
    callers[-1].close()
    assert done(daemon, "asleep") == Done(rows=1, left=19)
    assert daemon.metric("wakeful_load_seconds_count", model="asleep") == 1


def test_what_the_dead_have_sent_and_would_have_got_is_given_up(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C06: a round is 60 MiB of requests, and would be as much of answers. What it has cost is there for the next one."""
    asked = binary("patient", [declared("x", "FP32", LARGE, 4)], [bytes(16 * LARGE)])
    before = done(daemon, "patient")
    resident = []
    for _ in range(3):
        with busy(daemon, replicas, asked) as first:
            callers = [first, *(send(daemon, asked) for _ in range(29))]
            wait_until(lambda: waiting(daemon, "patient") == 30, "a part of each waits, another of the first runs, and one is sealed to run next")
            hang_up(daemon, callers)
        with closing(send(daemon, question("patient", 7))) as caller:
            assert receive(caller).output() == [7, 1, 2, 3]
        wait_until(lambda: calm(daemon, "patient"), "nothing is under way")
        resident.append(daemon.metric("process_resident_memory_bytes"))
    assert done(daemon, "patient").since(before) == Done(rows=3 * (2 * 1000 + 1), left=3 * 30)
    assert resident[-1] < resident[0] + 60 * 2**20
