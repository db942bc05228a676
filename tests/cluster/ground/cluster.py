"""A namespace with nodes, for one scenario, and verbs to act on it. What is not verb-like is in `views.py`."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object
from tests.cluster.ground.control_plane import TOKEN, ControlPlane
from tests.cluster.ground.kubelet import Settings
from tests.cluster.ground.load import Load
from tests.cluster.ground.metrics import Usage
from tests.cluster.ground.names import Names
from tests.cluster.ground.parts import CONTROLLERS, Controller, GatewayParts, controller_address
from tests.cluster.ground.processes import Process, tail_of
from tests.cluster.ground.proxy import Proxy
from tests.cluster.ground.scheduler import Scheduler
from tests.cluster.ground.views import PodView, View
from tests.daemon import alive, wait_until
from wakeful.cluster.manifests import CONTROLLER, CONTROLLER_PORT

PODS_PER_NODE = 50
WAYS, FIRST_POD = 15, 20
"""Last numbers of the first proxy's and the first pod's address; lower ones are for controllers and gateways."""
POLL = 0.05
PATIENCE = 20.0


class Node:
    """A test kubelet. Losing it ends its pods without a word to anybody."""

    def __init__(self, name: str, process: Process, directory: Path) -> None:
        self.name, self.process, self._directory = name, process, directory

    def lose(self) -> None:
        """Returns when nothing of it runs any more."""
        self.process.kill()
        pids = [int(path.read_text()) for path in self._directory.glob("*.pid")]
        for pid in filter(alive, pids):  # one that is frozen does not hear that its kubelet has died
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in pids), f"the pods of {self.name} are gone")

    def come_back(self) -> None:
        self.process.start()


class Cluster:
    """Everything here ends with `close`: processes first, then the objects."""

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path) -> None:
        plane.scenarios += 1
        self.plane, self.api, self.namespace, self.directory = plane, plane.api, namespace, directory
        self.network = f"{plane.network.prefix}.{plane.scenarios}"
        self.nodes: dict[str, Node] = {}
        self.processes: list[Process] = []
        """Controllers and gateways that were started directly."""
        self.hosts: dict[str, list[str]] = {}
        """Addresses by name of what is not a Service of the namespace: of who runs beside the pods."""
        self.pod_env: dict[str, str] = {}
        """For each container of nodes that are started after it was set."""
        self.gateways: list[GatewayParts] = []
        self.proxies: list[Proxy] = []
        self.loads: list[Load] = []
        self._may_end: set[Path] = set()
        (directory / "claims").mkdir(parents=True)
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self.hosts[CONTROLLER] = [controller_address(self, number) for number in range(CONTROLLERS)]
        self.scheduler = Scheduler(Api(plane.url, TOKEN, plane.authority), namespace)
        self.scheduler.start()
        reader = Api(plane.url, TOKEN, plane.authority)
        self.names = Names(reader, namespace, directory / "hosts", self.hosts, lambda port: self._way(port, [], spread=True))
        self.names.start()

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, *manifests: str | Object, **query: str) -> None:
        """Server-side apply of YAML, of many documents where need be, or of an object. Raises ApiError when it is refused."""
        for manifest in manifests:
            for thing in yaml.safe_load_all(manifest) if isinstance(manifest, str) else [manifest]:
                if thing:
                    self.api.apply(self._placed(thing), **query)

    def create(self, manifest: Object) -> None:
        """Without server-side apply, which says of a wrong type that it failed, and not which field. Raises ApiError."""
        thing = self._placed(manifest)
        path = self.api.path(thing["apiVersion"], thing["kind"], self.namespace)
        self.api.call("POST", path, thing, fieldValidation="Strict")

    def delete(self, kind: str, name: str, version: str = "wakeful.dev/v1alpha1", **options: Any) -> None:
        self.api.delete(self.api.path(version, kind, self.namespace, name), **options)

    def patch(self, kind: str, name: str, patch: Object, version: str = "wakeful.dev/v1alpha1") -> None:
        """A merge patch, as `kubectl patch --type merge` makes it."""
        self.api.merge(self.api.path(version, kind, self.namespace, name), patch)

    def kubectl(self, *arguments: str, good: bool = True, stdin: str = "") -> str:
        """The real one, in this namespace: what it prints. `good=False`: it must fail, and why is returned."""
        return self._told("kubectl", arguments, good, stdin)

    def helm(self, *arguments: str, good: bool = True) -> str:
        """As `kubectl`."""
        return self._told("helm", arguments, good)

    def _told(self, program: str, arguments: Sequence[str], good: bool, stdin: str = "") -> str:
        done = subprocess.run(
            [str(self.plane.programs / program), "--kubeconfig", str(self.plane.kubeconfig_path), "--namespace", self.namespace, *arguments],
            input=stdin, capture_output=True, text=True, timeout=120, check=False, env={"HOME": str(self.directory)},
        )
        assert (done.returncode == 0) == good, f"{program} {shlex.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if good else done.stderr

    def node(self, name: str = "a", *, labels: Mapping[str, str] | None = None) -> Node:
        """A node of this scenario, started at the first call."""
        if name not in self.nodes:
            self.nodes[name] = Node(self._node_name(name), self._kubelet(name, dict(labels or {})).start(), self.directory / "nodes" / name)
            self.scheduler.nodes.add(self._node_name(name))
        return self.nodes[name]

    def controller(self, number: int = 0, *options: str, env: Mapping[str, str] | None = None) -> Controller:
        """A controller that runs and, where it is the first, leads. `options` of `wakeful cluster controller`."""
        controller = Controller(self, number, *options, env=env)
        self.processes.append(controller.start())
        self.until(lambda: controller.state.startswith(("leads", "follows")), what=f"{controller.name} leads, or follows")
        return controller

    def up(self, *manifests: Object, seconds: float = 40.0) -> GatewayParts:
        """A controller, these Servers and Models, and a gateway: returns when all Models among them are ready."""
        self.controller()
        self.apply(*manifests)
        gateway = self.gateway()
        for name in [thing["metadata"]["name"] for thing in manifests if thing["kind"] == "Model"]:
            self.until(lambda name=name: self.model(name).ready, seconds, f"the model {name} is ready")  # type: ignore[misc]  # of a default
        return gateway

    def gateway(self, number: int = 0, *, by: tuple[str, int] | None = None) -> GatewayParts:
        """A gateway that takes requests. A controller must have led before. `by`: where it finds controllers, instead of their addresses."""
        gateway = GatewayParts(self, number, by)
        self.gateways.append(gateway)
        return gateway

    def slow_way(self) -> Proxy:
        """A way to whichever controller leads, for gateways and agents."""
        targets = [(controller_address(self, number), CONTROLLER_PORT) for number in range(CONTROLLERS)]
        return self._way(CONTROLLER_PORT, targets)

    def service(self, name: str) -> str:
        """Host and port by which a Service with an address is reached."""
        way: Proxy = self.until(lambda: self.names.ways.get(name), what=f"the Service {name} has an address")
        return "{}:{}".format(*way.address)

    def _way(self, port: int, targets: list[tuple[str, int]], *, spread: bool = False) -> Proxy:
        self.proxies.append(Proxy(f"{self.network}.{WAYS + len(self.proxies)}", port, targets, spread=spread))
        return self.proxies[-1]

    def agents_by(self, way: Proxy) -> None:
        """Pods find controllers by this way alone, from their next connection on."""
        self.hosts[CONTROLLER] = [way.address[0]]
        self.names.write()

    def load(
        self, http: str, models: Sequence[str], rate: float = 200.0, *, grpc: str | None = None, headers: dict[str, str] | None = None,
        named: bool = True,
    ) -> Load:
        """Checked load (`load.py`) on an address, for the time of a `with` block. With `grpc`, HTTP and gRPC in turn; `named`: in its metadata."""
        load = Load(http, models, rate, grpc_address=grpc, wires=("http", "grpc") if grpc else ("http",), headers=headers, named=named)
        self.loads.append(load)
        return load

    def usage(self, server: str, *, cpu: str = "10m", memory: str = "10Mi") -> None:
        """What metrics.k8s.io says of each pod of a Server from now on."""
        self.plane.metrics.usage.setdefault(self.namespace, {})[server] = Usage(cpu, memory)

    def custom_metric(self, kind: str, name: str, value: str) -> None:
        """`infer_rps` of a Model or Server."""
        self.plane.metrics.custom[self.namespace, kind, name] = value

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def view(self, kind: str, name: str, version: str = "wakeful.dev/v1alpha1") -> View:
        return View(self.api, self.api.path(version, kind, self.namespace, name), f"{kind} {name}")

    def model(self, name: str) -> View:
        return self.view("Model", name)

    def server(self, name: str) -> View:
        return self.view("Server", name)

    def statefulset(self, name: str) -> View:
        return self.view("StatefulSet", name, "apps/v1")

    def pod(self, name: str) -> PodView:
        return PodView(self.api, self.api.path("v1", "Pod", self.namespace, name), name, self.directory / "nodes")

    def pods(self, server: str | None = None) -> list[PodView]:
        """By name, those that are leaving included."""
        query = {"labelSelector": f"wakeful.dev/server={server}"} if server else {}
        names = sorted(pod["metadata"]["name"] for pod in self.api.list(self.api.path("v1", "Pod", self.namespace), **query))
        return [self.pod(name) for name in names]

    def events(self, name: str = "", reason: str = "") -> list[Object]:
        """Events of the namespace on objects of this name, with this reason."""
        found = self.api.list(self.api.path("v1", "Event", self.namespace))
        return [event for event in found if name in ("", event["involvedObject"]["name"]) and reason in ("", event["reason"])]

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "") -> Any:
        """Wait until the condition holds, and return what it gave. An object that is not there, or an API server that is away, means: not yet."""
        end, last = time.monotonic() + seconds, ""
        while True:
            try:
                if found := condition():
                    return found
            except (ApiError, KeyError, *OFFLINE) as error:
                last = f"; last: {error!r}"
            for process in self.processes:
                assert process.running or process.log_path in self._may_end, f"{process.name} has ended:\n{process.tail()}"
            assert time.monotonic() < end, f"waited {seconds:g} s in vain{' until ' + what if what else ''}{last}\n{self.summary()}"
            time.sleep(POLL)

    def always(self, condition: Callable[[], Any], seconds: float, what: str = "") -> None:
        """The condition holds for so long, looked at again and again: for what must not happen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert condition(), f"it did not stay so{': ' + what if what else ''}\n{self.summary()}"
            time.sleep(POLL)

    def summary(self) -> str:
        """What there is, in a few lines, for whoever reads a failure."""
        lines = []
        with suppress(ApiError, *OFFLINE):
            for version, kind in (("wakeful.dev/v1alpha1", "Model"), ("wakeful.dev/v1alpha1", "Server"), ("apps/v1", "StatefulSet")):
                for thing in self.api.list(self.api.path(version, kind, self.namespace))[:12]:
                    status = {key: value for key, value in (thing.get("status") or {}).items() if key != "conditions"}
                    said = [f"{each['type']}={each['status']} {each.get('reason', '')}: {each.get('message', '')}"
                            for each in (thing.get("status") or {}).get("conditions") or ()]
                    lines.append(f"{kind} {thing['metadata']['name']}: {status} {said}")
            lines += [f"Pod {pod.name}: {pod.line}" for pod in self.pods()]
        return "\n".join(lines)

    def logs(self) -> str:
        """Ends of all logs of this scenario."""
        paths = sorted(self.directory.rglob("*.log"))
        return "\n".join(f"── {path.relative_to(self.directory)}\n{tail_of(path)}" for path in paths)

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _node_name(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def _kubelet(self, name: str, labels: dict[str, str]) -> Process:
        directory = self.directory / "nodes" / name
        directory.mkdir(parents=True)
        settings = Settings(
            url=self.plane.url, token=TOKEN, authority=self.plane.authority, node=self._node_name(name), namespace=self.namespace,
            network=self.network, first=FIRST_POD + PODS_PER_NODE * len(self.nodes), directory=str(directory),
            claims=str(self.directory / "claims"), hosts=str(self.names.path),
            env={"KUBERNETES_SERVICE_HOST": self.plane.host, "KUBERNETES_SERVICE_PORT": "6443", **self.pod_env}, labels=labels,
        )
        path = directory / "settings.json"
        path.write_bytes(msgspec.json.encode(settings))
        return Process(f"node {name}", [sys.executable, "-m", "tests.cluster.ground.kubelet", str(path)], directory / "kubelet.log")

    def _placed(self, thing: Object) -> Object:
        """In this namespace, unless it says another one or is of none."""
        thing = dict(thing)
        thing["metadata"] = {"namespace": self.namespace, **thing["metadata"]}
        return thing

    # ── beginning and end ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """A process beside the pods, which ends with the scenario."""
        process = Process(name, command, self.directory / f"{name}.log", env).start()
        self.processes.append(process)
        return process

    def may_end(self, process: Process) -> None:
        """`until` does not mind from now on that it has ended."""
        self._may_end.add(process.log_path)

    def close(self) -> None:
        for load in self.loads:
            with suppress(BaseException):
                load.stop()
        for gateway in self.gateways:
            gateway.stop()
        self.names.stop()
        for proxy in self.proxies:
            proxy.close()
        for process in reversed(self.processes):
            process.kill()
        self.scheduler.stop()
        for node in self.nodes.values():
            node.lose()
            with suppress(ApiError, *OFFLINE):
                self.api.delete(f"/api/v1/nodes/{node.name}")
        with suppress(ApiError, *OFFLINE):
            self.api.delete(f"/api/v1/namespaces/{self.namespace}")
            for pod in self.pods():
                self.api.delete(pod.path, gracePeriodSeconds=0)
