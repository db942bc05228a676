"""Pipelines on a real daemon: what a pipeline answers is what its models answer by hand, whatever happens on the way."""

import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests import onnx_models
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import Question, ask, binary, declared, oip, receive, send, tensor
from wakeful.tensors import encode_strings

CONFIG = """
[defaults]
prepare = "off"
max_replicas = 1
idle_timeout_secs = 0

[[pipelines]]
id = "tenfold"
steps = [{ model = "parse" }, { name = "lookup", model = "gather10" }, { model = "spell", outputs = { text = "answer" } }]

[[pipelines]]
id = "diamond"
outputs = ["y", "p"]
steps = [
    { model = "two_inputs", inputs = { a = "left", b = "right" } },
    { model = "negative", inputs = { x = "p" }, outputs = { y = "left" } },
    { model = "negative", inputs = { x = "q" }, outputs = { y = "right" } },
    { model = "fork" },
]

[[pipelines]]
id = "chain"
steps = [
    { model = "first", outputs = { y = "a" } },
    { model = "second", inputs = { x = "a" }, outputs = { y = "b" } },
    { model = "third", inputs = { x = "b" } },
]

[[pipelines]]
id = "nested"
steps = [{ model = "chain", outputs = { y = "c" } }, { name = "last", model = "ident", inputs = { x = "c" } }]

[[pipelines]]
id = "misfit"
steps = [{ model = "ident", outputs = { y = "text" } }, { model = "parse" }]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("pipelines")
    for make in (
        onnx_models.parse, onnx_models.gather10, onnx_models.spell, onnx_models.two_inputs, onnx_models.negative, onnx_models.fork, onnx_models.ident,
    ):
        make(home / f"{make.__name__}.onnx")
    for name in ("first", "second", "third"):
        onnx_models.ident(home / f"{name}.onnx")
    (home / "models.toml").write_text(CONFIG)
    with running(home / "d", "--models-dir", str(home)) as daemon:
        yield daemon


def tenfold(*texts: str) -> Question:
    return oip("tenfold", tensor("text", [len(texts)], texts, "BYTES"))


def chain(number: float, rows: int = 1, **more: object) -> Question:
    return oip("chain", tensor("x", [rows, 4], [number] * rows * 4), **more)


def by_hand(daemon: Daemon, texts: list[str]) -> list[str]:
    i = ask(daemon, oip("parse", tensor("text", [len(texts)], texts, "BYTES"))).output("i")
    y = ask(daemon, oip("gather10", tensor("i", [len(texts)], i, "INT64"))).output("y")
    return ask(daemon, oip("spell", tensor("y", [len(texts)], y))).output("text")


def rows(daemon: Daemon, model: str) -> float:
    return daemon.metric("wakeful_batch_rows_sum", model=model)


def runs(daemon: Daemon, model: str) -> float:
    return daemon.metric("wakeful_batch_rows_count", model=model)


def test_a_chain_answers_as_its_models_do(daemon: Daemon) -> None:
    texts = ["1", "7", "-2"]
    assert ask(daemon, tenfold(*texts)).output("answer") == by_hand(daemon, texts) == ["10", "70", "80"]


def test_binary_data_too(daemon: Daemon) -> None:
    texts = [b"3", b"0"]
    answer = ask(daemon, binary("tenfold", [declared("text", "BYTES", 2)], [encode_strings(texts)]))
    assert answer.status == 200
    assert answer.body[answer.json_length :] == encode_strings([b"30", b"0"])


def test_both_dialects_give_the_same(daemon: Daemon) -> None:
    answer = ask(daemon, chain(2.5, rows=2))
    question = {"inputs": [{"name": "x", "shape": [2, 4], "data": [2.5] * 8}]}
    status, body = daemon.call("POST", "/v1/models/chain/infer", question)
    assert status == 200
    assert body["outputs"][0]["data"] == answer.output("y") == [2.5] * 8


def test_numbers_are_cast_to_what_the_first_step_takes(daemon: Daemon) -> None:
    """SnoozeML's clients know float32 only, and strings cannot be carried."""
    status, body = daemon.call("POST", "/v1/models/tenfold/infer", {"inputs": [{"name": "text", "shape": [1], "data": [1]}]})
    assert (status, "BYTES" in str(body)) == (400, True)


def test_a_diamond_in_any_order_of_writing(daemon: Daemon) -> None:
    x = [1.0, 2.0, 3.0, -4.0]
    answer = ask(daemon, oip("diamond", tensor("x", [2, 2], x)))
    assert answer.output("y") == [-(v + v) - -(v * v) for v in x]
    assert [output["name"] for output in answer.json["outputs"]] == ["y", "p"]
    wanted = ask(daemon, oip("diamond", tensor("x", [1, 2], [1, 2]), outputs=[{"name": "p"}]))
    assert wanted.output() == [2.0, 4.0]


def test_more_rows_than_a_run_takes(daemon: Daemon) -> None:
    """Each step is cut into parts and rejoined."""
    numbers = [float(number) for number in range(4 * 200)]
    assert ask(daemon, oip("chain", tensor("x", [200, 4], numbers))).output("y") == numbers


def test_a_pipeline_in_a_pipeline(daemon: Daemon) -> None:
    assert ask(daemon, oip("nested", tensor("x", [1, 4], [1, 2, 3, 4]))).output("y") == [1, 2, 3, 4]


def test_what_it_takes_and_gives(daemon: Daemon) -> None:
    status, shown = daemon.call("GET", "/v2/models/tenfold")
    assert (status, shown["platform"], shown["versions"]) == (200, "ensemble", ["1"])
    assert shown["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert shown["outputs"] == [{"name": "answer", "datatype": "BYTES", "shape": [-1]}]
    steps = daemon.call("GET", "/v2/models/tenfold/config")[1]["ensemble_scheduling"]["step"]
    assert steps[2] == {"model_name": "spell", "model_version": -1, "input_map": {"y": "y"}, "output_map": {"text": "answer"}}
    assert daemon.call("GET", "/v2/models/tenfold/versions/2")[0] == 404


@pytest.mark.parametrize(("texts", "said"), [
    (["99"], "step lookup (model gather10): "), (["one"], "step 1 (model parse): "),
])
def test_an_error_names_the_step(texts: list[str], said: str, daemon: Daemon) -> None:
    answer = ask(daemon, tenfold(*texts))
    assert answer.status >= 400
    assert answer.json["error"].startswith(said)


def test_bad_input_is_refused_at_the_door(daemon: Daemon) -> None:
    before = runs(daemon, "parse")
    answer = ask(daemon, oip("tenfold", tensor("txt", [1], ["1"], "BYTES")))
    assert (answer.status, answer.json["error"]) == (400, "inputs: expected names among ['text'], got 'txt'")
    answer = ask(daemon, oip("tenfold", tensor("text", [1], [1], "INT64")))
    assert (answer.status, answer.json["error"]) == (400, "input text: datatype: expected BYTES, got INT64")
    answer = ask(daemon, oip("tenfold", tensor("text", [1], ["1"], "BYTES"), outputs=[{"name": "i"}]))
    assert (answer.status, answer.json["error"]) == (400, "outputs: expected names among ['answer'], got 'i'")
    assert runs(daemon, "parse") == before


def test_what_only_the_files_can_tell(daemon: Daemon) -> None:
    said = (
        "pipeline misfit cannot be run: step 2 (model parse): it takes `text` as BYTES[N], and step 1 (model ident) gives FP32[N,4]"
    )
    answer = ask(daemon, oip("misfit", tensor("x", [1, 4], [1, 2, 3, 4])))
    assert (answer.status, answer.json["error"]) == (503, said)
    assert daemon.call("GET", "/v2/models/misfit") == (503, {"error": said})
    assert daemon.wait_event("config", "misfit")["text"] == said


def test_what_a_pipeline_cannot_be_asked(daemon: Daemon) -> None:
    status, body = daemon.call("POST", "/v1/embeddings", {"model": "chain", "input": "a text"})
    assert status == 400
    assert "chain is a pipeline, which can be asked for inference alone" in str(body)


def test_it_is_listed_wherever_models_are(daemon: Daemon) -> None:
    assert "chain" in {row["id"] for row in daemon.call("GET", "/v1/models")[1]}
    assert "chain" in {row["id"] for row in daemon.call("GET", "/openai/v1/models")[1]["data"]}
    assert daemon.call("GET", "/openai/v1/models/chain")[1]["id"] == "chain"
    assert "chain" in {row["name"] for row in daemon.call("GET", "/v2/models/stats")[1]["model_stats"]}


def test_ready_when_all_its_models_are(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v2/repository/models/chain/load")[0] == 200
    assert daemon.call("GET", "/v2/models/chain/ready") == (200, {"name": "chain", "ready": True})
    assert daemon.call("POST", "/v2/repository/models/second/unload")[0] == 200
    status, body = daemon.call("GET", "/v2/models/chain/ready")
    assert (status, body["error"]) == (503, "model chain is waiting for step 2 (model second), which is asleep; a request wakes it")
    rows = {row["name"]: row["state"] for row in daemon.call("POST", "/v2/repository/index")[1]}
    assert (rows["chain"], rows["first"], rows["second"]) == ("UNAVAILABLE", "READY", "UNAVAILABLE")
    assert ask(daemon, chain(1)).status == 200  # which wakes it
    assert daemon.call("GET", "/v2/models/chain/ready")[0] == 200
    assert daemon.call("POST", "/v2/repository/models/chain/unload")[0] == 200
    states = {row["id"]: row["state"] for row in daemon.call("GET", "/v1/models")[1]}
    assert {states[name] for name in ("chain", "first", "second", "third")} == {"idle"}


def test_a_pin_is_its_models_pin(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v1/models/chain/pin")[1]["pinned"]
    assert {row["id"] for row in daemon.call("GET", "/v1/models")[1] if row["pinned"]} == {"chain", "first", "second", "third"}
    assert daemon.call("POST", "/v1/models/chain/unpin")[1]["status"] == "unpinned"
    assert not any(row["pinned"] for row in daemon.call("GET", "/v1/models")[1])


def test_a_request_is_counted_once(daemon: Daemon) -> None:
    ask(daemon, chain(1))
    before = {status: daemon.metric("snoozeml_requests_total", status=status) for status in ("all", "success")}
    own = daemon.metric("wakeful_requests_total", model="chain", protocol="oip", outcome="ok")
    steps = daemon.metric("wakeful_requests_total", model="second", protocol="pipeline", outcome="ok")
    assert ask(daemon, chain(1)).status == 200
    assert {status: daemon.metric("snoozeml_requests_total", status=status) - count for status, count in before.items()} == {"all": 1, "success": 1}
    assert daemon.metric("wakeful_requests_total", model="chain", protocol="oip", outcome="ok") == own + 1
    assert daemon.metric("wakeful_requests_total", model="second", protocol="pipeline", outcome="ok") == steps + 1
    (stats,) = daemon.call("GET", "/v2/models/chain/stats")[1]["model_stats"]
    assert stats["inference_stats"]["success"]["count"] >= 1


def wake_anew(daemon: Daemon, model: str) -> int:
    """The pid of its only replica, which is awake from now on."""
    daemon.call("POST", f"/v2/repository/models/{model}/unload")
    return daemon.wake(model)


def test_a_deadline_in_the_middle(daemon: Daemon) -> None:
    before = runs(daemon, "third")
    with frozen(wake_anew(daemon, "second")):
        answer = ask(daemon, chain(1, parameters={"timeout": 300_000}))
    assert answer.status == 504
    assert answer.json["error"].startswith("step 2 (model second): the deadline passed")
    assert runs(daemon, "third") == before


def test_who_leaves_is_not_served_further(daemon: Daemon) -> None:
    pid = wake_anew(daemon, "second")
    second, third = runs(daemon, "second"), runs(daemon, "third")
    left = daemon.metric("wakeful_requests_total", model="chain", protocol="oip", outcome="left")
    with frozen(pid):
        with closing(send(daemon, chain(1))) as connection:
            port = connection.sock.getsockname()[1]
            wait_until(lambda: runs(daemon, "second") == second + 1, "its second step runs")
            theirs = daemon.connections()[port]
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: theirs not in daemon.sockets(), "it is seen that the caller has left")
    wait_until(lambda: daemon.metric("wakeful_requests_total", model="chain", protocol="oip", outcome="left") == left + 1, "it is settled")
    assert runs(daemon, "third") == third


def test_a_replica_dies_in_the_middle(daemon: Daemon) -> None:
    pid = wake_anew(daemon, "second")
    before = runs(daemon, "second")
    with frozen(pid), closing(send(daemon, chain(6))) as connection:
        wait_until(lambda: runs(daemon, "second") == before + 1, "its second step runs")
        os.kill(pid, signal.SIGKILL)
        answer = receive(connection)
    assert answer.output("y") == [6] * 4


def test_steps_of_many_callers_share_runs(daemon: Daemon) -> None:
    for name in ("second", "third"):
        daemon.call("POST", f"/v2/repository/models/{name}/load")  # until its batching is decided
    pid = wake_anew(daemon, "first")
    before = {name: (runs(daemon, name), rows(daemon, name)) for name in ("first", "second", "third")}
    with ExitStack() as connections:
        with frozen(pid):
            asked = [connections.enter_context(closing(send(daemon, chain(number)))) for number in range(200)]
            taken = before["first"][1] + len(asked)
            wait_until(lambda: daemon.metric("wakeful_queue_requests", model="first") + rows(daemon, "first") == taken, "all have been taken")
        assert [receive(connection).output("y") for connection in asked] == [[number] * 4 for number in range(200)]
    for name, (count, total) in before.items():
        assert rows(daemon, name) - total == len(asked)
        assert runs(daemon, name) - count < len(asked) / 4
