"""The edge of a real daemon: names, clients that leave, and the end."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, frozen, running, wait_until
from tests.frontends.http.stage import Client, get, pattern, post, serving
from wakeful.engine import Engine
from wakeful.frontends.http.connection import CONTINUE
from wakeful.frontends.http.infer import DECODED_HERE, ENCODED_HERE
from wakeful.frontends.http.routes import Router, table
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.registry import Registry
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import Metrics

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"

[[models]]
id = "single"
path = "ident.onnx"
batching = "off"
max_replicas = 1
"""
ASKED = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
REQUEST = post("/v2/models/single/infer", ASKED)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("edge") / "models"
    directory.mkdir()
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.ident(directory.parent / "outside.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def connect(daemon: Daemon) -> Client:
    return Client(socket.create_connection((daemon.host, daemon.port)))


@pytest.mark.parametrize(
    "name",
    [
        "..", "../outside", "../outside.onnx", "../nothing", "%2e%2e%2foutside", "..%2foutside", "%252e%252e%252foutside", "/etc/passwd",
        "%2Fetc%2Fpasswd", "./single", "single.onnx", "ident", "ident.onnx", "SINGLE", "a/b", "x" * 300, "%00", "single%00",
        "a%0d%0aX:%20y",
        "file:%2F%2F%2Fetc%2Fpasswd", "http:%2F%2F169.254.169.254", "%20single", "versions", "single/versions/../1",
    ],
)
def test_a_name_is_only_a_name(daemon: Daemon, name: str) -> None:
    """C50: the same 404 in the same words, whether or not a file of that name exists, and nothing is opened."""
    calls = [
        ("POST", f"/v2/models/{name}/infer", ASKED), ("GET", f"/v2/models/{name}/ready", None), ("GET", f"/v2/models/{name}", None),
        ("GET", f"/v2/models/{name}/config", None), ("POST", f"/v2/repository/models/{name}/load", None),
        ("POST", f"/v2/repository/models/{name}/unload", None), ("GET", f"/v2/models/{name}/stats", None),
        ("POST", f"/v2/models/{name}/versions/1/infer", ASKED), ("POST", f"/v1/models/{name}/infer", ASKED),
        *(("POST", f"/v1/models/{name}/{verb}", None) for verb in ("load", "unload", "pin", "unpin")),
    ]
    before = len(daemon.events())
    for method, path, body in calls:
        status, answer = daemon.call(method, path, body)
        assert status == 404, (path, answer)
        assert answer["error"].startswith(("no model is called ", "model single has no version"))
        assert "onnx" not in answer["error"].replace(repr(name), "").replace(name, "")
    assert len(daemon.events()) == before


def test_clients_that_leave_leave_nothing(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v1/models/single/load")[0] == 200
    beginnings = [b"", b"GET", REQUEST[:-1], REQUEST, post("/v2/models/single/infer", pattern(1 << 20))[:-1], get("/metrics"), b"\0\r\n\r\n"]
    for reset in (False, True):
        for beginning in beginnings * 10:
            client = connect(daemon)
            client.send(beginning)
            client.close(reset)
    wait_until(lambda: not daemon.connections(), "all of them are closed")
    assert daemon.call("GET", "/health/ready")[0] == 200


@pytest.mark.parametrize("reset", [False, True])
def test_who_has_left_costs_no_run(daemon: Daemon, reset: bool) -> None:
    """C06: the replica is frozen. What runs has begun, and of those behind it one client closes its connection, in good manner or not."""
    assert daemon.infer("single", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    left = daemon.metric("wakeful_requests_total", model="single", outcome="left")
    [replica] = daemon.replicas()
    wait_until(lambda: not daemon.connections(), "nobody is connected")
    with frozen(replica):
        clients = [connect(daemon) for _ in range(5)]
        for client in clients:
            client.send(REQUEST)
        port = clients[-1].sock.getsockname()[1]
        wait_until(lambda: port in daemon.connections(), "all are connected")
        inode = daemon.connections()[port]
        assert daemon.call("GET", "/health/live")[0] == 200  # it came later, so what the others sent has been read
        clients[-1].close(reset)
        wait_until(lambda: inode not in daemon.sockets(), "the daemon knows that one has left")
    for client in clients[:-1]:
        assert client.receive()[0] == 200
        client.close()
    wait_until(lambda: daemon.metric("wakeful_requests_total", model="single", outcome="left") == left + 1, "it is counted as left")


def test_nothing_is_executed_for_bad_callers_that_was_not_running(daemon: Daemon) -> None:
    """C06: the replica is frozen with two runs in its hands. Behind them wait some who hang up, some whose time is up, one who stalls in mid-body,
    one who sends ten requests ahead and leaves, and one who stays: of all these only the last costs a run, and nothing of them is left."""
    def counted(name: str, **labels: str) -> float:
        return daemon.metric(name, model="single", **labels)

    assert daemon.infer("single", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: not daemon.connections(), "nobody is connected")
    rows, left = counted("wakeful_batch_rows_sum"), counted("wakeful_requests_total", outcome="left")
    hasty = post("/v2/models/single/infer", ASKED[:-1] + b',"parameters":{"timeout":1000}}')
    [replica] = daemon.replicas()
    with frozen(replica):
        running = [connect(daemon) for _ in range(2)]
        for client in running:
            client.send(REQUEST)
        wait_until(lambda: counted("wakeful_batch_rows_sum") == rows + 2, "two runs are handed over")
        gone, in_a_hurry, stalled, ahead, stays = ([connect(daemon) for _ in range(count)] for count in (5, 3, 1, 1, 1))
        for clients, sent in ((gone, REQUEST), (in_a_hurry, hasty), (stalled, REQUEST[:-1]), (ahead, REQUEST * 10), (stays, REQUEST)):
            for client in clients:
                client.send(sent)
        assert {client.receive()[0] for client in in_a_hurry} <= {429, 504}, "its time is up, or it is foreseen to be"
        wait_until(lambda: counted("wakeful_queue_requests") == 5 + 1 + 1, "the others wait, of those sent ahead the first")
        bad = [*gone, *stalled, *ahead]
        mine = [daemon.connections()[client.sock.getsockname()[1]] for client in bad]
        for client in bad:
            client.close(reset=True)
        wait_until(lambda: not daemon.sockets().intersection(mine), "the daemon knows that they have left")
    for client in [*running, *stays]:
        assert client.receive()[0] == 200
        client.close()
    for client in in_a_hurry:
        client.close()
    wait_until(lambda: counted("wakeful_requests_total", outcome="left") == left + 5 + 1, "they are counted as left")
    assert counted("wakeful_batch_rows_sum") == rows + 2 + 1
    assert counted("wakeful_queue_requests") == 0
    wait_until(lambda: not daemon.connections(), "no connection is left")


def test_who_reads_slowly_holds_up_nobody_and_costs_one_run_at_a_time(daemon: Daemon) -> None:
    """Four requests sent at once by a client that takes no answer: the second waits until the first answer is taken, others are served."""
    count = 600_000  # more than the system's buffers hold
    tensor = {"name": "x", "shape": [count, 4], "datatype": "FP32", "data": [0.5] * 4 * count}
    large = post("/v2/models/single/infer", json.dumps({"inputs": [tensor]}).encode())
    ok = daemon.metric("wakeful_requests_total", model="single", outcome="ok")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((daemon.host, daemon.port))
    slow = Client(sock)
    slow.send(large + REQUEST * 3)
    wait_until(lambda: daemon.metric("wakeful_requests_total", model="single", outcome="ok") == ok + 1, "the first is answered")
    for _ in range(5):
        assert daemon.infer("single", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert daemon.metric("wakeful_requests_total", model="single", outcome="ok") == ok + 1 + 5
    slow.close(reset=True)
    wait_until(lambda: not daemon.connections(), "no connection is left")
    assert daemon.metric("wakeful_requests_total", model="single", outcome="ok") == ok + 1 + 5
    assert daemon.metric("wakeful_queue_requests", model="single") == 0


def test_a_half_closed_client_gets_its_answer(daemon: Daemon) -> None:
    client = connect(daemon)
    client.send(REQUEST)
    client.finish()
    answer = client.rest().replace(CONTINUE, b"")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'"data":[1.0,2.0,3.0,4.0]}]}')
    client.close()


def test_a_large_body_is_decoded_and_its_answer_encoded_elsewhere_in_its_turn(daemon: Daemon) -> None:
    rows = 75_000
    asked = {"inputs": [{"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [0.5] * 4 * rows}]}
    large = json.dumps(asked).encode()
    assert len(large) > DECODED_HERE
    assert 4 * 4 * rows > ENCODED_HERE
    refused = daemon.metric("wakeful_requests_total", model="single", protocol="oip", outcome="invalid_input")
    client = connect(daemon)
    client.send(post("/v2/models/single/infer", large) + post("/v2/models/single/infer", large[:-1]) + get("/health/live"))
    status, _, body = client.receive()
    assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [0.5] * 4 * rows)
    assert client.receive()[0] == 400
    assert client.receive()[2] == b'{"status":"live"}'
    client.close()
    assert daemon.metric("wakeful_requests_total", model="single", protocol="oip", outcome="invalid_input") == refused + 1


def test_work_that_comes_when_it_drains_surely_did_not_start() -> None:
    async def nothing(*_: object) -> None:
        raise AssertionError

    engine = Engine(Registry(), Pipelines(nothing, Events()), None, Metrics(), Events(), nothing, nothing)  # type: ignore[arg-type]  # no model, so no memory either
    engine.condition.draining = True
    with serving(find=Router(table(engine, lambda _: None)).find) as stage:
        client = stage.connect()
        for path in ("/v2/models/single/infer", "/v1/models/single/infer"):
            status, headers, body = client.ask(post(path, ASKED))
            assert (status, headers["x-wakeful-unstarted"], headers["retry-after"]) == (503, "1", "1")
            assert json.loads(body) == {"error": "the server is stopping"}
        assert client.ask(get("/v2/health/ready"))[0] == 503
        assert client.ask(get("/health/live"))[0] == 200
        client.close()


def test_the_end(tmp_path: Path) -> None:
    """Idle connections are closed, new ones refused; what is on its way is received and answered."""
    with running(tmp_path, "--demo", "--no-grpc") as daemon:
        assert daemon.call("POST", "/v1/models/demo-model/load")[0] == 200
        idle, under_way = connect(daemon), connect(daemon)
        assert idle.ask(get("/health/ready"))[0] == 200
        asked = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
        request = post("/v2/models/demo-model/infer", json.dumps(asked).encode())
        under_way.send(request[:-1])
        assert daemon.call("GET", "/health/live")[0] == 200
        daemon.process.send_signal(signal.SIGTERM)
        assert idle.rest() == b""
        with pytest.raises(OSError, match=r"refused|reset"):
            socket.create_connection((daemon.host, daemon.port))
        status, headers, body = under_way.ask(request[-1:])
        assert (status, headers["connection"]) == (200, "close")
        assert json.loads(body)["model_name"] == "demo-model"
        assert daemon.process.wait(30) == 0
        for client in (idle, under_way):
            client.close()
