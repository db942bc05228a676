"""The controller and the gateway in Kubernetes, with the rights that they need and who may reach whom. Pure.

One installation serves one namespace, its own. `packaging` makes files of it for kustomize and Helm.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from wakeful.cluster.gateway.bootstrap import HELPER_ALIVE, LISTEN, STATS
from wakeful.cluster.groups import GROUP, METRICS_GROUP, METRICS_VERSION, SELDON_GROUP
from wakeful.cluster.manifests import (
    CA_FILE,
    CONTROLLER,
    CONTROLLER_HTTP,
    CONTROLLER_PORT,
    CUSTOM_METRICS,
    CUSTOM_METRICS_LEADER,
    CUSTOM_METRICS_PORT,
    MANAGED_BY,
    SERVER_ACCOUNT,
    TOKEN_DIR,
    Install,
    Manifest,
    ca_mount,
    ca_volume,
    container_security,
    from_field,
    pod_security,
    probe,
    token_mount,
    token_volume,
)
from wakeful.cluster.planning.status import SERVER_LABEL

GATEWAY = "wakeful-gateway"
GATEWAY_PORT, ENVOY_STATS = LISTEN.port, STATS.port
GATEWAY_GRACE = 120
"""Seconds that requests have to end in when a gateway's pod is deleted."""
HUNG_GRACE = 20
"""Seconds that a helper which does not answer has left: its hook sees to it that Envoy goes on, and it hears no signal."""
THREADS = "ENVOY_THREADS"
COMPONENT = "app.kubernetes.io/component"
TLS_SECRET = "wakeful-controller-tls"  # noqa: S105 - a name


class Right(NamedTuple):
    """What the controller may do in its namespace, and what for: take one away, and that ends."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()
    """Only objects of these names."""


RIGHTS = (
    Right(GROUP, ("models", "servers"), ("list", "watch"), "what people want"),
    Right(GROUP, ("models/status", "servers/status"), ("patch",), "what was decided, and how it is"),
    Right("", ("pods",), ("list", "watch"), "which server replicas there are"),
    Right("apps", ("statefulsets",), ("list", "watch", "create", "patch"), "the pods of a Server"),
    Right("", ("services", "configmaps"), ("create", "patch"), "their names and their file; the certificate that vouches for the controller's"),
    Right("policy", ("poddisruptionbudgets",), ("create", "patch"), "one of them at a time may be evicted"),
    Right("autoscaling", ("horizontalpodautoscalers",), ("list", "watch"), "whose count is whose"),
    Right("coordination.k8s.io", ("leases",), ("create",), "one controller leads"),
    Right("coordination.k8s.io", ("leases",), ("get", "patch"), "one controller leads", (CONTROLLER,)),
    Right("", ("events",), ("create", "patch"), "what happened, for people"),
    Right("", ("secrets",), ("create",), "the controller's own certificate"),
    Right("", ("secrets",), ("get", "patch"), "the controller's own certificate", (TLS_SECRET,)),
)
REVIEW = Right("authentication.k8s.io", ("tokenreviews",), ("create",), "whether agents and gateways are who they say")
"""In the whole cluster."""
SELDON_RIGHTS = (
    Right(SELDON_GROUP, ("models", "servers"), ("list", "watch"), "what people want, as Seldon has it"),
    Right(SELDON_GROUP, ("models/status", "servers/status"), ("patch",), "what was decided, and how it is"),
)
STORAGE_RIGHT = Right("", ("secrets",), ("get",), "keys of storage that Models name in secretName")
"""Lets the controller read every Secret of its namespace: not given unless it is wanted. Workload identity needs none."""

FRONT_PROXY = "extension-apiserver-authentication"
"""ConfigMap of kube-system in which the API server says by what certificate it is known when it passes requests on."""
METRICS_SERVICE = f"{METRICS_VERSION}.{METRICS_GROUP}"
METRICS_RIGHTS = (
    Right("", ("configmaps",), ("get",), "who may ask for custom metrics: the API server alone", (FRONT_PROXY,)),
    Right("apiregistration.k8s.io", ("apiservices",), ("get", "patch"), "the certificate of custom metrics", (METRICS_SERVICE,)),
)
"""In the whole cluster, of these names."""


def cluster_rights_of(install: Install) -> list[Right]:
    """All that the controller has in the whole cluster."""
    return [REVIEW, *(METRICS_RIGHTS if install.custom_metrics else ())]


def rights_of(install: Install) -> list[Right]:
    """All that the controller has in its namespace."""
    return [*RIGHTS, *(SELDON_RIGHTS if install.seldon else ()), *([STORAGE_RIGHT] if install.storage_secrets else ())]


def install_objects(install: Install) -> list[Manifest]:
    """Everything but the kinds (`crds`) and the namespace."""
    return [*_accounts(install), *_rights(install), *_controller(install), *_gateway(install), *_policies(install),
            *(_custom_metrics(install) if install.custom_metrics else ())]


def _head(install: Install, api: str, kind: str, name: str, component: str) -> Manifest:
    labels = {"app.kubernetes.io/name": "wakeful", COMPONENT: component, **MANAGED_BY}
    namespaced = {} if kind.startswith("Cluster") or kind == "APIService" else {"namespace": install.namespace}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **namespaced, "labels": labels}}


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _accounts(install: Install) -> list[Manifest]:
    parts = (("controller", CONTROLLER), ("server", SERVER_ACCOUNT), ("gateway", GATEWAY))
    return [{**_head(install, "v1", "ServiceAccount", name, component), "automountServiceAccountToken": False} for component, name in parts]


def rules_of(rights: Iterable[Right]) -> list[Manifest]:
    return [
        {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)}
        | ({"resourceNames": list(right.names)} if right.names else {})
        for right in rights
    ]


def _rights(install: Install) -> list[Manifest]:
    reviews = f"wakeful-tokenreviews-{install.namespace}"
    return [
        *_granted(install, "Role", CONTROLLER, RIGHTS),
        *_granted(install, "ClusterRole", reviews, [REVIEW]),
        *(_granted(install, "Role", f"{CONTROLLER}-seldon", SELDON_RIGHTS) if install.seldon else ()),
        *(_granted(install, "Role", f"{CONTROLLER}-storage", [STORAGE_RIGHT]) if install.storage_secrets else ()),
        *(_granted(install, "ClusterRole", f"{CUSTOM_METRICS}-{install.namespace}", METRICS_RIGHTS) if install.custom_metrics else ()),
    ]


def _granted(install: Install, kind: str, name: str, rights: Iterable[Right]) -> list[Manifest]:
    """A role, bound to the controller."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": install.namespace}
    return [
        {**_head(install, f"{group}/v1", kind, name, "controller"), "rules": rules_of(rights)},
        {**_head(install, f"{group}/v1", f"{kind}Binding", name, "controller"), "roleRef": {"apiGroup": group, "kind": kind, "name": name},
         "subjects": [subject]},
    ]


# ── controller ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _controller(install: Install) -> list[Manifest]:
    """Two pods, of which one leads. The other does not listen: who knows both addresses lands on the leader, so both must be in DNS."""
    ports = {"grpc": CONTROLLER_PORT, "http": CONTROLLER_HTTP}
    switches = {"--seldon": install.seldon, "--storage-secrets": install.storage_secrets, "--custom-metrics": install.custom_metrics}
    arguments = ["cluster", "controller", *(flag for flag, on in switches.items() if on)]
    container = {
        "name": "controller", "image": install.image, "command": ["wakeful"], "args": arguments,
        "env": [from_field("POD_NAME", "metadata.name"), from_field("POD_NAMESPACE", "metadata.namespace"),
                from_field("POD_IP", "status.podIP")],
        "ports": _container_ports(ports), "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": container_security(),
        "readinessProbe": probe("/readyz", "http", period=5, failures=2), "livenessProbe": probe("/healthz", "http", period=10, failures=3),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the pod
    }
    pod = {
        "serviceAccountName": CONTROLLER, "automountServiceAccountToken": True, "enableServiceLinks": False, "securityContext": pod_security(),
        "terminationGracePeriodSeconds": 30, "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _of("controller"), "ports": _service_ports(ports)}
    return [
        {**_head(install, "v1", "Service", CONTROLLER, "controller"), "spec": service},
        _deployment(install, "controller", CONTROLLER, install.controllers, pod), _budget(install, "controller", CONTROLLER),
    ]


def _custom_metrics(install: Install) -> list[Manifest]:
    """Where the API server asks. It trusts nobody there until the controller has written a certificate into the APIService."""
    ports = [{"name": "metrics", "port": 443, "targetPort": CUSTOM_METRICS_PORT}]
    asked = {"protocol": "TCP", "port": CUSTOM_METRICS_PORT}  # by the API server, which is no pod
    passed_on = {"from": [{"podSelector": {"matchLabels": _of("controller")}}], "ports": [{"protocol": "TCP", "port": CUSTOM_METRICS_LEADER}]}
    policy = {"podSelector": {"matchLabels": _of("controller")}, "policyTypes": ["Ingress"], "ingress": [{"ports": [asked]}, passed_on]}
    served = {"group": METRICS_GROUP, "version": METRICS_VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
              "service": {"namespace": install.namespace, "name": CUSTOM_METRICS, "port": 443}}
    return [
        {**_head(install, "v1", "Service", CUSTOM_METRICS, "controller"), "spec": {"selector": _of("controller"), "ports": ports}},
        {**_head(install, "apiregistration.k8s.io/v1", "APIService", METRICS_SERVICE, "controller"), "spec": served},
        {**_head(install, "networking.k8s.io/v1", "NetworkPolicy", CUSTOM_METRICS, "controller"), "spec": policy},
    ]


# ── gateway ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _gateway(install: Install) -> list[Manifest]:
    ports = {"requests": GATEWAY_PORT, "stats": ENVOY_STATS}
    # Its file is written by the pod itself: each gateway needs a name of its own, by which the controller knows what it has acknowledged.
    prepare = _helper(install, "prepare", ["wakeful", "cluster", "bootstrap", "--output", "/etc/envoy/envoy.json"])
    # A sidecar ends after all others: Envoy ends at once when it is told to, so `wakeful cluster leave` in the helper's hook waits for its requests.
    envoy = {
        "name": "envoy", "image": install.envoy, "restartPolicy": "Always",
        # Else it has a thread for each processor of the node, each with connections and counts of its own. It has no limit: that would be the node's.
        "command": ["envoy", "-c", "/etc/envoy/envoy.json", "--drain-time-s", "10", "--concurrency", f"$({THREADS})"],
        "env": [{"name": THREADS, "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}}],
        "ports": _container_ports(ports), "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": container_security(), "readinessProbe": probe("/ready", "stats", period=2, failures=2),
        "volumeMounts": [{"name": "envoy", "mountPath": "/etc/envoy", "readOnly": True}, ca_mount(), token_mount()],
    }
    leave = {"preStop": {"exec": {"command": ["wakeful", "cluster", "leave", "--seconds", str(GATEWAY_GRACE - 10)]}}}
    # By Envoy's port, as the helper listens on loopback. Patient, as a busy helper answers late; a hung one costs what Envoy has no cluster for.
    alive = probe(HELPER_ALIVE, ENVOY_STATS, period=10, failures=6) | {"timeoutSeconds": 5, "terminationGracePeriodSeconds": HUNG_GRACE}
    helper = _helper(install, "helper", ["wakeful", "cluster", "gateway"]) | {"lifecycle": leave, "livenessProbe": alive}
    pod = {
        "serviceAccountName": GATEWAY, "automountServiceAccountToken": False, "enableServiceLinks": False, "securityContext": pod_security(),
        "terminationGracePeriodSeconds": GATEWAY_GRACE, "initContainers": [prepare, envoy], "containers": [helper],
        "volumes": [{"name": "envoy", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}, ca_volume(), token_volume()],
    }
    # By number: some releases of Kubernetes look for names of ports in other containers than sidecars.
    service = {"selector": _of("gateway"), "ports": [{"name": "requests", "port": GATEWAY_PORT, "targetPort": GATEWAY_PORT}]}
    return [
        {**_head(install, "v1", "Service", GATEWAY, "gateway"), "spec": service},
        _deployment(install, "gateway", GATEWAY, install.gateways, pod), _budget(install, "gateway", GATEWAY),
    ]


def _helper(install: Install, name: str, command: list[str]) -> Manifest:
    return {
        "name": name, "image": install.image, "command": command,
        "env": [
            from_field("POD_NAME", "metadata.name"), from_field("POD_NAMESPACE", "metadata.namespace"),
            {"name": "WAKEFUL_CLUSTER_CONTROLLERS", "value": f"{CONTROLLER}:{CONTROLLER_PORT}"},
            {"name": "WAKEFUL_CLUSTER_CA_FILE", "value": CA_FILE},
            {"name": "WAKEFUL_CLUSTER_TOKEN_FILE", "value": f"{TOKEN_DIR}/token"},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "768Mi"}}, "securityContext": container_security(),
        "volumeMounts": [
            {"name": "envoy", "mountPath": "/etc/envoy"}, {"name": "tmp", "mountPath": "/tmp"}, ca_mount(), token_mount(),  # noqa: S108 - of the pod
        ],
    }


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _of(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "wakeful", COMPONENT: component}


def _container_ports(ports: Mapping[str, int]) -> list[Manifest]:
    return [{"name": name, "containerPort": port} for name, port in ports.items()]


def _service_ports(ports: Mapping[str, int]) -> list[Manifest]:
    return [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()]


def _deployment(install: Install, component: str, name: str, replicas: int, pod: Mapping[str, Any]) -> Manifest:
    spread = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _of(component)},
    }
    spec = {
        "replicas": replicas, "revisionHistoryLimit": 3, "selector": {"matchLabels": _of(component)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": {**_of(component), **MANAGED_BY}}, "spec": {**pod, "topologySpreadConstraints": [spread]}},
    }
    return {**_head(install, "apps/v1", "Deployment", name, component), "spec": spec}


def _budget(install: Install, component: str, name: str) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _of(component)}}
    return {**_head(install, "policy/v1", "PodDisruptionBudget", name, component), "spec": spec}


def _policies(install: Install) -> list[Manifest]:
    """Models are reached through the gateway alone, and the controller's streams by servers and gateways alone; its health and metrics by all."""
    servers: Manifest = {"matchExpressions": [{"key": SERVER_LABEL, "operator": "Exists"}]}
    gateways, controllers = {"matchLabels": _of("gateway")}, {"matchLabels": _of("controller")}

    def policy(name: str, component: str, pods: Manifest, ingress: list[Manifest]) -> Manifest:
        spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress}
        return {**_head(install, "networking.k8s.io/v1", "NetworkPolicy", name, component), "spec": spec}

    def at(port: int) -> list[Manifest]:
        return [{"protocol": "TCP", "port": port}]

    streams = {"from": [{"podSelector": servers}, {"podSelector": gateways}], "ports": at(CONTROLLER_PORT)}
    return [
        policy(SERVER_ACCOUNT, "server", servers, [{"from": [{"podSelector": gateways}]}]),
        policy(CONTROLLER, "controller", controllers, [streams, {"ports": at(CONTROLLER_HTTP)}]),
        policy(GATEWAY, "gateway", gateways, [{"ports": at(GATEWAY_PORT)}, {"ports": at(ENVOY_STATS)}]),
    ]
