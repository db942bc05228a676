"""Two daemons with the same models, a controller and a gateway, for all tests of this package."""

from collections.abc import Iterator

import pytest

from tests import onnx_models
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import Daemon
from wakeful.cluster.planning.world import Endpoint


def endpoint(daemon: Daemon) -> Endpoint:
    return Endpoint(f"uid-{daemon.port}", daemon.host, daemon.port, int(daemon.grpc.rpartition(":")[2]))


@pytest.fixture(scope="package")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    directory = tmp_path_factory.mktemp("models")
    onnx_models.identdyn(directory / "cat.onnx")
    onnx_models.times(directory / "dog.onnx", 2.0)
    started = [Daemon(tmp_path_factory.mktemp("daemon"), "--host", "127.0.0.1", "--models-dir", str(directory)) for _ in range(2)]
    yield started
    for daemon in started:
        daemon.stop()


@pytest.fixture(scope="package")
def controller() -> Iterator[Controller]:
    controller = Controller()
    yield controller
    controller.stop()


@pytest.fixture(scope="package")
def pod(tmp_path_factory: pytest.TempPathFactory, controller: Controller) -> Iterator[GatewayPod]:
    pod = GatewayPod(tmp_path_factory.mktemp("gateway"), controller.address)
    yield pod
    pod.stop()


@pytest.fixture
def everywhere(daemons: list[Daemon], controller: Controller, pod: GatewayPod) -> None:
    """Both models are routed to both daemons."""
    both = tuple(endpoint(daemon) for daemon in daemons)
    controller.settle({"cat": both, "dog": both})
