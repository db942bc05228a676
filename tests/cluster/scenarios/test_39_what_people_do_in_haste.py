"""What people do in haste: names that two objects have, objects made again at once, odd quantities, and a Server deleted without its pods."""

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.api import ApiError
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import by_resource, hpa, model, server
from tests.cluster.ground.views import View

SELDON = "mlops.seldon.io/v1alpha1"


def _uid(view: View) -> str:
    found = view.object
    return str(found["metadata"]["uid"]) if found else ""


@pytest.mark.usefixtures("seldon_kinds")
def test_of_two_objects_of_one_name_wakefuls_is_served_whoever_leads(cluster: Cluster) -> None:
    uri = models.quick(cluster.directory, "m")
    first = cluster.controller(0, "--seldon")
    cluster.apply(server("triton"), {**model("m", uri), "apiVersion": SELDON})
    theirs, ours = cluster.view("Model", "m", SELDON), cluster.model("m")
    cluster.until(lambda: theirs.ready, 40)
    cluster.apply(model("m", uri))
    for leader in (first, None):
        cluster.until(lambda: ours.ready and theirs.condition("Ready")["reason"] == "NameTaken", 40)
        if leader is not None:
            cluster.may_end(leader)
            leader.kill()
            cluster.controller(1, "--seldon")
    cluster.delete("Model", "m")
    cluster.until(lambda: theirs.ready, 40, "it has the name again")


def test_a_model_made_again_at_once_and_quantities_as_they_come(cluster: Cluster) -> None:
    uri = models.quick(cluster.directory, "m")
    cluster.up(server("triton", resources={"limits": {"cpu": "500m", "memory": "1.5Gi"}}), model("m", uri, memory="1e6"))
    view = cluster.model("m")
    for memory in ("1.5Mi", "1000k", "2e6", 3_000_000):
        before = _uid(view)
        cluster.delete("Model", "m")
        cluster.apply(model("m", uri, memory=memory))
        cluster.until(lambda old=before: _uid(view) not in {old, ""} and view.ready, 30, f"with {memory}")  # type: ignore[misc]
    for memory in ("-0", "0", "-1Mi", "1.5 Gi", "1Gib"):
        with pytest.raises(ApiError):
            cluster.apply(model("m", uri, memory=memory))
    for name, long in (("ü", uri), ("n", f"file:///{'a' * 10_000}")):
        with pytest.raises(ApiError):
            cluster.apply(model(name, long))


def test_a_server_deleted_without_its_pods_is_taken_up_again(cluster: Cluster) -> None:
    uri = models.quick(cluster.directory, "m")
    cluster.up(server("triton"), model("m", uri))
    pod = _uid(cluster.pod("triton-0"))
    cluster.kubectl("delete", "servers.wakeful.dev", "triton", "--cascade=orphan")
    cluster.always(lambda: _uid(cluster.pod("triton-0")) == pod, 3, "its pods stay")
    cluster.apply(server("triton"))
    cluster.until(lambda: cluster.server("triton").ready and cluster.model("m").ready, 40)
    assert _uid(cluster.pod("triton-0")) == pod


def test_an_autoscaler_finds_what_the_scheduler_left(cluster: Cluster) -> None:
    uri = models.quick(cluster.directory, "m")
    cluster.up(server("triton", replicas=1, minReplicas=1, maxReplicas=2), model("m", uri, replicas=1, minReplicas=1, maxReplicas=1))
    server_view = cluster.server("triton")
    cluster.apply(model("n", uri, replicas=2))
    cluster.until(lambda: server_view.target == 2 and server_view.status.get("readyReplicas") == 2, 60, "the scheduler has scaled it")
    cluster.apply(hpa("Server", "triton", 1, 4, by_resource("cpu", 50)))
    cluster.until(lambda: server_view.condition("ScaleOwner")["reason"] == "HPA")
    cluster.always(lambda: server_view.target == 2 and server_view.status["readyReplicas"] == 2, 5, "nobody has written a count")
    assert "as the scheduler left it" in server_view.condition("ScaleOwner")["message"]
    cluster.kubectl("scale", "servers.wakeful.dev", "triton", "--replicas=3")
    cluster.until(lambda: server_view.target == 3)
