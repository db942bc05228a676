"""SnoozeML's unmodified Redis client, and bare messages, against a real Redis server and a real daemon."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from snoozeml.exceptions import RuntimeInferenceError
from snoozeml.streams import RedisStreamClient

from tests import onnx_models
from tests.brokers import RedisServer, letter, letters, pending, redis_server, send, tensor
from tests.daemon import Daemon, running, wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)
CONFIG = """
[server]
max_body = "64KiB"

[[streams]]
name = "json"
endpoint = "{endpoint}"
model_id = "ident"

[[streams]]
name = "open"
endpoint = "{endpoint}"
input_topic = "open.in"
output_topic = "open.out"
error_topic = "open.dead"

[[streams]]
name = "protobuf"
endpoint = "{endpoint}"
input_topic = "proto.in"
output_topic = "proto.out"
error_topic = "proto.dead"
model_id = "ident"
format = "protobuf"

[[streams]]
name = "locked"
endpoint_env = "LOCKED"
input_topic = "locked.in"
output_topic = "locked.out"
model_id = "ident"
"""
PASSWORD = "hush-hush-hush"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "locked", "on", f">{PASSWORD}", "~locked.*", "~snooze.dlq", "+@all")
        yield client


@pytest.fixture(scope="module")
def daemon(server: RedisServer, broker: "redis.Redis", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("daemon")
    models = directory / "models"
    models.mkdir()
    for make in (onnx_models.ident, onnx_models.two_inputs, onnx_models.gather10, onnx_models.strid, onnx_models.log):
        make(models / f"{make.__name__}.onnx")
    (models / "models.toml").write_text(CONFIG.format(endpoint=server.endpoint))
    with running(directory, "--models-dir", str(models), env={"LOCKED": server.secure_endpoint(f"locked:{PASSWORD}")}) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon, server: RedisServer) -> RedisStreamClient:
    return RedisStreamClient(server.endpoint)


# ── SnoozeML's client ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_infer(client: RedisStreamClient) -> None:
    answer = client.infer({"x": ROW})
    assert answer.model_id == "ident"
    assert answer.duration_ms > 0
    assert np.array_equal(answer["y"], ROW)


def test_a_message_may_name_its_model_and_where_to_answer(client: RedisStreamClient, broker: "redis.Redis") -> None:
    answer = client.infer({"a": ROW[:, :2], "b": ROW[:, 2:]}, model_id="two_inputs", reply_to="answers:{me}")
    assert np.array_equal(answer["y"], [[-2, -2]])
    assert len(letters(broker, "answers:{me}")) == 1


def test_inputs_are_cast_to_what_the_model_takes(client: RedisStreamClient) -> None:
    assert np.array_equal(client.infer({"i": np.array([3], np.float32)}, model_id="gather10", reply_to="cast")["y"], [30])


def test_nan_comes_back_as_nan(client: RedisStreamClient) -> None:
    answer = client.infer({"x": np.array([-1], np.float32)}, model_id="log", reply_to="nan")["y"]
    assert np.isnan(answer).all()


def test_an_error_is_told_to_the_client_and_to_the_dead_letters(client: RedisStreamClient, broker: "redis.Redis") -> None:
    with pytest.raises(RuntimeInferenceError, match=r"expected names among \['x'\]"):
        client.infer({"z": ROW}, reply_to="errors")
    (told,) = letters(broker, "errors")
    assert (told["model_id"], told["status"], told["code"]) == ("ident", "error", "invalid_input")
    assert letter(broker, "snooze.dlq", told["id"]) == told


def test_many_at_once(client: RedisStreamClient) -> None:
    sent = [client.publish_request({"x": ROW + number}, request_id=f"many-{number}", reply_to="many")[0] for number in range(200)]
    for number, id in enumerate(sent):
        assert np.array_equal(client.wait_for_response(id, topic="many").get_numpy("y"), ROW + number)


def test_a_password_goes_over_an_encrypted_way_and_into_no_line(daemon: Daemon, server: RedisServer, broker: "redis.Redis") -> None:
    client = RedisStreamClient(server.endpoint, input_topic="locked.in", output_topic="locked.out")
    assert np.array_equal(client.infer({"x": ROW})["y"], ROW)
    assert "hush" not in daemon.log + str(daemon.events())
    for pid in daemon.children():
        assert b"LOCKED=" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_protobuf(daemon: Daemon, server: RedisServer, broker: "redis.Redis") -> None:
    """NaN travels too. The id stands beside the answer, which has no room for it."""
    client = RedisStreamClient(server.endpoint, input_topic="proto.in", output_topic="proto.out", format="protobuf")
    values = np.array([[np.nan, 0.1, -np.inf, 3]], np.float32)
    answer = client.infer({"x": values})
    assert answer.model_id == "ident"
    assert np.array_equal(answer["y"], values, equal_nan=True)
    answer = client.infer({"i": np.array([3], np.float32)}, model_id="gather10", reply_to="proto.mine")
    assert np.array_equal(answer["y"], [30])
    id, _ = client.publish_request({"x": values}, request_id="beside", reply_to="proto.beside")
    client.wait_for_response(id, topic="proto.beside")
    entries: Any = broker.xrange("proto.beside")
    assert entries[0][1][b"id"] == b"beside"


def test_errors_of_protobuf_are_json_and_go_to_the_dead_letters_alone(daemon: Daemon, server: RedisServer, broker: "redis.Redis") -> None:
    client = RedisStreamClient(server.endpoint, input_topic="proto.in", output_topic="proto.out", format="protobuf")
    client.publish_request({"z": ROW}, request_id="wrong", reply_to="proto.silent")
    assert "expected names among ['x']" in letter(broker, "proto.dead", "wrong")["error"]
    send(broker, "proto.in", b"no protobuf")
    assert "no snoozeml.v1.ModelInferRequest" in letter(broker, "proto.dead", "unknown")["error"]
    wait_until(lambda: pending(broker, "proto.in") == 0, "both are acknowledged")
    assert not broker.exists("proto.silent")


# ── bare messages ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_data_may_be_nested_without_a_shape_and_an_id_a_number(daemon: Daemon, broker: "redis.Redis") -> None:
    send(broker, "open.in", {"id": 7, "model_id": "ident", "inputs": [tensor([[1, 2, 3, 4], [5, 6, 7, 8]])]})
    answer = letter(broker, "open.out", "7")
    assert answer["status"] == "success"
    assert answer["outputs"] == [{"name": "y", "shape": [2, 4], "data": [1, 2, 3, 4, 5, 6, 7, 8]}]


@pytest.mark.parametrize("field", ["data", "anything"])
def test_the_payload_may_have_another_name(field: str, daemon: Daemon, broker: "redis.Redis") -> None:
    broker.xadd("open.in", {field: json.dumps({"id": field, "model_id": "ident", "inputs": [tensor([1, 2, 3, 4], shape=[1, 4])]})})
    assert letter(broker, "open.out", field)["status"] == "success"


def test_a_message_without_an_id_is_answered_under_one(daemon: Daemon, broker: "redis.Redis") -> None:
    send(broker, "open.in", {"model_id": "ident", "inputs": [tensor([[1, 2, 3, 4]])], "reply_to": "nameless"})
    wait_until(lambda: letters(broker, "nameless"), "it is answered")
    assert len(letters(broker, "nameless")[0]["id"]) == 32


WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no model": ({"inputs": [tensor([1])]}, "unrouted", "invalid_input", "names no model"),
    "another": ({"model_id": "nobody", "inputs": [tensor([1])]}, "nobody", "not_found", "nobody"),
    "no inputs": ({"model_id": "ident", "inputs": []}, "ident", "invalid_input", "inputs: "),
    "short": ({"model_id": "ident", "inputs": [tensor([1, 2], shape=[1, 4])]}, "ident", "invalid_input", "inputs[0].data: expected 4 elements"),
    "ragged": ({"model_id": "ident", "inputs": [tensor([[1, 2], [3]])]}, "ident", "invalid_input", "inputs[0].data: expected 2 elements along"),
    "scalar": ({"model_id": "ident", "inputs": [tensor(1)]}, "ident", "invalid_input", "inputs[0].data: expected an array of"),
    "text": ({"model_id": "ident", "inputs": [tensor(["a"])]}, "ident", "invalid_input", "inputs[0].data"),
    "strings": ({"model_id": "strid", "inputs": [tensor([1])]}, "strid", "invalid_input", "x"),
    "beyond": ({"model_id": "gather10", "inputs": [tensor([99], name="i")]}, "gather10", "invalid_input", "indices"),
    "a loop": ({"model_id": "ident", "inputs": [tensor([[1, 2, 3, 4]])], "reply_to": "open.in"}, "ident", "invalid_input", "reply_to"),
}


@pytest.mark.parametrize("id", WRONG)
def test_what_is_wrong_with_a_message_is_told_under_its_id(id: str, daemon: Daemon, broker: "redis.Redis") -> None:
    body, model, code, words = WRONG[id]
    target = "open.told"
    send(broker, "open.in", {"id": id, "reply_to": target, **body})
    told = letter(broker, "open.dead", id)
    assert (told["model_id"], told["status"], told["code"]) == (model, "error", code)
    assert words in told["error"]
    if "reply_to" not in body:
        assert letter(broker, target, id) == told


@pytest.mark.parametrize("target", ["two words", "x" * 256, "new\nline", "é"])
def test_a_target_that_cannot_be_right_is_answered_to_all(target: str, daemon: Daemon, broker: "redis.Redis") -> None:
    id = f"target {target[:3]}"
    send(broker, "open.in", {"id": id, "model_id": "ident", "inputs": [tensor([[1, 2, 3, 4]])], "reply_to": target})
    assert "reply_to: expected 1 to 255 letters" in letter(broker, "open.out", id.strip())["error"]
    assert not broker.exists(target)


def test_a_target_that_redis_refuses_is_a_dead_letter_and_stops_nothing(daemon: Daemon, broker: "redis.Redis") -> None:
    broker.set("a-text", "not a stream")
    send(broker, "open.in", {"id": "refused", "model_id": "ident", "inputs": [tensor([[1, 2, 3, 4]])], "reply_to": "a-text"})
    told = letter(broker, "open.dead", "refused")
    assert "nothing can be published to a-text: WRONGTYPE" in told["error"]
    assert told["model_id"] == "ident"
    assert broker.get("a-text") == b"not a stream"


@pytest.mark.parametrize(("payload", "words"), [
    (b"no JSON", "JSON is malformed"),
    (b"\xff", "request"),
    (b'["a", "list"]', "expected `object`"),
    (b'{"id": "without inputs"}', "missing required field `inputs`"),
    (b" " * 70_000, "over the limit of 64 KiB (max_body)"),
], ids=["text", "bytes", "list", "empty", "large"])
def test_what_cannot_be_read_is_unknown(payload: bytes, words: str, daemon: Daemon, broker: "redis.Redis") -> None:
    before = len(letters(broker, "open.dead"))
    send(broker, "open.in", payload)
    wait_until(lambda: len(letters(broker, "open.dead")) > before, "it is a dead letter")
    told = letters(broker, "open.dead")[-1]
    assert (told["id"], told["model_id"]) == ("unknown", "unknown")
    assert words in told["error"]
    wait_until(lambda: told in letters(broker, "open.out"), "it is told there too")


def test_everything_is_acknowledged_in_the_end(daemon: Daemon, broker: "redis.Redis") -> None:
    for topic in ("snooze.requests", "open.in"):
        wait_until(lambda topic=topic: pending(broker, topic) == 0, "nothing is pending")
    lag = {group["name"]: group["lag"] for group in _groups(broker, "open.in")}
    assert lag == {b"snoozeml-group": 0}


def _groups(broker: "redis.Redis", topic: str) -> Any:
    return broker.xinfo_groups(topic)


def test_counted(daemon: Daemon, broker: "redis.Redis") -> None:
    """By stream, for SnoozeML's client together, and as requests."""
    before = {name: daemon.metric(f"snoozeml_stream_{name}_total") for name in ("messages_consumed", "messages_published", "errors")}
    own = daemon.metric("wakeful_stream_consumed_total", stream="open")
    requests = daemon.metric("wakeful_requests_total", model="ident", protocol="stream", outcome="ok")
    unknown = daemon.metric("wakeful_requests_total", model="", protocol="stream", outcome="invalid_input")
    send(broker, "open.in", {"id": "counted", "model_id": "ident", "inputs": [tensor([[1, 2, 3, 4]])]})
    send(broker, "open.in", {"id": "counted too"})
    letter(broker, "open.out", "counted")
    wait_until(lambda: daemon.metric("snoozeml_stream_messages_published_total") == before["messages_published"] + 3, "all three are counted")
    assert daemon.metric("snoozeml_stream_messages_consumed_total") == before["messages_consumed"] + 2
    assert daemon.metric("snoozeml_stream_errors_total") == before["errors"] + 1
    assert daemon.metric("wakeful_stream_consumed_total", stream="open") == own + 2
    assert daemon.metric("wakeful_stream_connected", stream="open") == 1
    assert daemon.metric("wakeful_stream_errors_total", stream="open", code="invalid_input") > 0
    assert daemon.metric("wakeful_requests_total", model="ident", protocol="stream", outcome="ok") == requests + 1
    assert daemon.metric("wakeful_requests_total", model="", protocol="stream", outcome="invalid_input") == unknown + 1
    wait_until(lambda: daemon.metric("wakeful_stream_in_flight", stream="open") == 0, "nothing is in hand")
