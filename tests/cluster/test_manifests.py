"""What a Server is made of. Whether a real API server takes it: scenarios/test_manifests.py."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wakeful.cluster.manifests import Install, desired_objects, template_digest
from wakeful.cluster.planning.rollout import StsPatch
from wakeful.cluster.planning.world import ServerSpec
from wakeful.config.load import Options, load
from wakeful.config.schema import ClusterTable

INSTALL = Install(namespace="ns")
SERVER = ServerSpec("triton", uid="u1")
ONE = StsPatch(1, 0)


def made(server: ServerSpec, kind: str, patch: StsPatch = ONE) -> dict[str, Any]:
    (found,) = (one for one in desired_objects(server, INSTALL, patch) if one["kind"] == kind)
    return found


def pod(server: ServerSpec) -> dict[str, Any]:
    spec: dict[str, Any] = made(server, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def daemon(server: ServerSpec) -> dict[str, Any]:
    container: dict[str, Any] = pod(server)["containers"][0]
    return container


def variables(server: ServerSpec) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in daemon(server)["env"]}


def test_every_object_is_owned_and_labelled() -> None:
    for one in desired_objects(SERVER, INSTALL, ONE):
        assert one["metadata"]["namespace"] == "ns"
        assert one["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "wakeful", "wakeful.dev/server": "triton"}
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["uid"]) == ("wakeful.dev/v1alpha1", "Server", "u1")
    (seldons,) = made(replace(SERVER, dialect="seldon"), "Service")["metadata"]["ownerReferences"]
    assert seldons["apiVersion"] == "mlops.seldon.io/v1alpha1"


def test_the_rollout_decides_replicas_and_partition() -> None:
    sts = made(SERVER, "StatefulSet", StsPatch(3, 2, True))

    assert (sts["spec"]["replicas"], sts["spec"]["updateStrategy"]["rollingUpdate"]) == (3, {"partition": 2})
    assert sts["spec"]["podManagementPolicy"] == "Parallel"
    assert sts["metadata"]["annotations"]["wakeful.dev/surging"] == "true"


def test_a_pod_has_no_rights() -> None:
    spec, container = pod(SERVER), daemon(SERVER)

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    (token,) = (volume["projected"]["sources"][0]["serviceAccountToken"] for volume in spec["volumes"] if volume["name"] == "token")
    assert token["audience"] == "wakeful"


def test_an_autoscaler_finds_requests() -> None:
    assert daemon(SERVER)["resources"] == {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    assert daemon(replace(SERVER, resources={"limits": {"cpu": 2, "memory": "4Gi"}}))["resources"] == {
        "requests": {}, "limits": {"cpu": 2, "memory": "4Gi"}}
    assert daemon(replace(SERVER, resources={"requests": {"memory": "1Gi"}}))["resources"] == {"requests": {"memory": "1Gi", "cpu": "500m"}}


def test_the_file_is_one_that_the_daemon_loads(tmp_path: Any) -> None:
    config = {
        "server": {"port": 9000, "grpc_port": False}, "defaults": {"memory_limit": "80%", "pad": {"axis": 1, "buckets": [8, 16]}},
        "auth": {"api_keys": [{"role": "inference", "key_env": "KEY"}], "enabled": True},
    }
    server = replace(SERVER, config=config)
    text = made(server, "ConfigMap")["data"]["wakeful.toml"]
    (tmp_path / "wakeful.toml").write_text(text)
    settings = load(Options(config=tmp_path / "wakeful.toml"), {"HOME": str(tmp_path), "KEY": "x" * 32})

    assert (settings.server.host, settings.server.port, settings.server.grpc_port) == ("0.0.0.0", 9000, None)
    assert settings.memory.limit == 0.8
    assert settings.auth.enabled
    assert tomllib.loads(text)["defaults"] == config["defaults"]
    assert [port["containerPort"] for port in daemon(server)["ports"]] == [9000]
    assert [port["port"] for port in made(server, "Service")["spec"]["ports"]] == [9000]


def test_what_the_agent_is_told() -> None:
    told = variables(replace(SERVER, capabilities=frozenset({"b", "a"}), grace=30.0, cache={"maxDownloads": 3, "size": "10Gi"}))

    assert told["POD_UID"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
    assert {name.removeprefix("WAKEFUL_CLUSTER_"): value for name, value in told.items() if name.startswith("WAKEFUL")} == {
        "CONTROLLERS": "wakeful-controller:9100", "SERVER": "triton", "TOKEN_FILE": "/var/run/secrets/wakeful/token",
        "CA_FILE": "/etc/wakeful-ca/ca.crt", "GRACE_SECS": "30", "CAPABILITIES": "a,b", "MAX_DOWNLOADS": "3", "ARTIFACTS_LIMIT": str(10 << 30),
    }


def test_the_pods_variables_are_ones_that_the_daemon_knows(tmp_path: Any) -> None:
    text = made(SERVER, "ConfigMap")["data"]["wakeful.toml"]
    (tmp_path / "wakeful.toml").write_text(text)
    server = replace(SERVER, capabilities=frozenset("a"), cache={"size": "1Gi", "maxDownloads": 3})
    environ = {name: value if isinstance(value, str) else "x" for name, value in variables(server).items()}
    settings = load(Options(config=tmp_path / "wakeful.toml"), {"HOME": str(tmp_path), **environ})

    assert settings.warnings == ()
    assert settings.cluster is not None
    assert (settings.cluster.server, settings.cluster.grace, settings.cluster.artifacts_limit, settings.cluster.max_downloads) == (
        "triton", 120.0, 1 << 30, 3)


def test_the_users_template_is_merged_but_the_drain_stays_ours() -> None:
    template = {"metadata": {"labels": {"team": "a", "wakeful.dev/server": "other"}, "annotations": {"x": "y"}}, "spec": {
        "terminationGracePeriodSeconds": 1, "nodeSelector": {"gpu": "yes"},
        "containers": [
            {"name": "wakeful", "env": [{"name": "A", "value": "1"}], "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
            {"name": "beside", "image": "other"},
        ],
    }}
    server = replace(SERVER, pod_template=template)
    metadata = made(server, "StatefulSet")["spec"]["template"]["metadata"]

    assert metadata["labels"].items() >= {"team": "a", "wakeful.dev/server": "triton"}.items()
    assert metadata["annotations"] == {"x": "y"}
    assert pod(server)["nodeSelector"] == {"gpu": "yes"}
    assert pod(server)["terminationGracePeriodSeconds"] == 120
    assert daemon(server)["lifecycle"] == {"preStop": {"exec": {"command": ["wakeful", "cluster", "drain"]}}}
    assert variables(server)["A"] == "1"
    assert [container["name"] for container in pod(server)["containers"]] == ["wakeful", "beside"]


@pytest.mark.parametrize(("change", "replaces_pods"), [
    ({"image": "other"}, True), ({"config": {"defaults": {"threads": 1}}}, True), ({"grace": 30.0}, True), ({"capabilities": frozenset("a")}, True),
    ({"resources": {"limits": {"memory": "1Gi"}}}, True), ({"overcommit": 0.5}, False), ({"surge": 0}, False), ({"generation": 9}, False),
    ({"model_autoscaling": {"busy": 0.5}}, False),
])
def test_pods_are_replaced_only_for_what_they_are_made_of(change: dict[str, Any], replaces_pods: bool) -> None:
    changed = template_digest(replace(SERVER, **change), INSTALL) != template_digest(SERVER, INSTALL)

    assert changed is replaces_pods


def test_the_digest_is_on_the_pods() -> None:
    sts, digest = made(SERVER, "StatefulSet"), template_digest(SERVER, INSTALL)

    assert sts["spec"]["template"]["metadata"]["labels"]["wakeful.dev/template"] == digest
    assert sts["metadata"]["annotations"]["wakeful.dev/template"] == digest
    assert "wakeful.dev/template" not in sts["spec"]["selector"]["matchLabels"]


def test_a_shared_cache() -> None:
    shared = replace(SERVER, cache={"claimName": "models"})

    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "models"}} in pod(shared)["volumes"]
    assert {"name": "cache", "mountPath": str(Path(ClusterTable.model_fields["state_dir"].default, "artifacts"))} in daemon(shared)["volumeMounts"]


def test_one_at_a_time_may_be_disrupted() -> None:
    assert made(SERVER, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
