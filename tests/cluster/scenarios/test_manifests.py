"""Manifests and a real API server: what it takes, what it refuses and with which words, and what people see of it.

Scenarios 36 (all that is deployed passes a dry run), 37 (each bad manifest names its field), and the seed's own manifest and commands.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.ground.api import ApiError, Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import ControlPlane
from tests.cluster.ground.manifests import TFSIMPLE
from tests.cluster.test_packaging import DEPLOY
from wakeful.cluster.crds import crds
from wakeful.cluster.dialects import DIALECTS, as_told
from wakeful.cluster.install import install_objects
from wakeful.cluster.manifests import Install, desired_objects
from wakeful.cluster.planning.rollout import StsPatch
from wakeful.cluster.planning.status import Observed, model_status, server_status
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    ModelEntry,
    ModelSpec,
    Owner,
    Placement,
    Replica,
    Scaling,
    ServerEntry,
    ServerSpec,
    State,
    World,
)

pytestmark = pytest.mark.usefixtures("seldon_kinds")
OURS, SELDONS = "wakeful.dev/v1alpha1", "mlops.seldon.io/v1alpha1"


def a_model(**spec: Any) -> Object:
    return {"apiVersion": OURS, "kind": "Model", "metadata": {"name": "m"}, "spec": {"storageUri": "file:///m", **spec}}


def a_server(**spec: Any) -> Object:
    return {"apiVersion": OURS, "kind": "Server", "metadata": {"name": "s"}, "spec": spec}


def named(manifest: Object, name: str) -> Object:
    return {**manifest, "metadata": {"name": name}}


# ── 36 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(cluster: Cluster, kind: str, name: str, version: str = OURS) -> Object:
    found = cluster.view(kind, name, version).object
    assert found is not None
    return found


def dry_run(cluster: Cluster, objects: list[Object]) -> None:
    """Everything but the namespace itself, in the scenario's namespace."""
    for one in objects:
        if one["kind"] != "Namespace":
            metadata = {**one["metadata"], "namespace": cluster.namespace} if "namespace" in one["metadata"] else one["metadata"]
            cluster.apply({**one, "metadata": metadata}, dryRun="All")


BASE, ALL = Install(), Install(seldon=True, storage_secrets=True, custom_metrics=True)
SWITCHED = {"seldon": replace(BASE, seldon=True), "storage-secrets": replace(BASE, storage_secrets=True),
            "custom-metrics": replace(BASE, custom_metrics=True)}
"""Overlays and components of deploy/kustomize, and what they install."""


def kustomized(cluster: Cluster, directory: Path) -> list[Object]:
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(directory))))


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """The namespace aside, which Helm does not make."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] != "Namespace"}


def installed(install: Install) -> dict[tuple[str, str], Object]:
    return by_name([*crds(("wakeful", "seldon") if install.seldon else ("wakeful",)), *install_objects(install)])


@pytest.mark.parametrize(("path", "install"), [("base", BASE), *((f"overlays/{name}", install) for name, install in SWITCHED.items())])
def test_kustomize(cluster: Cluster, path: str, install: Install) -> None:
    made = kustomized(cluster, DEPLOY / "kustomize" / path)
    assert by_name(made) == installed(install)
    dry_run(cluster, made)


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_kustomize_with_a_server(cluster: Cluster, overlay: str) -> None:
    made = kustomized(cluster, DEPLOY / "kustomize/overlays" / overlay)
    [server] = [one for one in made if one["kind"] == "Server"]
    assert by_name(made) == installed(BASE) | by_name([server])
    assert server["metadata"]["namespace"] == BASE.namespace
    dry_run(cluster, made)


def test_what_overlays_add_can_be_had_together(cluster: Cluster, tmp_path: Path) -> None:
    """As the guide says: in a kustomization of one's own, with the same components."""
    base, *components = (os.path.relpath(DEPLOY / "kustomize" / name, tmp_path) for name in ("base", *(f"components/{one}" for one in SWITCHED)))
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "components": components}))
    made = kustomized(cluster, tmp_path)
    assert by_name(made) == installed(ALL)
    dry_run(cluster, made)


def test_an_overlay_with_a_server_is_applied_twice_or_after_the_base(tmp_path: Path) -> None:
    """On a cluster that has nothing yet. As the guide says: kubectl looks up all kinds before it makes any."""
    plane = ControlPlane()
    try:
        cpu, base = str(DEPLOY / "kustomize/overlays/cpu"), str(DEPLOY / "kustomize/base")
        command = [str(plane.programs / "kubectl"), "--kubeconfig", str(plane.kubeconfig_path), "apply", "--server-side", "-k"]
        first, second, third, other = (
            subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env={"HOME": str(tmp_path)})
            for words in ([*command, cpu], [*command, cpu], [*command, base], [*[word for word in command if word != "--server-side"], cpu])
        )
        assert first.returncode == 1
        assert "ensure CRDs are installed first" in first.stderr
        assert (second.returncode, "server.wakeful.dev/server serverside-applied" in second.stdout) == (0, True), second.stderr
        assert third.returncode == 0, third.stderr
        assert other.returncode == 0, other.stderr  # the other way of kubectl to apply takes it as it is
    finally:
        plane.close()


@pytest.mark.parametrize(("values", "install"), [
    ({}, BASE), ({"seldon": True}, SWITCHED["seldon"]), ({"storageSecrets": True}, SWITCHED["storage-secrets"]),
    ({"customMetrics": True}, SWITCHED["custom-metrics"]),
    ({"image": "registry.example/wakeful:0.1", "envoy": "registry.example/envoy@sha256:00", "controllers": 1, "gateways": 3,
      "seldon": True, "storageSecrets": True, "customMetrics": True},
     replace(ALL, image="registry.example/wakeful:0.1", envoy="registry.example/envoy@sha256:00", controllers=1, gateways=3)),
])
def test_helm(cluster: Cluster, values: dict[str, Any], install: Install) -> None:
    """By Helm itself, with each of its values; what it makes is what kustomize makes but for the note that keeps the kinds."""
    made = template(cluster, values)
    for one in made:
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert by_name(made) == installed(replace(install, namespace=cluster.namespace))
    dry_run(cluster, made)


def test_helm_without_the_kinds(cluster: Cluster) -> None:
    made = template(cluster, {"kinds": False, "seldon": True})
    assert by_name(made) == by_name(install_objects(Install(namespace=cluster.namespace, seldon=True)))


def template(cluster: Cluster, values: dict[str, Any]) -> list[Object]:
    chart = str(DEPLOY / "helm/wakeful")
    told = cluster.helm("lint", "--strict", chart)
    assert "0 chart(s) failed" in told
    words = [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    return [one for one in yaml.safe_load_all(cluster.helm("template", "wakeful", chart, *words)) if one]


def test_the_objects_of_a_server(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "beside", "image": "other"}]}}
    claim = {"metadata": {"name": "scratch"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    written = a_server(
        replicas=2, capabilities=["gpu"], resources={"limits": {"memory": "1Gi"}}, cache={"size": "5Gi", "claimName": "models", "maxDownloads": 2},
        config={"server": {"grpc_port": False}}, podTemplate=template, volumeClaimTemplates=[claim],
    )
    cluster.apply(written)
    server = DIALECTS["wakeful"].server(read(cluster, "Server", "s"))

    dry_run(cluster, desired_objects(server, Install(namespace=cluster.namespace), StsPatch(3, 2, True)))


# ── 37 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD: list[tuple[Object, str]] = [
    (named(a_model(), "Fraud"), "metadata.name"),
    (named(a_model(), "a.b"), "metadata.name: Invalid value: a model's name is a DNS label"),
    ({**a_model(), "spec": {}}, "spec.storageUri"),
    (a_model(storageUri="ftp://x"), "spec.storageUri"),
    (a_model(memory="lots"), "spec.memory"),
    (a_model(memory=-5), "spec.memory"),
    (a_model(memory="100GB"), "spec.memory"),
    (a_model(replicas=-1), "spec.replicas"),
    (a_model(replicas="two"), "spec.replicas"),
    (a_model(minReplicas=3, maxReplicas=2), "spec.minReplicas: Invalid value: minReplicas is above maxReplicas"),
    (a_model(replicas=1, minReplicas=2), "spec.replicas: Invalid value: replicas is below minReplicas"),
    (a_model(maxReplicas=0), "spec.maxReplicas"),
    (a_model(autoscaling={"lagThreshold": 3}), "spec.autoscaling: Invalid value: autoscaling needs minReplicas or maxReplicas"),
    (a_model(minReplicas=1, autoscaling={"busyPercent": 99}), "spec.autoscaling.busyPercent"),
    (a_model(requirements=["a", "a"]), "spec.requirements"),
    (a_model(minReplica=1), "spec.minReplica"),
    (a_model(serving={"max_batch": 8}), "spec.serving.max_batch"),
    (a_model(serving={"max_batch_size": 0}), "spec.serving.max_batch_size"),
    (a_model(serving={"batching": "sometimes"}), "spec.serving.batching"),
    (a_model(serving={"pad": {"value": 1}}), "spec.serving.pad.axis"),
    (a_model(serving={"warmup": [{"rows": 0}]}), "spec.serving.warmup[0].rows"),
    (a_model(serving={"pinned": True}), "spec.serving.pinned"),
    (named(a_server(), "1st"), "metadata.name: Invalid value: a server's name is a DNS label"),
    (a_server(surge=2), "spec.surge"),
    (a_server(terminationGracePeriodSeconds=0), "spec.terminationGracePeriodSeconds"),
    (a_server(overcommitPercent=-1), "spec.overcommitPercent"),
    (a_server(cache={"size": "big"}), "spec.cache.size"),
    (a_server(resources={"limts": {}}), "spec.resources.limts"),
    (a_server(config={"server": {"prot": 1}}), "spec.config.server.prot"),
    (a_server(config={"server": {"host": "0.0.0.0"}}), "spec.config.server.host"),
    (a_server(config={"models": []}), "spec.config.models"),
    (a_server(config={"auth": {"api_keys": [{"key": "open"}]}}), "spec.config.auth.api_keys[0].key"),
    (a_server(volumeClaimTemplates=[{"spec": {}}]), "spec.volumeClaimTemplates[0].metadata"),
    ({"apiVersion": SELDONS, "kind": "Server", "metadata": {"name": "s"}, "spec": {}}, "spec.serverConfig"),
]


def test_every_mistake_is_named_by_its_field(cluster: Cluster) -> None:
    for manifest, field in BAD:
        told = cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest), good=False)
        assert field in told, f"{field} is not named: {told}"


def test_all_mistakes_are_told_at_once(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.apply(a_model(replicas=-1, memory="lots", serving={"threads": 2, "queue_limit": 0}))

    assert set(refused.value.fields) >= {"spec.replicas", "spec.memory", "spec.serving.queue_limit"}


def test_everything_that_the_daemons_loader_takes_is_taken(cluster: Cluster) -> None:
    serving = {
        "threads": "auto", "versions": "latest", "memory_limit": "3MiB", "pad": {"axis": 1, "value": 0, "buckets": [8]}, "max_delay_ms": 2.5,
        "warmup": [{"sizes": {"L": 8}, "shapes": {"x": [1, 3]}, "data": "random"}], "text": {"pooling": "cls"}, "target_p99_ms": 50,
    }
    config = {
        "server": {"port": 9000, "grpc_port": False, "max_body": "1MiB", "max_header": 2048}, "defaults": {"memory_limit": "80%", "threads": 2},
        "auth": {"enabled": True, "api_keys": [{"role": "read_only", "key_env": "KEY", "name": "x"}], "jwt": {"secret_env": "S"}},
    }
    cluster.apply(a_model(serving=serving), named(a_model(serving={"threads": 3, "versions": [1, 2], "memory_limit": 4096}), "n"))
    cluster.apply(a_server(config=config))

    assert read(cluster, "Model", "m")["spec"]["serving"] == serving
    assert read(cluster, "Server", "s")["spec"]["config"] == config
    assert DIALECTS["wakeful"].model(read(cluster, "Model", "m")).errors == ()
    assert DIALECTS["wakeful"].server(read(cluster, "Server", "s")).errors == ()


# ── the seed ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("group", [OURS, SELDONS])
def test_the_seeds_manifest_is_taken_as_it_stands(cluster: Cluster, group: str, tmp_path: Path) -> None:
    (tmp_path / "tfsimple.yaml").write_text(TFSIMPLE.format(group=group.removesuffix("/v1alpha1")))
    assert cluster.kubectl("apply", "-f", str(tmp_path / "tfsimple.yaml")).strip() == f"model.{group.partition('/')[0]}/tfsimple created"

    spec = DIALECTS["wakeful" if group == OURS else "seldon"].model(read(cluster, "Model", "tfsimple", group))
    assert (spec.bounds, spec.memory, spec.requirements, spec.errors) == (Bounds(1, 1), 102400, frozenset({"tensorflow"}), ())
    assert cluster.kubectl("apply", "-f", str(tmp_path / "tfsimple.yaml")).strip().endswith("unchanged")


@pytest.mark.parametrize(("group", "resource"), [(OURS, "servers.wakeful.dev"), (SELDONS, "server")])
def test_the_seeds_command_makes_an_autoscaler(cluster: Cluster, group: str, resource: str) -> None:
    """Where both groups are, `server` alone means Seldon's: kubectl takes the first in the alphabet. Ours alone: test_01_hpa_on_cpu.py."""
    spec = {} if group == OURS else {"serverConfig": "triton"}
    cluster.apply({"apiVersion": group, "kind": "Server", "metadata": {"name": "triton"}, "spec": spec})
    cluster.kubectl("autoscale", resource, "triton", "--cpu-percent=50", "--min=1", "--max=5")

    target = read(cluster, "HorizontalPodAutoscaler", "triton", "autoscaling/v2")["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": group, "kind": "Server", "name": "triton"}
    cluster.kubectl("scale", resource, "triton", "--replicas=3")
    assert read(cluster, "Server", "triton", group)["spec"]["replicas"] == 3


# ── what people see ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

NOW = 1_800_000_000.0


def _world() -> World:
    spec = ModelSpec("m", "file:///m", "r1", generation=1, bounds=Bounds(2, 1))
    scaling = Scaling(Owner.SCHEDULER, 2, "2", NOW, "1 → 2: lag 41")
    entry = ModelEntry(spec, scaling, artifact="a", artifact_bytes=1, footprint=2, revision_failed="r0")
    entry.placements = {
        "u0": Placement("u0", "s-0", State.ROUTED, "r1", NOW),
        "u1": Placement("u1", "s-1", State.FAILED, "r1", NOW, 2, "no such file", "r0"),
    }
    agent = Agent(frozenset(), 1 << 30, 8080, None, NOW)
    replicas = {f"u{number}": Replica(f"u{number}", f"s-{number}", "s", number, ready=True, agent=agent) for number in range(2)}
    return World({"m": entry}, {"s": ServerEntry(ServerSpec("s", bounds=Bounds(2)), Scaling(Owner.USER, 2, "2"))}, replicas)


@pytest.mark.parametrize("dialect", ["wakeful", "seldon"])
def test_statuses_are_kept_whole_and_shown_in_columns(cluster: Cluster, dialect: Any) -> None:
    world, group = _world(), DIALECTS[dialect].group
    statuses = {
        "Model": model_status(world.models["m"], world, {}, NOW),
        "Server": server_status(world.servers["s"], world, Observed(2, False, "", 100, 60, 40), {}, NOW),
    }
    specs: dict[str, Object] = {"Model": {"storageUri": "file:///m"}, "Server": {} if dialect == "wakeful" else {"serverConfig": "triton"}}
    for kind, name in (("Model", "m"), ("Server", "s")):
        cluster.apply({"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": specs[kind]})
        told = as_told(dialect, kind, statuses[kind])  # type: ignore[arg-type]  # one of the two words
        path = cluster.api.path(f"{group}/v1alpha1", kind, cluster.namespace, name, "status")
        answer = cluster.api.call("PATCH", path, {"status": told}, "application/merge-patch+json", fieldValidation="Strict")
        assert answer["status"] == told

    models = cluster.kubectl("get", f"models.{group}").splitlines()
    assert models[0].split() == ["NAME", "READY", "STATE", "DESIRED", "AVAILABLE", "SERVER", "AGE"]
    assert models[1].split()[:6] == ["m", "True", "Degraded", "2", "1", "s"]
    servers = cluster.kubectl("get", f"servers.{group}").splitlines()
    assert servers[0].split() == ["NAME", "READY", "DESIRED", "REPLICAS", "LOADED", "SCALED-BY", "AGE"]
    assert servers[1].split()[:6] == ["s", "True", "2", "2", "1", "User"]
    assert "r0 failed on s-1: no such file; the one before serves on" in cluster.kubectl("get", f"models.{group}", "-o", "wide")


def test_every_key_is_explained(cluster: Cluster) -> None:
    told = cluster.kubectl("explain", "models.wakeful.dev.spec.serving.max_batch_size")

    assert "most rows in one run" in " ".join(told.split())


def test_models_are_found_by_state_and_server(cluster: Cluster) -> None:
    cluster.apply(a_model(server="one"), named(a_model(server="two"), "n"))

    assert cluster.kubectl("get", "models.wakeful.dev", "--field-selector", "spec.server=two", "-o", "name").strip() == "model.wakeful.dev/n"


def test_the_printed_kinds_are_those_that_are_installed(cluster: Cluster) -> None:
    for crd in crds(("wakeful", "seldon")):
        cluster.apply(crd, dryRun="All")
