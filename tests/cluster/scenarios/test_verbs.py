"""The verbs of `wakeful cluster` that read a cluster, on a real API server. What they make of it: tests/cli/test_cluster_verbs.py."""

import os
import subprocess
import sys

import pytest

from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import TOKEN

pytestmark = pytest.mark.usefixtures("seldon_kinds")

MODEL = """
apiVersion: {group}/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec: {{storageUri: "gs://models/{name}", requirements: [onnx]}}
"""


def _wakeful(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = cluster.plane.kubeconfig(TOKEN, cluster.directory / "kubeconfig", cluster.namespace)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-m", "wakeful", "cluster", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def test_models_are_listed_and_explained(cluster: Cluster) -> None:
    assert _wakeful(cluster, "models").stderr == f"there is no Model in namespace {cluster.namespace}; --namespace NAME looks into another one\n"
    cluster.apply(MODEL.format(group="wakeful.dev", name="ours"), MODEL.format(group="mlops.seldon.io", name="theirs"))
    listed = _wakeful(cluster, "models")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["NAME", "ours", "theirs"]
    for name in ("ours", "theirs"):
        page = _wakeful(cluster, "explain", name).stdout
        assert page.startswith(f"{name}: no controller has looked at it")
        assert f"gs://models/{name}" in page
    absent = _wakeful(cluster, "explain", "absent")
    assert absent.returncode == 1
    assert absent.stderr.startswith(f"error: there is no Model absent in namespace {cluster.namespace}\n")


def test_a_cluster_that_does_not_answer_is_told(cluster: Cluster) -> None:
    kubeconfig = cluster.plane.kubeconfig(TOKEN, cluster.directory / "elsewhere", cluster.namespace)
    kubeconfig.write_text(kubeconfig.read_text().replace(":6443", ":9"))
    done = _wakeful(cluster, "models", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert done.stderr.startswith("error: the API server was not reached: ")
