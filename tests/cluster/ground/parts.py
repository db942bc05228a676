"""The controller and the gateway of a scenario: real processes, with the rights and the certificate that an installation gives them."""

import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.brokers import free_port
from tests.cluster.ground.api import Object
from tests.cluster.ground.envoy import Envoy
from tests.cluster.ground.processes import Process
from wakeful.cluster.gateway.bootstrap import LOOPBACK, Address, Gateway
from wakeful.cluster.install import GATEWAY, GATEWAY_PORT, install_objects
from wakeful.cluster.manifests import AUDIENCE, CA, CONTROLLER, CONTROLLER_HTTP, CONTROLLER_PORT, Install

if TYPE_CHECKING:
    from tests.cluster.ground.cluster import Cluster

FIRST_CONTROLLER, FIRST_GATEWAY = 2, 10
"""Last numbers of their addresses."""
CONTROLLERS = 3
"""That there may be: each has an address from the beginning, so that agents and gateways know them all."""
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
IMAGE = "wakeful:test"
LEASE_SECONDS = 5
START_SECONDS = 30.0


class Controller(Process):
    """`wakeful cluster controller`, as the account that an installation gives it."""

    def __init__(self, cluster: "Cluster", number: int, *options: str, env: Mapping[str, str] | None = None) -> None:
        name = f"controller-{number}"
        install(cluster, *options)
        self.address = controller_address(cluster, number)
        kubeconfig = cluster.plane.kubeconfig(token_of(cluster, CONTROLLER), cluster.directory / f"{name}.kubeconfig", cluster.namespace)
        command = [
            sys.executable, "-m", "wakeful", "cluster", "controller", "--namespace", cluster.namespace, "--kubeconfig", str(kubeconfig),
            "--host", self.address, "--image", IMAGE, "--lease-seconds", str(LEASE_SECONDS), *options,
        ]
        super().__init__(name, command, cluster.directory / f"{name}.log", {"POD_NAME": name, **(env or {})})

    @property
    def state(self) -> str:
        """What its /readyz says; empty: nothing."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{CONTROLLER_HTTP}/readyz", timeout=2) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError:
            return ""

    @property
    def leads(self) -> bool:
        return self.state.startswith("leads")

    def metric(self, name: str) -> float:
        """A sample without labels of its /metrics; 0 where there is none."""
        with urllib.request.urlopen(f"http://{self.address}:{CONTROLLER_HTTP}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


class GatewayParts:
    """A real Envoy, and the helper beside it."""

    def __init__(self, cluster: "Cluster", number: int, by: tuple[str, int] | None) -> None:
        self.address = f"{cluster.network}.{FIRST_GATEWAY + number}"
        directory = cluster.directory / f"gateway-{number}"
        directory.mkdir()
        authority = cluster.until(lambda: cluster.view("ConfigMap", CA, "v1").object, START_SECONDS, "the controller has made a certificate")
        ca = directory / "ca.crt"
        ca.write_text(authority["data"]["ca.crt"])
        token = directory / "token"
        token.write_text(token_of(cluster, GATEWAY, AUDIENCE))
        controllers = [by] if by else [(controller_address(cluster, each), CONTROLLER_PORT) for each in range(CONTROLLERS)]
        self.settings = Gateway(
            node=f"gateway-{number}", controllers=tuple(Address(*each) for each in controllers),
            listen=Address(self.address, GATEWAY_PORT), admin=Address(LOOPBACK, 0), stats=None, helper=Address(LOOPBACK, free_port()),
            helper_grpc=Address(LOOPBACK, free_port()), ca=ca, controller_name=CONTROLLER,
            token=token, token_source=directory / "token.json",
        )
        self.helper = Process(f"helper-{number}", self._command(), directory / "helper.log")
        self._directory = directory
        self._start()

    @property
    def http(self) -> str:
        return f"http://{self.address}:{GATEWAY_PORT}"

    @property
    def grpc(self) -> str:
        return f"{self.address}:{GATEWAY_PORT}"

    def restart(self) -> None:
        """Killed, and started again."""
        self.envoy.stop(signal.SIGKILL)
        self.helper.kill()
        self._start()

    def start_envoy(self) -> None:
        """Again, after its end."""
        self.envoy = Envoy(self._directory, self.settings)

    def stop(self) -> None:
        self.envoy.stop()
        self.helper.kill()

    def _start(self) -> None:
        self.helper.start()
        self.helper.wait_until(lambda: " ready " in self.helper.log, "the helper is ready")
        self.start_envoy()

    def _command(self) -> list[str]:
        one = self.settings
        return [
            sys.executable, "-m", "wakeful", "cluster", "gateway", "--controllers", ",".join(f"{each.host}:{each.port}" for each in one.controllers),
            "--ca-file", str(one.ca), "--token-file", str(one.token), "--controller-name", CONTROLLER, "--name", one.node, "--host", one.listen.host,
            "--port", str(one.listen.port), "--helper-port", str(one.helper.port), "--helper-grpc-port", str(one.helper_grpc.port),
        ]


def controller_address(cluster: "Cluster", number: int) -> str:
    return f"{cluster.network}.{FIRST_CONTROLLER + number}"


def install(cluster: "Cluster", *options: str) -> None:
    """The accounts and rights of an installation whose controller has these options."""
    wanted = Install(
        namespace=cluster.namespace, image=IMAGE, seldon="--seldon" in options, storage_secrets="--storage-secrets" in options,
        custom_metrics="--custom-metrics" in options,
    )
    cluster.apply(*(thing for thing in install_objects(wanted) if thing["kind"] in RIGHTS))


def token_of(cluster: "Cluster", account: str, *audiences: str) -> str:
    """A token of a service account; without audiences it is good for the API server."""
    path = cluster.api.path("v1", "ServiceAccount", cluster.namespace, account, "token")
    spec = {"expirationSeconds": 3600} | ({"audiences": list(audiences)} if audiences else {})
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token: str = cluster.api.call("POST", path, asked)["status"]["token"]
    return token
