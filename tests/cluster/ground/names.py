"""Services, as pods and clients find them: their names in a file that lies over /etc/hosts, and a way to ready pods behind a Service's address.

Stands in for the DNS of a cluster and for kube-proxy, both of which see a change a moment late.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, condition_of
from tests.cluster.ground.probes import port_of
from tests.cluster.ground.proxy import Proxy

LOOK_SECONDS = 0.1
FILE_BYTES = 16384
"""The file keeps its length, so that nobody reads half of it while it is written."""


class Names(threading.Thread):
    """Of one namespace. `fixed`: addresses by name, of whoever runs beside the pods; a Service of the same name comes before them."""

    def __init__(self, api: Api, namespace: str, path: Path, fixed: dict[str, list[str]], way: Callable[[int], Proxy]) -> None:
        """`way` makes one that listens on this port."""
        super().__init__(name=f"names of {namespace}", daemon=True)
        self._api, self._namespace, self.path, self._fixed, self._way = api, namespace, path, fixed, way
        self.ways: dict[str, Proxy] = {}
        """By name of the Service that has an address."""
        self._suffixes = ("", *(f".{namespace}{rest}" for rest in ("", ".svc", ".svc.cluster.local")))
        self._found: dict[str, list[str]] = {}
        self._written = b""
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self.write()

    def run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            with suppress(ApiError, *OFFLINE):  # what was known goes on
                self._pass()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._api.close()

    def _pass(self) -> None:
        services = [one for one in self._of("Service") if one["spec"].get("selector")]
        pods = self._of("Pod") if services else []
        found = {}
        for service in services:
            name, spec = service["metadata"]["name"], service["spec"]
            behind = [pod for pod in pods if _selected(spec["selector"], pod) and (spec.get("publishNotReadyAddresses") or _ready(pod))]
            if spec["clusterIP"] == "None":
                found[name] = [address for pod in behind if (address := pod["status"].get("podIP"))]
            else:
                found[name] = [self._reach(name, spec["ports"][0], behind)]
        self._found = found
        self.write()

    def _of(self, kind: str) -> list[Object]:
        return self._api.list(self._api.path("v1", kind, self._namespace))

    def _reach(self, name: str, port: Object, pods: list[Object]) -> str:
        """Connections that there are stay where they are."""
        if name not in self.ways:
            self.ways[name] = self._way(port["port"])
        self.ways[name].targets = [(pod["status"]["podIP"], _target(pod, port)) for pod in pods]
        return self.ways[name].address[0]

    def write(self) -> None:
        """In place: pods that run have it mounted, and see what it says now."""
        with self._writing:
            named = [(address, name) for name, addresses in (self._fixed | self._found).items() for address in addresses]
            lines = [f"{address} {' '.join(name + suffix for suffix in self._suffixes)}" for address, name in named]
            content = "\n".join(["127.0.0.1 localhost", *lines]).encode().ljust(FILE_BYTES, b"\n")
            if content != self._written:
                with self.path.open("r+b" if self.path.exists() else "wb") as file:
                    file.write(content)
                self._written = content


def _selected(selector: dict[str, str], pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _ready(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and bool(condition_of(pod, "Ready")["status"] == "True")


def _target(pod: Object, port: Object) -> int:
    return next(port_of(container, port["targetPort"]) for container in _containers(pod) if _has(container, port["targetPort"]))


def _containers(pod: Object) -> Iterator[Object]:
    yield from pod["spec"]["containers"]
    yield from pod["spec"].get("initContainers") or ()


def _has(container: Object, port: int | str) -> bool:
    return any(port in (each.get("name"), each["containerPort"]) for each in container.get("ports") or ())
