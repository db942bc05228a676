"""Models and Servers of scenarios, as short as they can be."""

from typing import Any

from tests.cluster.ground.api import Object

VERSION = "wakeful.dev/v1alpha1"
QUICK = {
    "lagThreshold": 4, "inactiveSeconds": 3, "stableSeconds": 1, "upCooldownSeconds": 1, "downWindowSeconds": 3,
}
"""`autoscaling` of a Model whose windows suit a test."""
TFSIMPLE = """\
# samples/models/tfsimple_scaling.yaml
apiVersion: {group}/v1alpha1
kind: Model
metadata:
  name: tfsimple
spec:
  storageUri: "gs://seldon-models/triton/simple"
  requirements:
  - tensorflow
  memory: 100Ki
  minReplicas: 1
  replicas: 1
"""
"""The seed's manifest as it stands, but for the group."""


def model(name: str, uri: str, **spec: Any) -> Object:
    """`spec` has the manifest's own names: replicas, minReplicas, requirements, memory, server, autoscaling, serving, ..."""
    return {"apiVersion": VERSION, "kind": "Model", "metadata": {"name": name}, "spec": {"storageUri": uri, **spec}}


def server(name: str = "triton", *, memory_limit: str = "1GiB", grace: int = 30, config: Object | None = None, **spec: Any) -> Object:
    """`memory_limit`: what its models may have in each pod. `config`: more tables of the daemon's file."""
    tables = {**(config or {})}
    tables["defaults"] = {"memory_limit": memory_limit, **tables.get("defaults", {})}
    return {
        "apiVersion": VERSION, "kind": "Server", "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": grace, "config": tables, **spec},
    }


def with_variables(**variables: str) -> Object:
    """`podTemplate` of a Server whose daemons have them in their environment."""
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {"spec": {"containers": [{"name": "wakeful", "env": env}]}}


def hpa(kind: str, name: str, least: int, most: int, metric: Object) -> Object:
    """autoscaling/v2 on a Model or Server."""
    target = {"apiVersion": VERSION, "kind": kind, "name": name}
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": f"{kind.lower()}-{name}"},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": [metric]},
    }


def by_resource(resource: str, percent: int) -> Object:
    """A metric of `hpa`: average utilisation of what pods request."""
    return {"type": "Resource", "resource": {"name": resource, "target": {"type": "Utilization", "averageUtilization": percent}}}


def by_rate(kind: str, name: str, a_replica: str) -> Object:
    """A metric of `hpa`: `infer_rps` of an object, so much for each replica."""
    described = {"apiVersion": VERSION, "kind": kind, "name": name}
    return {"type": "Object", "object": {
        "describedObject": described, "metric": {"name": "infer_rps"}, "target": {"type": "AverageValue", "averageValue": a_replica},
    }}
