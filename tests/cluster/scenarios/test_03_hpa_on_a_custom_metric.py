"""Scenario 3: one model per server, both scaled by an HPA on the same custom metric; the scheduler's own rule for load keeps still."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, by_rate, hpa, model, server
from tests.cluster.ground.parts import controller_address
from wakeful.cluster.install import install_objects
from wakeful.cluster.manifests import CONTROLLER, CUSTOM_METRICS, CUSTOM_METRICS_PORT, Install


def test_a_model_and_its_server_follow_one_metric(cluster: Cluster) -> None:
    cluster.custom_metric("Model", "m", "100")
    gateway = cluster.up(
        server("triton"),
        model("m", models.slow_to_answer(cluster.directory, "m", 0.2), replicas=1, maxReplicas=5, server="triton", autoscaling=QUICK),
    )
    metric = by_rate("Model", "m", "100")
    cluster.apply(hpa("Model", "m", 1, 5, metric), hpa("Server", "triton", 1, 5, metric))
    triton, m = cluster.server("triton"), cluster.model("m")
    cluster.until(lambda: m.owner == triton.owner == "HPA", what="both say who scales them")
    with cluster.load(gateway.http, ["m"], 40) as load:
        cluster.always(lambda: m.desired == 1, 6, "its lag is no matter while an HPA has it")
        cluster.custom_metric("Model", "m", "300")
        cluster.until(lambda: m.available == 3 and triton.status.get("readyReplicas") == 3, 40, "both are three")
        cluster.always(lambda: m.desired == 3, 4)
    load.nothing_lost()
    assert m.ready


def test_the_controller_serves_the_metric_itself(cluster: Cluster) -> None:
    """Two controllers, and the API server asks the one that does not lead; agents' own figures, of a load that is really there."""
    with _served_by(cluster, controller_address(cluster, 1)):
        leader = cluster.controller(0, "--custom-metrics")
        cluster.controller(1, "--custom-metrics")
        cluster.apply(server("triton"), model("m", models.quick(cluster.directory, "m"), replicas=1, maxReplicas=5, server="triton"))
        gateway, triton, m = cluster.gateway(), cluster.server("triton"), cluster.model("m")
        cluster.until(lambda: m.ready, 40, "the model is ready")
        with cluster.load(gateway.http, ["m"], 100) as load:
            cluster.until(lambda: _rate(cluster, "models.wakeful.dev/m") > 80, 30, "the rate is that of the load")
            cluster.apply(hpa("Model", "m", 1, 3, by_rate("Model", "m", "40")), hpa("Server", "triton", 1, 3, by_rate("Server", "triton", "40")))
            cluster.until(lambda: m.available == 3 and triton.status.get("readyReplicas") == 3, 60, "both are three")
        load.nothing_lost()
        cluster.until(lambda: triton.status.get("readyReplicas") == 1, 60, "without load both shrink")
        assert 'models.wakeful.dev "cow" not found' in cluster.kubectl("get", "--raw", _path(cluster, "models.wakeful.dev/cow"), good=False)
        with pytest.raises(OSError):  # noqa: PT011 - of TLS, or of a connection that was reset
            _stranger(leader.address)
        refused = [event for event in cluster.plane.asked_by(cluster.namespace, CONTROLLER) if event["responseStatus"]["code"] == 403]
        assert not refused


@contextmanager
def _served_by(cluster: Cluster, address: str) -> Iterator[None]:
    """The APIService is the installation's, and its Service leads to this address: there is no kube-proxy."""
    [ours] = [one for one in install_objects(Install(namespace=cluster.namespace, custom_metrics=True)) if one["kind"] == "APIService"]
    ours["spec"]["service"]["port"] = CUSTOM_METRICS_PORT
    path = cluster.api.path_of(ours)
    cluster.api.delete(path)
    try:
        cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": CUSTOM_METRICS},
                       "spec": {"type": "ExternalName", "externalName": address}})
        cluster.api.apply(ours)
        yield
    finally:
        cluster.api.delete(path)
        cluster.plane.metrics.register()


def _path(cluster: Cluster, about: str) -> str:
    return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{cluster.namespace}/{about}/infer_rps"


def _rate(cluster: Cluster, about: str) -> float:
    [item] = cluster.api.call("GET", _path(cluster, about))["items"]
    return int(item["value"].removesuffix("m")) / 1000


def _stranger(address: str) -> None:
    """Who shows no certificate of the API server's. TLS 1.3 says so after the handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((address, CUSTOM_METRICS_PORT), 5) as plain, context.wrap_socket(plain) as wrapped:
        wrapped.sendall(b"GET /apis/custom.metrics.k8s.io HTTP/1.1\r\nHost: x\r\n\r\n")
        if not wrapped.recv(100):
            raise ConnectionResetError("closed without an answer")
