"""The kinds of objects that people write: Model and Server, of our group and, where it is switched on, of Seldon's.

`wakeful cluster crds` prints them. The API server refuses what these schemas do not allow and names the field, so that only what needs more than
one object, or the daemon's own loader, is left for the condition ConfigValid.
"""

from collections.abc import Iterable
from typing import Any

from wakeful.cluster.groups import GROUPS, VERSION, Dialect
from wakeful.cluster.planning.thresholds import KEYS
from wakeful.cluster.schemas import ANYTHING, INT_OR_TEXT, Rule, Schema, config_schema, serving_schema
from wakeful.cluster.seldon_schemas import MODEL_RULES, MODEL_SPEC, SERVER_SPEC

_COUNT = {"type": "integer", "format": "int32"}
_BYTES = {"type": "integer", "format": "int64"}
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_NAME = {"type": "string", "maxLength": 63}
_NAMES = {"type": "array", "x-kubernetes-list-type": "set", "items": _NAME}


def crds(dialects: Iterable[Dialect] = ("wakeful",)) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of these dialects."""
    return [make(dialect) for dialect in dialects for make in (_model_crd, _server_crd)]


def _counts(least_maximum: int, default: int | None = None) -> Schema:
    replicas = {**_COUNT, "minimum": 0, "maximum": 1000}
    return {
        "replicas": {"description": "the count; between bounds, where it starts", **replicas} | ({} if default is None else {"default": default}),
        "minReplicas": {"description": "with it or maxReplicas the count follows load; this is the lowest", **replicas},
        "maxReplicas": {"description": "with it or minReplicas the count follows load; this is the highest", **replicas, "minimum": least_maximum},
    }


def _object(properties: Schema, *, required: Iterable[str] = (), rules: Iterable[Rule] = (), **rest: Any) -> Schema:
    made: Schema = {"type": "object", **rest}
    if needed := list(required):
        made["required"] = needed
    if checks := [rule.written() for rule in rules]:
        made["x-kubernetes-validations"] = checks
    return made | {"properties": properties}


# ── specs ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

_STORAGE_RULE = Rule("self.matches('^(gs|s3|az|https?|oci|pvc|file)://.+')", "expected gs:// s3:// az:// http(s):// oci:// pvc:// or file://")
_QUANTITY = (
    "type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
    "{} is a Kubernetes quantity above zero, such as 100Ki or 2Gi",
)
_MIN_ABOVE_MAX = Rule(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas", "minReplicas is above maxReplicas", ".minReplicas")
_MODEL_RULES = (
    _MIN_ABOVE_MAX,
    Rule("!has(self.replicas) || !has(self.minReplicas) || self.replicas >= self.minReplicas", "replicas is below minReplicas", ".replicas"),
    Rule("!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas", "replicas is above maxReplicas", ".replicas"),
    Rule("!has(self.autoscaling) || has(self.minReplicas) || has(self.maxReplicas)",
         "autoscaling needs minReplicas or maxReplicas; without either the count is fixed", ".autoscaling"),
)
_MODEL_NAME = Rule("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
                   "a model's name is a DNS label (a-z, 0-9, -, at most 63): it travels in headers", ".metadata.name")
_SERVER_NAME = Rule("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$')",
                    "a server's name is a DNS label of at most 52 characters: the StatefulSet adds its ordinal", ".metadata.name")


def _quantity(name: str, meaning: str) -> Schema:
    rule, message = _QUANTITY
    return {"description": meaning, **INT_OR_TEXT, "maxLength": 32, "x-kubernetes-validations": [Rule(rule, message.format(name)).written()]}


def _whole(meaning: str, least: int, most: int | None = None) -> Schema:
    return {"description": meaning, "type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


_MEANINGS = {
    "lagThreshold": "requests in flight on one replica, mean of a period, from which on there are too few replicas",
    "inactiveSeconds": "a replica is one too many after so long without a request",
    "stableSeconds": "the count is not raised so soon after a change of state that was no step of the scheduler",
    "upCooldownSeconds": "between two steps up",
    "downWindowSeconds": "between two steps down, and how long load must have been low",
    "maxStepPercent": "the count may grow by this share in one step; always by one",
    "busyPercent": "highest share of time that the remaining replicas may be busy after a step down",
    "holdSeconds": "the gateway holds a request so long for a model that wakes from zero",
}
_AUTOSCALING = _object({name: _whole(_MEANINGS[name], key.lowest, key.highest) for name, key in KEYS.items()})


def _model_spec() -> Schema:
    return _object({
        "storageUri": {"description": "where its files are", "type": "string", "minLength": 1, "maxLength": 2048,
                       "x-kubernetes-validations": [_STORAGE_RULE.written()]},
        "secretName": {"description": "Secret, labelled wakeful.dev/storage, with keys of the storage; prefer workload identity",
                       "type": "string", "maxLength": 253},
        "backend": {"description": "what opens its files; absent: found by their names", **_NAME},
        "requirements": {"description": "capabilities that a server replica must have, all of them", **_NAMES, "maxItems": 32},
        "memory": _quantity("memory", "what one replica takes, until it has been measured"),
        "server": {"description": "the only Server that it may be on", **_NAME},
        **_counts(1),
        "pinned": {"description": "never put to sleep", "type": "boolean"},
        "autoscaling": {**_AUTOSCALING, "description": "when its count changes; it needs minReplicas or maxReplicas"},
        "serving": {"description": "the keys of [[models]] in the daemon's file", **serving_schema()},
    }, required=["storageUri"], rules=_MODEL_RULES)


_QUANTITIES = {"type": "object", "additionalProperties": INT_OR_TEXT}
_METADATA = _object({name: {"type": "object", "additionalProperties": _TEXT} for name in ("labels", "annotations")})


def _server_spec() -> Schema:
    claim = _object({"metadata": _object({"name": _NAME, **_METADATA["properties"]}, required=["name"]), "spec": {"type": "object", **ANYTHING}},
                    required=["metadata", "spec"])
    return _object({
        **_counts(1, default=1),
        "image": {"description": "absent: that of the controller", **_TEXT},
        "capabilities": {"description": "what requirements of models are looked up in; absent: the backends that the image has", **_NAMES,
                         "maxItems": 64},
        "resources": {"description": "of the daemon's container; a CPU request is filled in, which an autoscaler on CPU needs",
                      **_object({"requests": _QUANTITIES, "limits": _QUANTITIES})},
        "overcommitPercent": {"description": "models may be registered for this share of memory beyond it (100); 0: no overcommit",
                              "type": "integer", "minimum": 0, "maximum": 10000},
        "terminationGracePeriodSeconds": {"description": "longest time for moving its models elsewhere before a pod ends", "type": "integer",
                                          "format": "int64", "minimum": 1, "default": 120},
        "surge": {"description": "pods beyond the count while a change of the template is rolled out or all pods leave",
                  "type": "integer", "minimum": 0, "maximum": 1,
                  "default": 1},
        "config": {"description": "the daemon's file: tables server, defaults, auth", **config_schema()},
        "cache": {"description": "where fetched files are kept", **_object({
            "size": _quantity("size", "most that fetched models may take; the least recently used go first"),
            "claimName": {"description": "a PersistentVolumeClaim that its pods share; absent: each has a cache of its own, which ends with it",
                          "type": "string", "maxLength": 253},
            "maxDownloads": _whole("at a time", 1),
        })},
        "modelAutoscaling": {**_AUTOSCALING, "description": "for its Models that do not say otherwise"},
        "podTemplate": {"description": "merged into its pods, containers by their names (the daemon's is wakeful)",
                        **_object({"metadata": _METADATA, "spec": {"type": "object", **ANYTHING}})},
        "volumeClaimTemplates": {"type": "array", "maxItems": 8, "items": claim},
    }, rules=[_MIN_ABOVE_MAX], default={})


# ── statuses ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

_CONDITIONS = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    "items": _object({
        "type": _TEXT, "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "reason": _TEXT, "message": _TEXT,
        "observedGeneration": _BYTES, "lastTransitionTime": _TIME,
    }, required=["type", "status", "reason", "message", "lastTransitionTime"]),
}
_SCALING = _object({"owner": _TEXT, "target": _COUNT, "fromSpec": _TEXT, "lastStepTime": _TIME, "lastStep": _TEXT})
_PLACEMENT = _object({
    "replica": _TEXT, "uid": _TEXT, "state": _TEXT, "revision": _TEXT, "since": _TIME, "previous": _TEXT, "tries": _COUNT, "error": _TEXT,
}, required=["replica", "uid", "state"])
_REVISION = _object({
    **dict.fromkeys(("revision", "storageUri", "backend", "secretName", "artifact"), _TEXT), "serving": {"type": "object", **ANYTHING},
}, required=["revision", "storageUri"])
_MODEL_STATUS = _object({
    "observedGeneration": _BYTES, "state": _TEXT, "server": _TEXT, "selector": _TEXT,
    "replicas": _COUNT, "desiredReplicas": _COUNT, "availableReplicas": _COUNT,
    "scaling": _SCALING,
    # As one value: merged by keys, the same write takes two to three times as long.
    "placements": {"type": "array", "maxItems": 1000, "x-kubernetes-list-type": "atomic", "items": _PLACEMENT},
    "artifact": _object({"revision": _TEXT, "bytes": _BYTES, "footprintBytes": _BYTES, "failedRevision": _TEXT}),
    "revisions": {"type": "array", "x-kubernetes-list-type": "atomic", "items": _REVISION},
    "conditions": _CONDITIONS,
})
_SERVER_STATUS = _object({
    "observedGeneration": _BYTES, "selector": _TEXT,
    **dict.fromkeys(("replicas", "readyReplicas", "desiredReplicas", "updatedReplicas", "loadedModels", "asleepModels"), _COUNT),
    "scaling": _SCALING,
    "memory": _object({"capacityBytes": _BYTES, "registeredBytes": _BYTES, "activeBytes": _BYTES}),
    "conditions": _CONDITIONS,
})


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(name: str, path: str, kind: str = "string", **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **rest}


def _of_ready(field: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{field}'


_AGE = _column("Age", ".metadata.creationTimestamp", "date")
_MESSAGE = _column("Message", _of_ready("message"), priority=1)
_MODEL_COLUMNS = [
    _column("Ready", _of_ready("status")), _column("State", ".status.state"), _column("Desired", ".status.desiredReplicas", "integer"),
    _column("Available", ".status.availableReplicas", "integer"), _column("Server", ".status.server"), _AGE, _MESSAGE,
]
_SERVER_COLUMNS = [
    _column("Ready", _of_ready("status")), _column("Desired", ".status.desiredReplicas", "integer"),
    _column("Replicas", ".status.readyReplicas", "integer"), _column("Loaded", ".status.loadedModels", "integer"),
    _column("Scaled-By", ".status.scaling.owner"), _AGE, _MESSAGE,
]


_NAMED = {"type": "object", "properties": {"name": _TEXT}}
"""Declared, so that a rule may point at it."""


def _model_crd(dialect: Dialect) -> dict[str, Any]:
    spec = _model_spec() if dialect == "wakeful" else _object(MODEL_SPEC, required=["storageUri"], rules=MODEL_RULES)
    schema = _object({"metadata": _NAMED, "spec": spec, "status": _MODEL_STATUS}, required=["spec"], rules=[_MODEL_NAME])
    fields = [{"jsonPath": path} for path in (".spec.server", ".status.server", ".status.state")]
    return _definition(dialect, "Model", "wkm" if dialect == "wakeful" else "mlm", schema, _MODEL_COLUMNS, selectableFields=fields)


def _server_crd(dialect: Dialect) -> dict[str, Any]:
    spec = _server_spec() if dialect == "wakeful" else _object(SERVER_SPEC, required=["serverConfig"])
    required = ["spec"] if dialect == "seldon" else []
    schema = _object({"metadata": _NAMED, "spec": spec, "status": _SERVER_STATUS}, required=required, rules=[_SERVER_NAME])
    return _definition(dialect, "Server", "wks" if dialect == "wakeful" else "mls", schema, _SERVER_COLUMNS)


def _definition(dialect: Dialect, kind: str, short: str, schema: Schema, columns: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    group, singular = GROUPS[dialect], kind.lower()
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
    names = {"plural": f"{singular}s", "singular": singular, "kind": kind, "shortNames": [short], "categories": ["wakeful"]}
    version = {
        "name": VERSION, "served": True, "storage": True, "subresources": {"status": {}, "scale": scale}, **rest,
        "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{singular}s.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
