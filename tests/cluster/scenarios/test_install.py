"""What is shipped, as docs/cluster.md installs and removes it: pods of controller and gateway are made by Deployments from deploy alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import ControlPlane
from tests.cluster.ground.manifests import model
from tests.cluster.scenarios.reader import Reader
from tests.cluster.test_packaging import DEPLOY
from tests.docs.guide import GUIDE, section
from wakeful.cluster.install import GATEWAY
from wakeful.cluster.manifests import CONTROLLER, Install

NAMESPACE = Install().namespace
IMAGE = "registry.example/wakeful:9.9"


@pytest.fixture
def empty(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of its own that does not know our kinds: this scenario brings them and takes them away."""
    plane = ControlPlane()
    cluster = Cluster(plane, NAMESPACE, tmp_path / "cluster")
    cluster.node("a")
    try:
        yield cluster
    except BaseException:
        print(cluster.summary(), cluster.logs(), sep="\n")
        raise
    finally:
        cluster.close()
        plane.close()


def test_what_is_shipped_serves_is_restarted_under_load_and_is_removed(empty: Cluster) -> None:
    cluster, page = empty, GUIDE.read_text("utf-8")
    reader = Reader(cluster, "default", DEPLOY=str(DEPLOY))
    reader.follow(section(page, "Install"))
    pods = cluster.pods()
    assert len(pods) == 4
    assert all(pod.ready and pod.restarts == 0 for pod in pods)

    cluster.kubectl("apply", "--server-side", "-k", str(DEPLOY / "kustomize/overlays/cpu"))
    cluster.apply(model("m", models.quick(cluster.directory, "m")))
    cluster.until(lambda: cluster.model("m").ready, 90, "the model is ready")

    address = cluster.service(GATEWAY)
    with cluster.load(f"http://{address}", ["m"], 50, grpc=address) as load:
        _replace(cluster, CONTROLLER, "set", "image", f"deployment/{CONTROLLER}", f"controller={IMAGE}")
        cluster.until(lambda: _image(cluster, "server-0") == IMAGE and cluster.pod("server-0").ready, 90, "the Server has the controller's image too")
        _replace(cluster, GATEWAY, "rollout", "restart", f"deployment/{GATEWAY}")
        seen = load.good
        cluster.until(lambda: load.good > seen + 100, what="requests are answered after all that")
    load.nothing_lost()

    reader.follow(section(page, "Removing"))
    cluster.until(lambda: not _left(cluster), 90, "nothing is left")


def test_helm_does_the_same_for_two_namespaces_and_leaves_the_kinds(empty: Cluster) -> None:
    """With the guide's command. What Helm writes over our labels and fields of its own must not keep the parts from each other."""
    cluster, chart = empty, str(DEPLOY / "helm/wakeful")
    cluster.helm("install", "wakeful", chart, "--create-namespace", "--set", f"image={IMAGE}")
    for name in (CONTROLLER, GATEWAY):
        cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=110s")
    cluster.helm("upgrade", "wakeful", chart, "--reuse-values", "--set", "storageSecrets=true,controllers=1")
    cluster.until(lambda: len([pod for pod in cluster.pods() if pod.name.startswith(CONTROLLER)]) == 1, 60, "one controller is left")

    other = ("install", "other", chart, "--namespace", "other", "--create-namespace", "--set", "controllers=0,gateways=0")
    assert "cannot be imported into the current release" in cluster.helm(*other, good=False)
    cluster.helm(*other, "--set", "kinds=false")
    cluster.helm("uninstall", "other", "--namespace", "other")

    cluster.helm("uninstall", "wakeful")
    cluster.until(lambda: not cluster.pods(), 120, "its pods are gone")
    assert set(_left(cluster)) == {f"/api/v1/namespaces/{NAMESPACE}", "models.wakeful.dev", "servers.wakeful.dev"}


def _replace(cluster: Cluster, name: str, *command: str) -> None:
    """Returns when no pod from before the command is left."""
    before = {pod.name for pod in cluster.pods() if pod.name.startswith(name)}
    cluster.kubectl(*command)
    cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=110s")
    cluster.until(lambda: not before & {pod.name for pod in cluster.pods()}, 120, f"the pods of {name} from before are gone")


def _image(cluster: Cluster, pod: str) -> str:
    image: str = (cluster.pod(pod).object or {})["spec"]["containers"][0]["image"]
    return image


def _left(cluster: Cluster) -> list[str]:
    """What an installation has brought and is still there."""
    found = [path for path in (f"/api/v1/namespaces/{NAMESPACE}",) if cluster.api.get(path)]
    for version, kind in (
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ):
        found += [one["metadata"]["name"] for one in cluster.api.list(cluster.api.path(version, kind, None)) if "wakeful" in one["metadata"]["name"]]
    return found
