"""`wakeful cluster gateway` and `wakeful cluster bootstrap` as they are called in a pod."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import free_port
from tests.cluster.gateway.calls import call, status_of
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.envoy import binary
from tests.daemon import wait_until
from wakeful.cli.cluster import main
from wakeful.cli.parser import WRONG_USE
from wakeful.cluster.wire import WakeTold

PREFIX = [sys.executable, "-m", "wakeful", "cluster"]


def test_a_gateway_as_it_stands_in_a_pod(tmp_path: Path) -> None:
    controller = Controller()
    controller.answer("cat", WakeTold("unknown", near=["cats"]))
    ports = {f"--{name}-port": str(free_port()) for name in ("stats", "admin", "helper", "helper-grpc")} | {"--port": str(free_port())}
    options = ["--host", "127.0.0.1", *(word for pair in ports.items() for word in pair)]
    env = os.environ | {"WAKEFUL_CLUSTER_CONTROLLERS": controller.address, "POD_NAME": "gw-7"}
    file, log = tmp_path / "envoy.json", (tmp_path / "log").open("wb")
    subprocess.run([*PREFIX, "bootstrap", "--output", str(file), *options], env=env, check=True, timeout=60)
    started: list[subprocess.Popen[Any]] = []
    try:
        envoy = [binary(), "-c", str(file), "--use-dynamic-base-id", "-l", "warn", "--concurrency", "1"]
        started += [subprocess.Popen(command, env=env, stdout=log, stderr=log) for command in ([*PREFIX, "gateway", *options], envoy)]
        controller.wait(lambda _: controller.gateways() == {"gw-7"}, "Envoy has come under the pod's name")
        wait_until(lambda: b"ready" in (tmp_path / "log").read_bytes(), "the helper is ready")
        assert call(f"http://127.0.0.1:{ports['--port']}", "GET", "/v2/models/cat")[:2] == (
            404, {"error": "no model is called 'cat'; did you mean cats?"},
        )
        for path, status in (("/ready", 200), ("/stats/prometheus", 200), ("/quitquitquit", 404), ("/config_dump", 404)):
            assert status_of(f"http://127.0.0.1:{ports['--stats-port']}{path}") == status, path
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(30) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
        log.close()
        controller.stop()


@pytest.mark.parametrize(("arguments", "text"), [
    ([], "no controller is named"), (["--controllers", "here"], "a controller is written HOST:PORT"), (["--port", "0"], "expected a port from 1"),
])
@pytest.mark.parametrize("verb", ["gateway", "bootstrap"])
def test_wrong_use(verb: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: Any = main([verb, *arguments], 0.0)
    except SystemExit as ended:
        status = ended.code
    assert status == WRONG_USE
    assert text in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    controller = Controller()
    try:
        options = ["--controllers", controller.address, "--helper-port", str(controller.port), "--helper-grpc-port", str(free_port())]
        assert main(["gateway", *options], 0.0) == WRONG_USE
        told = capsys.readouterr().err
        assert "cannot start" in told
        assert "--helper-port" in told
    finally:
        controller.stop()
