"""A real daemon with its agent, and a controller that says what the test says."""

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.cluster.agent.controller import Controller, controlling, pod, wanted
from tests.daemon import Daemon, frozen, running, wait_until
from wakeful.cluster.wire import Desired, DrainAsked, Hello, Released, Report, Wanted

DATA = [1.0, 2.0, 3.0, 4.0]


def infer(daemon: Daemon, name: str) -> tuple[int, Any]:
    return daemon.infer(name, "x", DATA, [1, 4])


def answer(daemon: Daemon, name: str = "doubler") -> tuple[int, object]:
    status, body = infer(daemon, name)
    return status, body["outputs"][0]["data"] if status == 200 else body


def test_what_is_wanted_is_served_and_what_is_not_is_not(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling() as controller, pod(tmp_path / "pod", controller) as daemon:
        controller.wait(lambda: controller.of(Hello), "the agent has said hello")
        [hello] = controller.of(Hello)
        assert (hello.pod, hello.uid, hello.server, hello.http_port) == ("triton-0", "uid-0", "triton", daemon.port)
        assert "onnx" in hello.capabilities
        assert hello.capacity > 0
        assert hello.held == {}
        controller.want(doubler=wanted(model, serving={"max_batch_size": 7, "description": "twice"}))
        held = controller.wait_state("doubler", "ready", "r1")
        assert held.artifact.startswith("sha256:")
        assert held.artifact_bytes == model.stat().st_size
        assert answer(daemon) == (200, [2.0, 4.0, 6.0, 8.0])
        assert daemon.call("GET", "/v2/models/doubler/stats")[0] in (200, 404)
        assert [state for _, state, _ in controller.states] == ["loading", "ready"]
        controller.wait(lambda: controller.held["doubler"].footprint > 0, "its footprint is told")
        controller.wait(lambda: controller.use.get("doubler") is not None and controller.use["doubler"].completed == 1, "its use is told")
        controller.want(doubler=wanted(model, finish=True))
        controller.wait_state("doubler", "quiet")
        assert answer(daemon)[0] == 200, "stragglers are served"
        controller.want(doubler=None)
        controller.wait(lambda: "doubler" not in controller.held, "it is gone")
        status, body = infer(daemon, "doubler")
        assert (status, "ask another" in str(body)) == (503, True)
        assert daemon.call("POST", "/v2/models/other/infer", {"inputs": []})[0] == 404


def test_a_model_that_falls_asleep_or_wakes_is_told_at_once(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling() as controller, pod(tmp_path / "pod", controller, WAKEFUL_CLUSTER_STATS_PERIOD_SECS="600") as daemon:
        controller.want(doubler=wanted(model, serving={"idle_timeout_secs": 0.3}))

        def told() -> list[bool]:
            """Whether it sleeps, report by report."""
            mentioned = [report.held["doubler"] for report in controller.of(Report) if "doubler" in report.held]
            return [held.asleep for held in mentioned if held.state == "ready"]

        controller.wait(lambda: True in told(), "it sleeps, and is ready all the same")
        assert answer(daemon)[0] == 200
        controller.wait(lambda: False in told()[told().index(True):], "it is awake")
        assert {state for name, state, _ in controller.states} == {"loading", "ready"}


def test_a_late_caller_of_a_model_that_moved_may_try_elsewhere(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling() as controller, pod(tmp_path / "pod", controller) as daemon:
        controller.want(doubler=wanted(model))
        controller.wait_state("doubler", "ready")
        controller.want(doubler=None)
        controller.wait(lambda: ("doubler", "gone", "") in controller.states, "it is gone")
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": DATA}]}).encode()
        head = b"POST /v2/models/doubler/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        said = raw(daemon, head + body).lower()
        assert b" 503 " in said
        assert b"x-wakeful-unstarted: 1" in said


def raw(daemon: Daemon, request: bytes) -> bytes:
    with socket.create_connection((daemon.host, daemon.port), 30) as connection:
        connection.sendall(request)
        got = b""
        while data := connection.recv(65536):
            got += data
        return got


@pytest.mark.parametrize(("more", "words"), [
    ({"serving": {"max_batch_sise": 7}}, "did you mean `max_batch_size`?"),
    ({"serving": {"max_batch_size": 0}}, "`max_batch_size` must be 1 or more, got 0"),
    ({"serving": {"path": "/etc"}}, "`path` follows from storageUri"),
    ({"storage_uri": "file:///nowhere/m.onnx"}, "/nowhere/m.onnx"),
    ({"backend": "prolog"}, "`backend` must be one of"),
    ({"artifact": "sha256:" + "0" * 64}, "sha256:000"),
])
def test_what_cannot_be_served_says_why(tmp_path: Path, pods: "Pods", more: dict[str, object], words: str) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    controller, _ = pods
    controller.want(bad=Wanted(**{"revision": "r1", "storage_uri": f"file://{model}"} | more))  # type: ignore[arg-type]  # by name
    held = controller.wait_state("bad", "failed", "r1")
    assert words in held.error
    controller.want(bad=None)
    controller.wait(lambda: "bad" not in controller.held, "it is forgotten")


Pods = tuple[Controller, Daemon]


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> object:
    with controlling() as controller, pod(tmp_path_factory.mktemp("pods"), controller) as daemon:
        controller.wait(lambda: controller.of(Hello), "hello")
        yield controller, daemon


def test_a_model_that_does_not_load_is_never_served_and_tried_again_when_it_is_wanted_anew(tmp_path: Path, pods: Pods) -> None:
    controller, daemon = pods
    broken = tmp_path / "m.onnx"
    broken.write_bytes(b"no model")
    controller.want(broken=wanted(broken))
    assert controller.wait_state("broken", "failed").error
    assert infer(daemon, "broken")[0] == 503
    onnx_models.times(broken, 3)
    controller.want(broken=wanted(broken))
    controller.wait_state("broken", "ready")
    assert answer(daemon, "broken") == (200, [3.0, 6.0, 9.0, 12.0])
    controller.want(broken=None)


def test_the_next_revision_is_ready_before_the_last_one_goes(tmp_path: Path, pods: Pods) -> None:
    controller, daemon = pods
    two, three, bad = onnx_models.times(tmp_path / "2.onnx", 2), onnx_models.times(tmp_path / "3.onnx", 3), tmp_path / "4.onnx"
    bad.write_bytes(b"no model")
    controller.want(rolled=wanted(two, "r2"))
    controller.wait_state("rolled", "ready", "r2")
    statuses: set[int] = set()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            statuses.add(answer(daemon, "rolled")[0])

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        controller.want(rolled=wanted(three, "r3"))
        controller.wait_state("rolled", "ready", "r3")
        assert ("rolled", "loading", "r3") in controller.states
        assert answer(daemon, "rolled") == (200, [3.0, 6.0, 9.0, 12.0])
        controller.want(rolled=wanted(bad, "r4"))
        held = controller.wait_state("rolled", "failed", "r4")
        assert held.serves == "r3"
        assert answer(daemon, "rolled") == (200, [3.0, 6.0, 9.0, 12.0])
        controller.want(rolled=wanted(three, "r3"))
        controller.wait_state("rolled", "ready", "r3")
    finally:
        over.set()
        asking.join()
    assert statuses == {200}
    controller.want(rolled=None)


def test_a_restarted_container_serves_what_it_served_without_a_controller(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling() as controller:
        with pod(tmp_path / "pod", controller) as daemon:
            controller.wait(lambda: controller.of(Hello), "hello")
            controller.want(doubler=wanted(model))
            controller.wait_state("doubler", "ready")
            remembered = tmp_path / "pod" / "state" / "desired.msgpack"
            wait_until(lambda: remembered.exists() and b"sha256" in remembered.read_bytes(), "it is written down")
            daemon.stop(signal.SIGKILL)
        controller.stop()
        with pod(tmp_path / "pod", controller) as daemon:
            assert answer(daemon) == (200, [2.0, 4.0, 6.0, 8.0]), "ready means that it is served"


def test_many_models_come_a_few_at_a_time_and_more_of_them_than_fit(tmp_path: Path) -> None:
    """F8. More than may be loaded at once are registered, and those that nobody has asked for go first."""
    count, at_once, fit = 24, 3, 4
    models = {f"m{factor}": onnx_models.times(tmp_path / f"{factor}.onnx", factor) for factor in range(count)}
    with controlling() as controller:
        controller.models = {name: wanted(model) for name, model in models.items()}
        limits = ["--max-loaded-models", str(fit)]
        with pod(tmp_path / "pod", controller, options=limits, WAKEFUL_CLUSTER_MAX_LOADS=str(at_once)) as daemon:
            controller.wait(lambda: sum(held.state == "ready" for held in controller.held.values()) == count, "all are ready")
            assert {state for _, state, _ in controller.states} == {"loading", "ready"}
            loading = most = 0
            for _, state, _ in controller.states:
                loading += 1 if state == "loading" else -1
                most = max(most, loading)
            assert 1 < most <= at_once
            for factor in range(fit):
                assert answer(daemon, f"m{factor}") == (200, [factor * number for number in DATA])
            wait_until(lambda: len(daemon.replicas()) <= fit, "no more are loaded than may be")
            wait_until(lambda: (tmp_path / "pod" / "state" / "desired.msgpack").read_bytes().count(b"sha256") == count, "all is written down")
            daemon.stop(signal.SIGKILL)
        controller.stop()
        with pod(tmp_path / "pod", controller, options=limits) as daemon:
            assert len(daemon.call("GET", "/v1/models")[1]) == count, "ready means that all are registered"
            assert [answer(daemon, f"m{factor}")[0] for factor in range(fit)] == [200] * fit


def test_an_old_leader_is_not_obeyed_and_a_new_one_is_found(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling(5) as old, controlling(6) as new:
        new.stop()
        with pod(tmp_path / "pod", old, new) as daemon:
            old.wait(lambda: old.of(Hello), "hello")
            old.want(doubler=wanted(model))
            old.wait_state("doubler", "ready")
            assert old.of(Hello)[0].epoch == 0
            old.stop()
            new.start()
            new.models = {"doubler": wanted(model)}
            old.epoch = 5
            wait_until(lambda: new.held.get("doubler") is not None, "the new one knows what there is")
            assert new.of(Hello)[0].epoch == 5
            new.tell(Desired(5, 99, 0, {}))
            new.wait(lambda: len(new.of(Hello)) > 1, "an outdated word ends the stream")
            assert answer(daemon)[0] == 200, "and nothing is put away for it"
            new.stop()
            old.start()
            old.wait(lambda: [hello.epoch for hello in old.of(Hello)][-1] == 6, "it comes back to the old one")
            daemon.wait_event("cluster", text="leads by epoch 5, and 6 was obeyed")
            assert answer(daemon)[0] == 200


def test_a_missed_change_is_asked_for_again(tmp_path: Path, pods: Pods) -> None:
    controller, _ = pods
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    before = len(controller.of(Hello))
    controller.models = {"missed": wanted(model)}
    controller.tell(Desired(controller.epoch, 500, 499, {}, []))
    controller.wait(lambda: len(controller.of(Hello)) > before, "it says hello again")
    controller.wait_state("missed", "ready")
    controller.want(missed=None)
    controller.wait(lambda: "missed" not in controller.held, "gone")


def test_lag_and_silence_are_flagged_at_once(tmp_path: Path, pods: Pods) -> None:
    controller, daemon = pods
    slow = onnx_models.times(tmp_path / "slow.onnx", 2)
    controller.want(slow=wanted(slow, lag_threshold=2.0, inactive=0.5, serving={"max_replicas": 1}))
    controller.wait_state("slow", "ready")
    controller.wait(lambda: "inactive" in controller.triggers("slow"), "silence is flagged")
    with frozen(*daemon.replicas()):
        calls = [threading.Thread(target=infer, args=(daemon, "slow")) for _ in range(4)]
        for call in calls:
            call.start()
        controller.wait(lambda: "lag" in controller.triggers("slow"), "lag is flagged")
        controller.wait(lambda: controller.use["slow"].lag > 3.5, "the whole period counts")
        use = controller.use["slow"]
        assert use.arrived - use.completed == 4
        assert use.busy > 0
    for call in calls:
        call.join()
    controller.wait(lambda: controller.use["slow"].lag == 0, "nothing is in flight")
    assert controller.use["slow"].completed == controller.use["slow"].arrived == 4
    assert controller.triggers("slow").count("lag") == 1
    controller.want(slow=None)


def test_a_reload_that_fails_and_processes_that_die_are_told(tmp_path: Path, pods: Pods) -> None:
    controller, daemon = pods
    file = onnx_models.times(tmp_path / "frail.onnx", 2)
    controller.want(frail=wanted(file, serving={"prepare": "off"}))
    held = controller.wait_state("frail", "ready")
    daemon.call("POST", "/v2/repository/models/frail/unload")
    fetched = daemon.directory / "state" / "artifacts" / held.artifact.partition(":")[2] / "files" / "frail.onnx"
    fetched.chmod(0o600)
    fetched.write_bytes(b"no model")
    assert infer(daemon, "frail")[0] == 503
    held = controller.wait_state("frail", "failed")
    assert "it was loaded before" in held.error
    controller.want(frail=None)
    controller.wait(lambda: "frail" not in controller.held, "gone")


def test_a_drain_is_one_and_ends_when_the_controller_says(tmp_path: Path) -> None:
    model = onnx_models.times(tmp_path / "m.onnx", 2)
    with controlling() as controller, pod(tmp_path / "pod", controller) as daemon:
        controller.wait(lambda: controller.of(Hello), "hello")
        controller.want(doubler=wanted(model))
        controller.wait_state("doubler", "ready")
        hooks = [drain(tmp_path / "pod") for _ in range(2)]
        controller.wait(lambda: controller.of(DrainAsked), "the controller hears of it")
        assert answer(daemon)[0] == 200
        assert daemon.call("GET", "/v2/health/ready")[0] == 200, "it is ready to the end"
        assert all(hook.poll() is None for hook in hooks)
        controller.want(doubler=wanted(model, finish=True))
        controller.wait_state("doubler", "quiet")
        controller.tell(Released())
        told = [hook.communicate(timeout=30)[0] for hook in hooks]
        assert [hook.returncode for hook in hooks] == [0, 0]
        assert all("released" in text for text in told)
        assert len(controller.of(DrainAsked)) == 1
        again = drain(tmp_path / "pod")
        assert "released" in again.communicate(timeout=30)[0], "called once more it returns at once"


def test_a_drain_without_a_leader_ends_at_half_of_the_grace(tmp_path: Path) -> None:
    with controlling() as controller:
        controller.stop()
        with pod(tmp_path / "pod", controller, WAKEFUL_CLUSTER_GRACE_SECS="2"):
            hook = drain(tmp_path / "pod")
            told, _ = hook.communicate(timeout=30)
            assert hook.returncode == 0
            assert "no controller leads" in told or "the time is up" in told


def drain(directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "wakeful", "cluster", "drain", "--socket", str(directory / "agent.sock")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_daemon_on_its_own_imports_nothing_of_the_cluster(tmp_path: Path) -> None:
    program = """
import sys
from wakeful import app
from wakeful.cli import serve
print(sorted(name for name in sys.modules if name.startswith(("wakeful.cluster", "grpc", "lightkube"))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.replace("'", '"')) == []
    with running(tmp_path) as daemon:
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "cygrpc" not in maps or "pygrpc" in maps


def test_reports_hold_only_what_has_changed(pods: Pods) -> None:
    controller, _ = pods
    count = len(controller.of(Report))
    controller.wait(lambda: len(controller.of(Report)) >= count + 3, "three periods have passed")
    assert all(report == Report() for report in controller.of(Report)[count + 1:])
