"""A node for the pods of one namespace, as a process: `python -m tests.cluster.ground.kubelet SETTINGS`, a file with JSON (`Settings`).

Pods are local processes, each on a loopback address of its own; they end with this process, so killing it is losing the node. There are no cgroups:
resources are ignored, and images are names for commands (`images.py`). What was placed on the node before it was lost is started again.
"""

import itertools
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, now
from tests.cluster.ground.pods import Node, Pod

BEAT_SECONDS = 1.0
CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "500"}


class Settings(msgspec.Struct):
    url: str
    token: str
    authority: str
    """PEM."""
    node: str
    namespace: str
    network: str
    """The first three numbers of its pods' addresses."""
    first: int
    """The last number of its first pod's address."""
    directory: str
    claims: str
    hosts: str | None = None
    env: dict[str, str] = {}
    labels: dict[str, str] = {}


class Kubelet:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = Api(settings.url, settings.token, settings.authority)
        self._node = Node(
            self._api, settings.node, Path(settings.directory), Path(settings.claims), Path(settings.hosts) if settings.hosts else None, settings.env
        )
        self._addresses = itertools.cycle(range(settings.first, settings.first + 50))
        self._pods: dict[str, Pod] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._beat, daemon=True).start()
        path = f"/api/v1/namespaces/{self._settings.namespace}/pods"
        for pod in self._api.follow(path, self._stopped, self._gone, fieldSelector=f"spec.nodeName={self._settings.node}"):
            self._seen(pod)

    def _beat(self) -> None:
        """The node is there and well, said once a second."""
        metadata = {"name": self._settings.node, "labels": {"kubernetes.io/hostname": self._settings.node, **self._settings.labels}}
        of_lease = {"name": self._settings.node, "namespace": "kube-node-lease"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": of_lease}
        since = now()
        while not self._stopped.is_set():
            ready = {
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now(), "lastTransitionTime": since,
            }
            try:
                self._api.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata}, "kubelet")
                status = {"status": {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}}
                self._api.call("PATCH", f"/api/v1/nodes/{self._settings.node}/status", status, "application/strategic-merge-patch+json")
                renewed = now().replace("Z", ".000000Z")
                held = {"holderIdentity": self._settings.node, "leaseDurationSeconds": 6, "renewTime": renewed}
                self._api.apply(lease | {"spec": held}, "kubelet")
            except (ApiError, *OFFLINE) as error:
                print(f"{time.time():.2f} heartbeat: {error!r}", flush=True)
            self._stopped.wait(BEAT_SECONDS)

    def _seen(self, manifest: Object) -> None:
        metadata = manifest["metadata"]
        pod = self._pods.get(metadata["uid"])
        if pod is None and manifest.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            pod = self._pods[metadata["uid"]] = Pod(self._node, manifest, f"{self._settings.network}.{next(self._addresses)}")
            if "deletionTimestamp" in metadata:
                pod.leave(0)  # it was leaving when the node was lost
            pod.start()
        elif pod is not None:
            if "deletionTimestamp" in metadata:
                pod.leave(float(metadata.get("deletionGracePeriodSeconds", 0)))
            pod.look_at(manifest)

    def _gone(self, uid: str) -> None:
        """Its object is gone, by a forced delete or by our own."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            pod.leave(-60)

    def stop(self) -> None:
        """All pods are killed."""
        self._stopped.set()


def main() -> None:
    kubelet = Kubelet(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the pods' lifelines do the rest
    kubelet.run()


if __name__ == "__main__":
    main()
