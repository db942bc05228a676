"""Which node a pod goes to: the ready one with the fewest pods of the namespace that takes it. Stands in for kube-scheduler."""

import threading
from collections import Counter

from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, condition_of


class Scheduler(threading.Thread):
    """Of one namespace and its nodes."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(name=f"scheduler of {namespace}", daemon=True)
        self._api, self._namespace = api, namespace
        self.nodes: set[str] = set()
        self.held = threading.Event()
        """Set: pods stay pending, as where no node has room."""
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            if self.held.is_set():
                continue
            try:
                self._pass()
            except (ApiError, *OFFLINE):
                continue  # the next pass sees what there is then

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._api.close()

    def _pass(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        waiting = self._api.list(path, fieldSelector="spec.nodeName=")
        if not waiting:
            return
        known = [node for node in self._api.list("/api/v1/nodes") if node["metadata"]["name"] in self.nodes]
        nodes = [node for node in known if condition_of(node, "Ready")["status"] == "True"]
        counts = Counter(pod["spec"].get("nodeName") for pod in self._api.list(path))
        for pod in waiting:
            fit = [node["metadata"]["name"] for node in nodes if _takes(node, pod)]
            if not fit or "deletionTimestamp" in pod["metadata"]:
                continue
            chosen = min(fit, key=lambda name: (counts[name], name))
            counts[chosen] += 1
            name = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": chosen}
            self._api.call("POST", f"{path}/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": pod["metadata"]["uid"]}, "target": target,
            })


def _takes(node: Object, pod: Object) -> bool:
    """Cordons, taints and node selectors; nothing of resources."""
    wanted = (pod["spec"].get("nodeSelector") or {}).items()
    labels = node["metadata"].get("labels") or {}
    tainted = {taint["key"] for taint in node["spec"].get("taints") or () if taint["effect"] == "NoSchedule"}
    return not node["spec"].get("unschedulable") and all(labels.get(key) == value for key, value in wanted) and not tainted
