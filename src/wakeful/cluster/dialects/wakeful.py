"""Model and Server of our own group, as the planner thinks of them."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from wakeful.cluster.planning.thresholds import read_thresholds
from wakeful.cluster.planning.world import Bounds, ModelSpec, ServerSpec
from wakeful.cluster.quantities import whole
from wakeful.config.elsewhere import faults_of_file, faults_of_model
from wakeful.config.problems import Problem


def model(manifest: Mapping[str, Any]) -> ModelSpec:
    metadata, spec = manifest["metadata"], manifest["spec"]
    serving, memory = spec.get("serving", {}), spec.get("memory")
    autoscaling, faults = read_thresholds(spec.get("autoscaling", {}), "spec.autoscaling")
    keys = {key: spec[key] for key in ("backend",) if key in spec}
    errors, notes = _told(faults_of_model({**keys, **serving}), lambda key: "spec" if key in keys else "spec.serving")
    return ModelSpec(
        name=metadata["name"], storage_uri=spec["storageUri"], revision=revision(spec), uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0), backend=spec.get("backend"), requirements=frozenset(spec.get("requirements", ())),
        memory=None if memory is None else whole(memory), server=spec.get("server"), bounds=_bounds(spec), pinned=spec.get("pinned", False),
        autoscaling=autoscaling, serving=serving, secret=spec.get("secretName"), errors=(*faults, *errors), notes=notes,
    )


def revision(spec: Mapping[str, Any]) -> str:
    """Changes with everything that decides what a replica loads, and with nothing else."""
    loaded = [spec["storageUri"], spec.get("backend"), spec.get("serving", {})]
    return sha256(json.dumps(loaded, sort_keys=True).encode()).hexdigest()[:16]


def server(manifest: Mapping[str, Any]) -> ServerSpec:
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    autoscaling, faults = read_thresholds(spec.get("modelAutoscaling", {}), "spec.modelAutoscaling")
    errors, notes = _told(faults_of_file(spec.get("config", {})), lambda _: "spec.config")
    capabilities = spec.get("capabilities")
    return ServerSpec(
        name=metadata["name"], uid=metadata.get("uid", ""), generation=metadata.get("generation", 0),
        bounds=_bounds({"replicas": 1, **spec}), image=spec.get("image"),
        capabilities=None if capabilities is None else frozenset(capabilities), resources=spec.get("resources", {}),
        overcommit=spec.get("overcommitPercent", 100) / 100, grace=float(spec.get("terminationGracePeriodSeconds", 120)),
        surge=spec.get("surge", 1), config=spec.get("config", {}), cache=spec.get("cache", {}), model_autoscaling=autoscaling,
        pod_template=spec.get("podTemplate", {}), volume_claim_templates=tuple(spec.get("volumeClaimTemplates", ())),
        errors=(*faults, *errors), notes=notes,
    )


def _bounds(spec: Mapping[str, Any]) -> Bounds:
    return Bounds(spec.get("replicas"), spec.get("minReplicas"), spec.get("maxReplicas"))


def _told(problems: Iterable[Problem], where: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Errors and warnings, each with the field."""
    lines: dict[str, list[str]] = {"error": [], "warning": []}
    for problem in problems:
        key = problem.key.partition(".")[0].partition("[")[0]
        hint = f" ({problem.hint})" if problem.hint else ""
        lines[problem.severity].append(f"{where(key)}{'.' if problem.key else ''}{problem.key}: {problem.message}{hint}")
    return tuple(lines["error"]), tuple(lines["warning"])
