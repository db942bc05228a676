"""A request that ends the process of its model: it fails alone, is named, and may not do it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until
from tests.e2e.asking import Question, ask, ask_together, oip, tensor

MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0

[[models]]
id = "fragile"
path = "fatal.onnx"
batching = "on"
batch_policy = "timer"
max_batch_delay_ms = 300
max_batch_size = 8
max_replicas = 1

[[models]]
id = "bystander"
path = "ident.onnx"
pinned = true
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("blame")
    onnx_models.fatal(directory / "fatal.onnx")
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def question(first: float, name: str = "", last: float = 3) -> Question:
    more = {"id": name} if name else {}
    return oip("fragile", tensor("x", [1, 4], [first, 1, 2, last]), **more)


def crashes(daemon: Daemon) -> float:
    return daemon.metric("wakeful_restarts_total", model="fragile", cause="signal")


def test_it_fails_alone_and_is_named(daemon: Daemon) -> None:
    """C05: eight share a run, one of them ends the process; seven are run again, each alone, and answered."""
    assert ask(daemon, question(0)).output() == [0, 1, 2, 3]
    culprit = question(onnx_models.FATAL, "the culprit")
    with Crowd(daemon, "bystander", clients=2) as crowd:
        answers = ask_together(daemon, [*(question(number) for number in range(4)), culprit, *(question(number) for number in range(5, 8))])
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    for number, answer in enumerate(answers):
        if number != 4:
            assert answer.output() == [number, 1, 2, 3]
    assert answers[4].status == 500
    assert "SIGFPE, 2 times while it ran this request" in answers[4].json["error"]
    assert crashes(daemon) == 2
    blame = daemon.wait_event("blame", "fragile")
    assert "request 'the culprit' with x FP32 [1, 4], digest " in blame["text"]
    assert "SIGFPE" in blame["text"]
    assert blame["figures"]["request"] == "the culprit"


def test_the_same_input_does_not_end_a_third_process(daemon: Daemon) -> None:
    """Whoever sends it, under whatever name; what only looks like it is run."""
    for name in ("again", "and again"):
        answer = ask(daemon, question(onnx_models.FATAL, name))
        assert answer.status == 500
        assert "whenever it ran this input, which is not tried again" in answer.json["error"]
    assert ask(daemon, question(5)).output() == [5, 1, 2, 3]
    assert crashes(daemon) == 2
    assert daemon.metric("wakeful_requests_total", model="fragile", outcome="execution_failed") == 3


def test_of_several_that_wait_with_the_same_input_one_is_run(daemon: Daemon) -> None:
    before = crashes(daemon)
    answers = ask_together(daemon, [question(onnx_models.FATAL, last=4)] * 4)
    assert {answer.status for answer in answers} == {500}
    assert crashes(daemon) == before + 2
    wait_until(lambda: calm(daemon, "fragile"), "nothing is left over")


def test_another_file_may_take_what_this_one_could_not(daemon: Daemon, directory: Path) -> None:
    """Last, because the model is another one from here on."""
    onnx_models.ident(directory / "new.onnx").rename(directory / "fatal.onnx")
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    assert ask(daemon, question(onnx_models.FATAL)).output() == [onnx_models.FATAL, 1, 2, 3]
