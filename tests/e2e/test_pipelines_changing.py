"""Pipelines while something changes: models that nobody has opened yet, limits of a step's model, another configuration."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import Question, ask, oip, receive, send, tensor

CONFIG = """
[defaults]
prepare = "off"
max_replicas = 1
idle_timeout_secs = 0

[[models]]
id = "narrow"
path = "narrow.onnx"
queue_limit = 1
max_batch_size = 1

[[pipelines]]
id = "limited"
request_timeout_ms = 400
steps = [{ model = "a", outputs = { y = "half" } }, { model = "narrow", inputs = { x = "half" } }]
"""
LATER = """
[[pipelines]]
id = "later"
steps = [{ model = "a", outputs = { y = "half" } }, { model = "b", inputs = { x = "half" } }]
"""


class Home:
    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon, self.directory = daemon, directory

    def reload(self, text: str, said: str = "the configuration was applied") -> None:
        (self.directory / "models.toml").write_text(text)
        seen = max(event["seq"] for event in self.daemon.events())
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.wait_event("config", text=said, since=seen)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    directory = tmp_path_factory.mktemp("changing")
    for name in ("a", "b", "narrow"):
        onnx_models.ident(directory / f"{name}.onnx")
    onnx_models.negative(directory / "other.onnx")
    (directory / "models.toml").write_text(CONFIG)
    with running(directory / "d", "--models-dir", str(directory)) as daemon:
        yield Home(daemon, directory)


def asked(pipeline: str, number: float = 1.0) -> Question:
    return oip(pipeline, tensor("x", [1, 4], [number] * 4))


def test_requests_that_come_before_anything_is_known(home: Home) -> None:
    """The first requests of all; both models are looked at once, and no request is lost."""
    home.reload(CONFIG + LATER)
    with ExitStack() as connections:
        sent = [connections.enter_context(closing(send(home.daemon, asked("later", number)))) for number in range(20)]
        assert [receive(connection).output("y") for connection in sent] == [[number] * 4 for number in range(20)]


def test_all_steps_together_have_the_time_of_the_pipeline(home: Home) -> None:
    """Its own `request_timeout_ms`, as no caller and no model tells a shorter one."""
    home.daemon.call("POST", "/v2/repository/models/narrow/unload")
    with frozen(home.daemon.wake("narrow")):
        answer = ask(home.daemon, asked("limited"))
    assert (answer.status, answer.json["error"].startswith("step 2 (model narrow): the deadline passed after 0.")) == (504, True)


def test_the_limits_of_a_steps_model_count(home: Home) -> None:
    daemon = home.daemon
    home.reload(CONFIG.replace("request_timeout_ms = 400", ""))
    daemon.call("POST", "/v2/repository/models/narrow/unload")
    with frozen(daemon.wake("narrow")), ExitStack() as connections:
        sent = []
        while not daemon.metric("wakeful_queue_requests", model="narrow"):
            sent.append(connections.enter_context(closing(send(daemon, asked("narrow")))))
            taken = len(sent)
            wait_until(lambda: daemon.metric("wakeful_queue_requests", model="narrow") + begun(daemon) >= taken, "it is taken")  # noqa: B023 - at once
        answer = ask(daemon, asked("limited"))
    assert answer.status == 429
    assert answer.json["error"].startswith("step 2 (model narrow): model narrow has 1 requests waiting")
    assert daemon.metric("wakeful_requests_total", model="narrow", protocol="pipeline", outcome="overloaded") == 1


def begun(daemon: Daemon) -> float:
    return daemon.metric("wakeful_batch_rows_count", model="narrow")


def test_pipelines_come_change_and_go(home: Home) -> None:
    daemon = home.daemon
    assert ask(daemon, asked("new")).status == 404
    new = '\n[[pipelines]]\nid = "new"\nsteps = [{{ model = "{}" }}]\n'
    home.reload(CONFIG + new.format("a"))
    assert ask(daemon, asked("new")).output("y") == [1] * 4
    home.reload(CONFIG + new.format("other"))
    daemon.wait_event("config", "new", text="its settings have changed: steps")
    assert ask(daemon, oip("new", tensor("x", [1, 2], [1, 2]))).output("y") == [-1, -2]
    home.reload(CONFIG)
    daemon.wait_event("config", "new", text="removed")
    assert ask(daemon, asked("new")).status == 404


def test_a_pipeline_of_a_model_that_is_not_there_any_more(home: Home) -> None:
    """A wrong configuration changes nothing; a file that is gone is told."""
    daemon = home.daemon
    onnx_models.ident(home.directory / "fleeting.onnx")
    home.reload(CONFIG + '\n[[pipelines]]\nid = "brief"\nsteps = [{ model = "fleeting" }]\n')
    assert ask(daemon, asked("brief")).status == 200
    (home.directory / "fleeting.onnx").unlink()
    home.reload(CONFIG + '\n[[pipelines]]\nid = "brief"\nsteps = [{ model = "fleeting" }]\n', "nothing has changed")
    assert any("no model is called `fleeting`" in event["text"] for event in daemon.events(kind="config"))
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    answer = ask(daemon, asked("brief"))
    assert (answer.status, answer.json["error"]) == (503, "step 1 (model fleeting): no model is called 'fleeting'")
    assert daemon.call("GET", "/v2/models/brief/ready")[0] == 503


def test_a_file_that_takes_a_pipelines_name_is_passed_over(home: Home) -> None:
    onnx_models.negative(home.directory / "limited.onnx")
    assert home.daemon.call("POST", "/v1/models/refresh")[0] == 200
    home.daemon.wait_event("config", text='limited.onnx is passed over: the id "limited" is taken by a pipeline')
    assert [row["id"] for row in home.daemon.call("GET", "/v1/models")[1]].count("limited") == 1
    (home.directory / "limited.onnx").unlink()


def test_a_model_that_becomes_another_one(home: Home) -> None:
    """The plan follows the files."""
    daemon = home.daemon
    home.reload(CONFIG + '\n[[pipelines]]\nid = "p"\nsteps = [{ model = "b" }]\n')
    assert ask(daemon, asked("p")).output("y") == [1] * 4
    onnx_models.negative(home.directory / "b.onnx")
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    assert ask(daemon, oip("p", tensor("x", [1, 2], [1, 2]))).output("y") == [-1, -2]


def test_no_upload_takes_a_pipelines_name(home: Home) -> None:
    file = (home.directory / "a.onnx").read_bytes()
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="limited.onnx"\r\n\r\n%b\r\n--b--\r\n' % file
    status, body = home.daemon.call("POST", "/v1/models/upload", form, {"Content-Type": "multipart/form-data; boundary=b"})
    assert (status, body["error"]) == (409, "limited is a pipeline, so no model can have this name")
    assert not (home.directory / "limited.onnx").exists()
