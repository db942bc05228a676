"""`wakeful cluster crds`, `manifests` and `convert`: manifests on stdout, and on stderr what cannot be as it was."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from wakeful.cli.main import main
from wakeful.cluster.crds import crds
from wakeful.cluster.install import install_objects
from wakeful.cluster.manifests import Install
from wakeful.config.models import DEMO_DIR

SELDONS = """\
apiVersion: mlops.seldon.io/v1alpha1
kind: Model
metadata: {name: tfsimple, namespace: ours}
spec: {storageUri: "gs://seldon-models/triton/simple", requirements: [tensorflow], memory: 100Ki, minReplicas: 1, replicas: 1}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: triton}
spec: {scaleTargetRef: {apiVersion: mlops.seldon.io/v1alpha1, kind: Server, name: triton}, minReplicas: 1, maxReplicas: 5}
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    shutil.copy(DEMO_DIR / "digits.onnx", tmp_path / "digits.onnx")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[Any], str]:
    status = main(["cluster", *map(str, arguments)], 0.0)
    out, err = capsys.readouterr()
    return status, list(yaml.safe_load_all(out)), err


def test_crds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "crds") == (0, crds(), "")
    assert run(capsys, "crds", "--seldon") == (0, crds(("wakeful", "seldon")), "")


def test_an_installation(capsys: pytest.CaptureFixture[str]) -> None:
    status, objects, _ = run(capsys, "manifests", "-n", "ours", "--image", "mine:1", "--gateways", "3", "--seldon")

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours"}}
    assert status == 0
    assert objects == [
        namespace, *crds(("wakeful", "seldon")), *install_objects(Install(namespace="ours", image="mine:1", gateways=3, seldon=True))]


def test_a_hosts_file(capsys: pytest.CaptureFixture[str], host: Path) -> None:
    (host / "wakeful.toml").write_text("""\
[server]
host = "127.0.0.1"
port = 9000
[defaults]
idle_timeout_secs = 60
[[models]]
id = "digits"
path = "digits.onnx"
backend = "onnx"
pinned = true
max_batch_size = 8
[[models]]
id = "search/Two"
path = "digits.onnx"
""")
    status, objects, told = run(capsys, "manifests", host / "wakeful.toml", "--no-install", "-n", "ours", "--server", "cpu", "--storage", "s3://b/m/")

    server, digits, two = objects
    assert status == 0
    assert server["spec"] == {"config": {"server": {"port": 9000}, "defaults": {"idle_timeout_secs": 60}}}
    assert (server["kind"], server["metadata"]) == ("Server", {"name": "cpu", "namespace": "ours"})
    assert digits["spec"] == {"storageUri": "s3://b/m/digits.onnx", "backend": "onnx", "pinned": True, "serving": {"max_batch_size": 8}}
    assert two["metadata"]["name"] == "search-two"
    assert told.splitlines() == [
        "warning: server.host: left out, it follows from the pod",
        "warning: the model search/Two is called search-two in the cluster, in requests as well",
    ]


def test_models_that_were_found_by_looking(capsys: pytest.CaptureFixture[str], host: Path) -> None:
    (host / "models").mkdir()
    shutil.move(host / "digits.onnx", host / "models" / "digits.onnx")
    (host / "models" / "digits.onnx.toml").write_text("max_batch_size = 4\n")
    (host / "wakeful.toml").write_text('[server]\nmodels_dir = "models"\n')
    _, (_, digits), told = run(capsys, "manifests", host / "wakeful.toml", "--no-install")

    assert digits["spec"] == {"storageUri": f"file://{host}/models/digits.onnx", "serving": {"max_batch_size": 4}}
    assert "has to be in every pod; --storage says where" in told


@pytest.mark.parametrize(("text", "complaint"), [
    ('[[auth.api_keys]]\nkey = "0123456789abcdef0"\n', "auth.api_keys[0].key: a secret does not belong into a manifest; write key_env"),
    ('[[models]]\nid = "a.b"\npath = "digits.onnx"\n[[models]]\nid = "a_b"\npath = "digits.onnx"\n', "would both be called a-b"),
    ("[server]\nprot = 1\n", "`prot` is not a setting of [server]"),
])
def test_what_cannot_be(capsys: pytest.CaptureFixture[str], host: Path, text: str, complaint: str) -> None:
    (host / "wakeful.toml").write_text(text)
    status, objects, told = run(capsys, "manifests", host / "wakeful.toml", "--no-install")

    assert (status, objects) == (1, [])
    assert complaint in told


def test_pipelines_are_told(capsys: pytest.CaptureFixture[str], host: Path) -> None:
    (host / "wakeful.toml").write_text('[[models]]\nid = "a"\npath = "digits.onnx"\n[[pipelines]]\nid = "p"\nsteps = [{ model = "a" }]\n')

    assert "warning: pipelines: not in a cluster" in run(capsys, "manifests", host / "wakeful.toml", "--no-install")[2]


def test_nothing_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "manifests", "--no-install")[0] == 2


def test_conversion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SELDONS)
    status, (model, autoscaler), told = run(capsys, "convert", tmp_path / "a.yaml")

    assert (status, told) == (0, "")
    assert (model["apiVersion"], model["metadata"]) == ("wakeful.dev/v1alpha1", {"name": "tfsimple", "namespace": "ours"})
    assert model["spec"] == {
        "storageUri": "gs://seldon-models/triton/simple", "memory": "100Ki", "replicas": 1, "minReplicas": 1, "requirements": ["tensorflow"]}
    assert autoscaler["spec"]["scaleTargetRef"] == {"apiVersion": "wakeful.dev/v1alpha1", "kind": "Server", "name": "triton"}


@pytest.mark.parametrize(("text", "status", "word"), [
    (SELDONS.replace("replicas: 1}", "replicas: 1, logger: {percent: 5}}"), 0, "warning: Model tfsimple: spec.logger: not supported, and of no"),
    (SELDONS.replace("replicas: 1}", "replicas: 1, llm: {modelRef: x}}"), 1, "error: Model tfsimple: spec.llm: not supported: language models"),
    (SELDONS.replace("kind: Model", "kind: Pipeline"), 1, "error: Pipeline tfsimple: not supported: there is no Pipeline here"),
    ("kind: [", 2, "cannot be read: while parsing"),
    ("a: 1", 2, "document 1 is no object of Kubernetes: apiVersion, kind and metadata are expected"),
])
def test_conversion_tells_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, status: int, word: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    found, _, told = run(capsys, "convert", tmp_path / "a.yaml")

    assert found == status
    assert word in told


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "No such file" in run(capsys, "convert", tmp_path / "no.yaml")[2]
