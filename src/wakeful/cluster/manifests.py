"""What a Server is made of in Kubernetes: a StatefulSet with its Service, its ConfigMap and its disruption budget. Pure.

The controller applies these under the field manager `wakeful`. The pod's template carries a digest of itself as a label: by it the controller knows
which pods have it, however far the StatefulSet's own status lags behind.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from wakeful.cluster.groups import GROUPS, VERSION
from wakeful.cluster.overlay import overlaid
from wakeful.cluster.planning.rollout import StsPatch
from wakeful.cluster.planning.status import SERVER_LABEL
from wakeful.cluster.planning.world import ServerSpec
from wakeful.cluster.quantities import whole
from wakeful.config.effective import written

Manifest = dict[str, Any]

DAEMON = "wakeful"
"""Name of the container of a Server's pods, under which `podTemplate` may add to it."""
TEMPLATE_LABEL, SURGING = "wakeful.dev/template", "wakeful.dev/surging"
"""Label of pods and annotation of the StatefulSet; annotation of the StatefulSet."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "wakeful"}
CONTROLLER, CONTROLLER_PORT, CONTROLLER_HTTP = "wakeful-controller", 9100, 9102
CUSTOM_METRICS, CUSTOM_METRICS_PORT, CUSTOM_METRICS_LEADER = "wakeful-custom-metrics", 9103, 9104
"""Service and port where the API server asks; port at which the leader alone answers, and to which all controllers pass on what is asked."""
SERVER_ACCOUNT = "wakeful-server"
CA, CA_FILE = "wakeful-ca", "/etc/wakeful-ca/ca.crt"
"""The ConfigMap with the certificate that the controller's is signed by."""
AUDIENCE, TOKEN_DIR = "wakeful", "/var/run/secrets/wakeful"
USER = 65532
HTTP_PORT, GRPC_PORT = 8080, 50051
DEFAULT_CPU, DEFAULT_MEMORY = "500m", "2Gi"
"""Where `spec.resources` says nothing: without a CPU request an autoscaler on CPU has no percentage to go by, and without a limit of memory a pod
would take its node's for its own."""


@dataclass(frozen=True, slots=True)
class Install:
    """What differs between one installation and another. Names of images have no host: a registry is the cluster's own affair."""

    namespace: str = "wakeful"
    image: str = "wakeful:latest"
    envoy: str = "envoy:v1.40"
    controllers: int = 2
    gateways: int = 2
    seldon: bool = False
    """Models and Servers of Seldon's group count too."""
    storage_secrets: bool = False
    """Models may name Secrets with keys of their storage, and the controller may read those."""
    custom_metrics: bool = False
    """The controller answers for custom.metrics.k8s.io, of which a cluster has one."""


def desired_objects(server: ServerSpec, install: Install, patch: StsPatch) -> list[Manifest]:
    """Everything that is to exist for a Server, but its pods. `patch` is `rollout`'s."""
    return [_service(server, install), _config_map(server, install), _stateful_set(server, install, patch), _disruption_budget(server, install)]


def template_digest(server: ServerSpec, install: Install) -> str:
    """Changes when pods have to be replaced: with their template, and with the file that they read when they start."""
    whole = json.dumps([_pod_template(server, install), config_text(server)], sort_keys=True)
    return sha256(whole.encode()).hexdigest()[:16]


def config_text(server: ServerSpec) -> str:
    """wakeful.toml of its pods. Who may reach them is the network policy's, so that no key is asked for unless `config.auth` says so."""
    tables = {name: dict(keys) for name, keys in server.config.items()}
    tables["server"] = {**tables.get("server", {}), "host": "0.0.0.0", "insecure": True, "cache_dir": "/var/lib/wakeful/prepared"}  # noqa: S104 - above
    return "\n".join("\n".join([f"[{name}]", *(f"{key} = {written(value)}" for key, value in keys.items()), ""]) for name, keys in tables.items())


# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _head(server: ServerSpec, install: Install, kind: str, api: str, name: str = "") -> Manifest:
    owner = {"apiVersion": f"{GROUPS[server.dialect]}/{VERSION}", "kind": "Server", "name": server.name, "uid": server.uid, "controller": True}
    metadata: Manifest = {
        "name": name or server.name, "namespace": install.namespace, "labels": {**MANAGED_BY, SERVER_LABEL: server.name},
    }
    return {"apiVersion": api, "kind": kind, "metadata": metadata | ({"ownerReferences": [owner]} if server.uid else {})}


def _service(server: ServerSpec, install: Install) -> Manifest:
    ports = [{"name": name, "port": port, "targetPort": name} for name, port in _ports(server).items()]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {SERVER_LABEL: server.name}, "ports": ports}
    return {**_head(server, install, "Service", "v1"), "spec": spec}


def _config_map(server: ServerSpec, install: Install) -> Manifest:
    return {**_head(server, install, "ConfigMap", "v1", _config_name(server)), "data": {"wakeful.toml": config_text(server)}}


def _config_name(server: ServerSpec) -> str:
    return f"{server.name}-config"


def _stateful_set(server: ServerSpec, install: Install, patch: StsPatch) -> Manifest:
    made = _head(server, install, "StatefulSet", "apps/v1")
    digest = template_digest(server, install)
    made["metadata"]["annotations"] = {TEMPLATE_LABEL: digest, SURGING: json.dumps(patch.surging)}
    template = _pod_template(server, install)
    template["metadata"]["labels"] |= {TEMPLATE_LABEL: digest}
    spec = {
        "replicas": patch.replicas, "serviceName": server.name, "podManagementPolicy": "Parallel", "revisionHistoryLimit": 3,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": patch.partition}},
        "selector": {"matchLabels": {SERVER_LABEL: server.name}},
        "template": template,
    }
    return {**made, "spec": spec | ({"volumeClaimTemplates": list(server.volume_claim_templates)} if server.volume_claim_templates else {})}


def _disruption_budget(server: ServerSpec, install: Install) -> Manifest:
    spec = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": {SERVER_LABEL: server.name}}}
    return {**_head(server, install, "PodDisruptionBudget", "policy/v1"), "spec": spec}


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pod_template(server: ServerSpec, install: Install) -> Manifest:
    """Ours with the user's over it, and what keeps models from being lost over that: the hook that drains, and its time."""
    ours: Manifest = {
        "metadata": {"labels": {}, "annotations": {}},
        "spec": {
            "serviceAccountName": SERVER_ACCOUNT, "automountServiceAccountToken": False, "enableServiceLinks": False,
            "securityContext": pod_security(), "containers": [_container(server, install)], "volumes": _volumes(server),
        },
    }
    made = overlaid(ours, server.pod_template)
    made["metadata"]["labels"] |= {**MANAGED_BY, SERVER_LABEL: server.name}
    made["spec"]["terminationGracePeriodSeconds"] = int(server.grace)
    daemon = next(container for container in made["spec"]["containers"] if container["name"] == DAEMON)
    daemon["lifecycle"] = {**daemon.get("lifecycle", {}), "preStop": {"exec": {"command": ["wakeful", "cluster", "drain"]}}}
    return made


def pod_security() -> Manifest:
    return {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security() -> Manifest:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def from_field(name: str, path: str) -> Manifest:
    """A variable that Kubernetes fills from the pod itself. The default is written out: else kubectl's two ways to apply come into conflict."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _container(server: ServerSpec, install: Install) -> Manifest:
    ports = _ports(server)
    return {
        "name": DAEMON, "image": server.image or install.image, "command": ["wakeful", "serve", "--config", "/etc/wakeful/wakeful.toml"],
        "env": _variables(server),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "resources": _resources(server.resources),
        "securityContext": container_security(),
        "startupProbe": probe("/v2/health/live", "http", period=1, failures=120),
        "readinessProbe": probe("/v2/health/ready", "http", period=2, failures=2),
        "livenessProbe": probe("/v2/health/live", "http", period=10, failures=3),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/wakeful", "readOnly": True}, {"name": "state", "mountPath": "/var/lib/wakeful"},
            {"name": "run", "mountPath": "/run/wakeful"}, {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod
            token_mount(), ca_mount(),
            *([{"name": "cache", "mountPath": "/var/lib/wakeful/artifacts"}] if "claimName" in server.cache else []),
        ],
    }


def probe(path: str, port: str | int, period: int, failures: int) -> Manifest:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 2}


def _variables(server: ServerSpec) -> list[Manifest]:
    given = {
        "CONTROLLERS": f"{CONTROLLER}:{CONTROLLER_PORT}", "SERVER": server.name, "TOKEN_FILE": f"{TOKEN_DIR}/token", "CA_FILE": CA_FILE,
        "GRACE_SECS": f"{server.grace:g}",
    }
    if server.capabilities is not None:
        given["CAPABILITIES"] = ",".join(sorted(server.capabilities))
    if "maxDownloads" in server.cache:
        given["MAX_DOWNLOADS"] = str(server.cache["maxDownloads"])
    if "size" in server.cache:
        given["ARTIFACTS_LIMIT"] = str(whole(server.cache["size"]))
    return [
        from_field("POD_NAME", "metadata.name"), from_field("POD_UID", "metadata.uid"), from_field("POD_NAMESPACE", "metadata.namespace"),
        from_field("POD_IP", "status.podIP"), *({"name": f"WAKEFUL_CLUSTER_{name}", "value": value} for name, value in given.items()),
    ]


def _ports(server: ServerSpec) -> dict[str, int]:
    said = server.config.get("server", {})
    grpc = said.get("grpc_port", GRPC_PORT)
    return {"http": said.get("port", HTTP_PORT)} | ({"grpc": grpc} if type(grpc) is int else {})


def _resources(said: Mapping[str, Any]) -> Manifest:
    requests, limits = dict(said.get("requests", {})), dict(said.get("limits", {}))
    if "cpu" not in {**requests, **limits}:
        requests["cpu"] = DEFAULT_CPU
    if "memory" not in {**requests, **limits}:
        requests["memory"] = limits["memory"] = DEFAULT_MEMORY
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _volumes(server: ServerSpec) -> list[Manifest]:
    claim = server.cache.get("claimName")
    return [
        {"name": "config", "configMap": {"name": _config_name(server)}}, {"name": "state", "emptyDir": {}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, {"name": "tmp", "emptyDir": {}}, token_volume(), ca_volume(),
        *([{"name": "cache", "persistentVolumeClaim": {"claimName": claim}}] if claim else []),
    ]


def token_volume() -> Manifest:
    """Shows the controller who the pod is, and is of no use with the API server."""
    token = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def token_mount() -> Manifest:
    return {"name": "token", "mountPath": TOKEN_DIR, "readOnly": True}


def ca_volume() -> Manifest:
    return {"name": "ca", "configMap": {"name": CA}}


def ca_mount() -> Manifest:
    return {"name": "ca", "mountPath": CA_FILE.rpartition("/")[0], "readOnly": True}
