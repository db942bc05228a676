"""[cluster], and the variables about it, to settings. In a pod most of them come as variables, which the manifest fills from the pod itself."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wakeful.config.document import Document
from wakeful.config.locate import KeyPath
from wakeful.config.problems import Place, Problem
from wakeful.config.schema import ClusterTable
from wakeful.config.settings import ClusterSettings
from wakeful.config.validate import validate

_ALSO = {
    "pod": ("POD_NAME",), "pod_uid": ("POD_UID",), "namespace": ("POD_NAMESPACE",),
    "lag_threshold": ("WAKEFUL_MODEL_INFERENCE_LAG_THRESHOLD", "SELDON_MODEL_INFERENCE_LAG_THRESHOLD"),
    "inactive_secs": ("WAKEFUL_MODEL_INACTIVE_SECONDS_THRESHOLD", "SELDON_MODEL_INACTIVE_SECONDS_THRESHOLD"),
    "stats_period_secs": ("WAKEFUL_SCALING_STATS_PERIOD_SECONDS", "SELDON_SCALING_STATS_PERIOD_SECONDS"),
}
"""Names that manifests of pods and of Seldon's servers have for a key."""
NAMES: dict[str, tuple[str, ...]] = {key: (f"WAKEFUL_CLUSTER_{key.upper()}", *_ALSO.get(key, ())) for key in ClusterTable.model_fields}
"""The variables of each key; the first that is set counts."""
VARIABLES = frozenset(name for names in NAMES.values() for name in names)
_NEEDED = ("server", "pod", "pod_uid")
SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://")
"""Kubernetes sets WAKEFUL_PORT=tcp://10.0.0.1:8080 in every pod beside a Service named "wakeful"."""


def cluster_settings(document: Document, environ: Mapping[str, str], report: list[Problem]) -> ClusterSettings | None:
    """What the variables say, and below them the file; None where no controller is named. What is said and wrong is reported either way."""
    written = document.values.get("cluster", {})
    if not isinstance(written, dict):
        report.append(Problem("wrong-type", "`cluster` must be one table", document.place(("cluster",)), "cluster", "write [cluster]"))
        return None
    said = _said(environ, report)

    def variable_place(path: KeyPath) -> Place:
        return Place(f"environment variable {said[str(path[0])]}")

    file = validate(ClusterTable, written, "[cluster]", document.place, report, base=("cluster",)) or ClusterTable()
    variables = validate(
        ClusterTable, {key: environ[name] for key, name in said.items()}, "the environment", variable_place, report, strict=False,
    ) or ClusterTable()
    table = file.model_copy(update=variables.given())
    if not table.controllers:
        return None
    for key in _NEEDED:
        if getattr(table, key) is None:
            message = f"`{key}` is missing: a controller is named, and has to know who this is"
            report.append(Problem("missing-key", message, document.place(("cluster", key)), f"cluster.{key}", f"set {' or '.join(NAMES[key])}"))
    return _settings(table)


def _said(environ: Mapping[str, str], report: list[Problem]) -> dict[str, str]:
    """Key to the variable that counts for it. One that says otherwise than another of the same key is told."""
    said: dict[str, str] = {}
    for key, names in NAMES.items():
        there = [name for name in names if environ.get(name) and not SERVICE_LINK.match(environ[name])]
        if there:
            said[key] = there[0]
        for name in there[1:]:
            if environ[name] != environ[there[0]]:
                message = f"{name}={environ[name]} is ignored, because {there[0]}={environ[there[0]]} means the same"
                report.append(Problem("ignored", message, Place(f"environment variable {name}"), severity="warning"))
    return said


def _settings(table: ClusterTable) -> ClusterSettings:
    capabilities = None if table.capabilities is None else frozenset(table.capabilities)
    return ClusterSettings(
        tuple(table.controllers), table.server or "", table.pod or "", table.pod_uid or "", table.namespace, capabilities,
        _path(table.token_file), _path(table.ca_file), Path(table.socket), Path(table.state_dir),
        Path(table.artifacts_dir or Path(table.state_dir, "artifacts")), table.artifacts_limit, Path(table.claims_dir), table.max_downloads,
        table.stats_period_secs, table.lag_threshold, table.inactive_secs, table.max_loads, table.grace_secs,
    )


def _path(written: str | None) -> Path | None:
    return None if written is None else Path(written)


def cluster_keys(cluster: ClusterSettings | None) -> dict[str, Any]:
    """[cluster], by its keys."""
    if cluster is None:
        return {}
    return {
        "controllers": list(cluster.controllers), "server": cluster.server, "pod": cluster.pod, "pod_uid": cluster.pod_uid,
        "namespace": cluster.namespace, "capabilities": None if cluster.capabilities is None else sorted(cluster.capabilities),
        "token_file": cluster.token_file and str(cluster.token_file), "ca_file": cluster.ca_file and str(cluster.ca_file),
        "socket": str(cluster.socket), "state_dir": str(cluster.state_dir), "artifacts_dir": str(cluster.artifacts_dir),
        "artifacts_limit": cluster.artifacts_limit, "claims_dir": str(cluster.claims_dir), "max_downloads": cluster.max_downloads,
        "stats_period_secs": cluster.stats_period, "lag_threshold": cluster.lag_threshold, "inactive_secs": cluster.inactive,
        "max_loads": cluster.max_loads, "grace_secs": cluster.grace,
    }
