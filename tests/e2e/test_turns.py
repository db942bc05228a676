"""Whose turn it is, and when: what the oldest request decides, and what the delay is for. By order and by what was run; replicas are frozen
while a queue is made.
"""

import resource
import select
import selectors
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests import onnx_models
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import Question, ask, ask_together, oip, receive, send, tensor
from tests.frontends.http.stage import Client, post
from wakeful.cli.descriptors import allow_descriptors

DELAY = 5.0
"""Seconds that a lone request waits for company where a test has to wait for that."""
CROWD = 2048


def crowd() -> int:
    """Connections that both ends may have open at once, if it is not the whole crowd."""
    allow_descriptors()
    return min(CROWD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


MODELS = f"""
[defaults]
idle_timeout_secs = 0
prepare = "off"
max_replicas = 1
batch_policy = "timer"
max_batch_delay_ms = 60000

[[models]]
id = "turns"
path = "identdyn.onnx"
max_batch_size = 8
max_batch_delay_ms = 10

[[models]]
id = "adaptive"
path = "identdyn.onnx"
batch_policy = "adaptive"

[[models]]
id = "delayed"
path = "identdyn.onnx"
max_batch_size = 2
max_batch_delay_ms = {1000 * DELAY:g}

[[models]]
id = "clock"
path = "identdyn.onnx"
max_batch_delay_ms = {1000 * DELAY:g}

[[models]]
id = "crowded"
path = "identdyn.onnx"
max_batch_size = {crowd()}

[[models]]
id = "capped"
path = "identdyn.onnx"
max_batch_size = 8
queue_limit = 4
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("turns")
    onnx_models.identdyn(directory / "identdyn.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def replicas(daemon: Daemon) -> dict[str, int]:
    return {model: daemon.wake(model) for model in ("turns", "adaptive", "delayed", "clock", "crowded")}


def x(model: str, shape: tuple[int, int], first: float = 0, **more: object) -> Question:
    return oip(model, tensor("x", shape, [first + at for at in range(shape[0] * shape[1])]), **more)


def runs(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_batch_rows_count", model=model))


def rows(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_batch_rows_sum", model=model))


def waiting(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_queue_requests", model=model))


def test_the_oldest_request_picks_what_runs_however_much_of_another_shape_comes(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C12: a feeder has always 128 requests of one shape under way. Of those that came later than the rare and the large one, hardly more are
    answered before them than fill the run under way, and than are under way while the feeder looks; the feeder would go on to 2000.
    """
    width = 64
    with ExitStack() as stack, selectors.DefaultSelector() as answered:
        common = x("turns", (1, 4))

        def feed() -> None:
            answered.register(stack.enter_context(closing(send(daemon, common))).sock, selectors.EVENT_READ, "common")

        begun, received = runs(daemon, "turns"), rows(daemon, "turns")
        with frozen(replicas["turns"]):
            for _ in range(width):
                feed()
            wait_until(lambda: runs(daemon, "turns") == begun + 2, "two runs of them are sealed")
            wait_until(lambda: rows(daemon, "turns") + waiting(daemon, "turns") == received + width, "and all others wait")
            before = waiting(daemon, "turns")
            rare, large = [stack.enter_context(closing(send(daemon, x("turns", shape, 5)))) for shape in ((1, 7), (8, 4))]
            wait_until(lambda: waiting(daemon, "turns") == before + 2, "the rare and the large one wait")
            for _ in range(width):
                feed()
            wait_until(lambda: waiting(daemon, "turns") == before + 2 + width, "the younger ones wait behind them")
        answered.register(rare.sock, selectors.EVENT_READ, "rare")
        answered.register(large.sock, selectors.EVENT_READ, "large")
        missing, fed, later = {"rare", "large"}, 2 * width, 0
        while missing:
            ready = [(key.fileobj, key.data) for key, _ in answered.select(30)]
            assert ready, "nobody is answered any more"
            for sock, who in ready:
                answered.unregister(sock)
                missing.discard(who)
                later += who == "common"
                if who == "common" and fed < 2000:
                    feed()
                    fed += 1
        assert later - width <= 2 * 8 + 2 * width
        assert receive(rare).output() == [5 + at for at in range(7)]
        assert receive(large).output() == [5 + at for at in range(32)]


def test_what_one_connection_sends_ahead_is_answered_in_its_order(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C12: though a request of another shape might share the run of the first."""
    with closing(Client(send(daemon, x("turns", (1, 4), id="0")).sock)) as client:
        shapes = [(1, 7), (8, 4), (1, 4), (2, 7)]
        questions = [x("turns", shape, id=str(number)) for number, shape in enumerate(shapes, start=1)]
        client.send(b"".join(post(question.path, question.body) for question in questions))
        bodies = [client.receive()[2] for _ in range(5)]
    assert [body.partition(b'"id":"')[2][:1] for body in bodies] == [b"0", b"1", b"2", b"3", b"4"]


def test_where_waiting_gains_nothing_a_lone_request_does_not_wait(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C13: the delay is a minute, twice what a request may last, and the model is idle."""
    for number in range(5):
        assert ask(daemon, x("adaptive", (1, 4), number)).output() == [number + at for at in range(4)]


def test_who_comes_during_a_run_goes_when_it_ends(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C13: with that same delay."""
    before = runs(daemon, "adaptive")
    with frozen(replicas["adaptive"]):
        first = send(daemon, x("adaptive", (1, 4), 1))
        wait_until(lambda: runs(daemon, "adaptive") > before, "one runs")
        second = send(daemon, x("adaptive", (1, 4), 2))
        wait_until(lambda: waiting(daemon, "adaptive") == 1 or runs(daemon, "adaptive") == before + 2, "another is there")
    for number, caller in enumerate((first, second), start=1):
        with closing(caller):
            assert receive(caller).output() == [number + at for at in range(4)]


def test_a_delay_that_has_passed_during_a_run_is_not_waited_once_more(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C13: an idle model with the same delay is the clock. It goes off once while the run lasts; had the delay begun anew with the end of the
    run, it would go off once more before the answer.
    """
    before = runs(daemon, "delayed")
    with frozen(replicas["delayed"]):
        first = send(daemon, x("delayed", (2, 4), 1))
        wait_until(lambda: runs(daemon, "delayed") > before, "a full batch runs")
        late = send(daemon, x("delayed", (1, 4), 2))
        wait_until(lambda: waiting(daemon, "delayed") == 1, "the late one waits")
        assert ask(daemon, x("clock", (1, 4))).status == 200
        again = send(daemon, x("clock", (1, 4)))
        wait_until(lambda: waiting(daemon, "clock") == 1, "the clock has been set again")
    assert receive(late).output() == [2, 3, 4, 5]
    assert select.select([again.sock], [], [], 0)[0] == []
    assert receive(first).status == 200
    for caller in (first, late, again):
        caller.close()
    assert runs(daemon, "delayed") == before + 2


def test_nothing_hidden_keeps_a_large_batch_from_being_full(daemon: Daemon, replicas: dict[str, int]) -> None:
    """C13: 2048 at once, with max_batch_size 2048 and a delay of a minute, are one run."""
    before = runs(daemon, "crowded")
    answers = ask_together(daemon, [x("crowded", (1, 4), number) for number in range(crowd())])
    assert [answer.output()[0] for answer in answers] == list(range(crowd()))
    assert runs(daemon, "crowded") == before + 1


def test_a_start_tells_of_a_queue_that_can_never_fill_a_batch(daemon: Daemon) -> None:
    """C13: the cap has a name."""
    assert "max_batch_size 8 is above queue_limit 4: requests of one row can never fill a batch" in daemon.log
