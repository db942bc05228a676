"""Fields of Model and Server as Seldon has them under mlops.seldon.io/v1alpha1; `dialects.seldon` tells what each becomes here.

A count of 0 in `minReplicas` and `maxReplicas` means there that it is not set.
"""

from wakeful.cluster.schemas import ANYTHING, INT_OR_TEXT, Rule, Schema

_COUNT = {"type": "integer", "format": "int32", "minimum": 0}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_COUNTS: Schema = {"replicas": _COUNT, "minReplicas": _COUNT, "maxReplicas": _COUNT}
_ANY_OBJECT: Schema = {"type": "object", **ANYTHING}


def _set(name: str) -> str:
    return f"(has(self.{name}) && self.{name} > 0)"


MODEL_RULES = (
    Rule(f"!{_set('minReplicas')} || !{_set('maxReplicas')} || self.minReplicas <= self.maxReplicas", "minReplicas is above maxReplicas",
         ".minReplicas"),
    Rule(f"!has(self.replicas) || !{_set('minReplicas')} || self.replicas >= self.minReplicas", "replicas is below minReplicas", ".replicas"),
    Rule(f"!has(self.replicas) || !{_set('maxReplicas')} || self.replicas <= self.maxReplicas", "replicas is above maxReplicas", ".replicas"),
)
MODEL_SPEC: Schema = {
    "storageUri": {"type": "string", "minLength": 1, "maxLength": 2048},
    "modelType": _TEXT,
    "artifactVersion": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "schemaUri": _TEXT,
    "secretName": _TEXT,
    "requirements": _TEXTS,
    "memory": INT_OR_TEXT,
    **_COUNTS,
    "server": _TEXT,
    "preloaded": {"type": "boolean"},
    "dedicated": {"type": "boolean"},
    "logger": _ANY_OBJECT,
    "explainer": _ANY_OBJECT,
    "llm": _ANY_OBJECT,
    "dataflow": _ANY_OBJECT,
    "parameters": {"type": "array", "items": {"type": "object", "required": ["name", "value"], "properties": {"name": _TEXT, "value": _TEXT}}},
}
SERVER_SPEC: Schema = {
    "serverConfig": _TEXT,
    "capabilities": _TEXTS,
    "extraCapabilities": _TEXTS,
    **_COUNTS,
    # Its counts always stand there, so that the scale subresource works.
    "replicas": {**_COUNT, "default": 1},
    "podSpec": _ANY_OBJECT,
    "imageOverrides": _ANY_OBJECT,
    "deploymentStrategy": _ANY_OBJECT,
    "statefulSetPersistentVolumeClaimRetentionPolicy": _ANY_OBJECT,
    "disableAutoUpdate": {"type": "boolean"},
}
