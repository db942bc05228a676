"""Model and Server of Seldon's group, made into ours; what has no counterpart here is told, and never silent.

`wakeful cluster convert` writes down what `converted` makes; the controller reads the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from wakeful.cluster.dialects import wakeful
from wakeful.cluster.groups import GROUP, SELDON_GROUP, VERSION
from wakeful.cluster.planning.world import ModelSpec, ServerSpec

Manifest = dict[str, Any]

CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "mlserver": (
        "mlserver", "alibi-detect", "alibi-explain", "huggingface", "lightgbm", "mlflow", "python", "sklearn", "spark-mlib", "xgboost"),
    "triton": ("triton", "dali", "fil", "onnx", "openvino", "python", "pytorch", "tensorflow", "tensorrt"),
}
"""What servers of these `serverConfig`s say that they can do: requirements of models are looked up here."""
DAEMON, AGENTS = "wakeful", ("agent", "rclone")
"""Our only container, and those of Seldon's pods that stand beside the inference server."""

_UNSERVED = {"explainer": "explainers are not served", "llm": "language models of Seldon's runtime are not served"}
_UNHONOURED_MODEL = {
    "dataflow": "there are no Kafka topics to clean", "logger": "payloads are not logged", "schemaUri": "what a model takes follows from its file",
    "parameters": "spec.serving has the settings of a model", "preloaded": "it has no meaning in Seldon either",
    "dedicated": "it has no meaning in Seldon either",
}
_UNHONOURED_SERVER = {
    "imageOverrides": "there is one container, with one image", "deploymentStrategy": "servers are StatefulSets",
    "statefulSetPersistentVolumeClaimRetentionPolicy": "claims are kept", "disableAutoUpdate": "a Server follows its manifest",
}


class Converted(NamedTuple):
    """A manifest of ours. `errors`: without these it is not what was meant, and is not served; `notes`: what has no effect."""

    manifest: Manifest
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def model(manifest: Mapping[str, Any]) -> ModelSpec:
    made = converted(manifest)
    spec = wakeful.model(made.manifest)
    return replace(spec, dialect="seldon", errors=(*made.errors, *spec.errors), notes=(*made.notes, *spec.notes))


def server(manifest: Mapping[str, Any]) -> ServerSpec:
    made = converted(manifest)
    spec = wakeful.server(made.manifest)
    return replace(spec, dialect="seldon", errors=(*made.errors, *spec.errors), notes=(*made.notes, *spec.notes))


def converted(manifest: Mapping[str, Any]) -> Converted:
    """Raises ValueError for what is no Model and no Server of Seldon's."""
    group, _, version = str(manifest.get("apiVersion", "")).partition("/")
    convert = _KINDS.get(manifest.get("kind", ""))
    if group != SELDON_GROUP or version != VERSION or convert is None:
        raise ValueError(f"expected a Model or a Server of {SELDON_GROUP}/{VERSION}, got {manifest.get('kind')} of {manifest.get('apiVersion')}")
    spec, errors, notes = convert(manifest.get("spec", {}))
    ours = {"apiVersion": f"{GROUP}/{VERSION}", "kind": manifest["kind"], "metadata": dict(manifest["metadata"]), "spec": spec}
    return Converted(ours, tuple(errors), tuple(notes))


def follow(manifest: Mapping[str, Any]) -> Converted:
    """As `converted`; an autoscaler of Seldon's then points at ours; what else of Seldon's there is has no counterpart."""
    if manifest["apiVersion"].partition("/")[0] == SELDON_GROUP:
        if manifest["kind"] in _KINDS:
            return converted(manifest)
        return Converted(dict(manifest), errors=(f"not supported: there is no {manifest['kind']} here",))
    reference = manifest.get("spec", {}).get("scaleTargetRef", {}) if isinstance(manifest.get("spec"), dict) else {}
    if reference.get("apiVersion", "").partition("/")[0] != SELDON_GROUP:
        return Converted(dict(manifest))
    ours = {**reference, "apiVersion": f"{GROUP}/{VERSION}"}
    return Converted({**manifest, "spec": {**manifest["spec"], "scaleTargetRef": ours}})


_Parts = tuple[Manifest, list[str], list[str]]


def _model(spec: Mapping[str, Any]) -> _Parts:
    kept = {key: spec[key] for key in ("storageUri", "secretName", "memory", "server") if spec.get(key) not in (None, "")}
    made: Manifest = {**kept, **_counts(spec)}
    asked = [*(text.strip() for text in spec.get("requirements", ())), *([spec["modelType"]] if spec.get("modelType") else [])]
    if asked:
        made["requirements"] = list(dict.fromkeys(asked))
    if "artifactVersion" in spec:
        made["serving"] = {"versions": [spec["artifactVersion"]]}
    errors = [f"spec.{key}: not supported: {why}" for key, why in _UNSERVED.items() if key in spec]
    return made, errors, _not_honoured(spec, _UNHONOURED_MODEL)


def _server(spec: Mapping[str, Any]) -> _Parts:
    config = spec.get("serverConfig", "")
    errors = []
    if config not in CAPABILITIES and "capabilities" not in spec:
        errors.append(f"spec.serverConfig: expected {' or '.join(CAPABILITIES)}, or spec.capabilities beside it, got {config!r}")
    capabilities = [*spec.get("capabilities", CAPABILITIES.get(config, ())), *spec.get("extraCapabilities", ())]
    made: Manifest = {**_counts(spec), "capabilities": list(dict.fromkeys(capabilities))}
    notes = _not_honoured(spec, _UNHONOURED_SERVER)
    if pod := spec.get("podSpec"):
        template, told = _pod(pod, config)
        notes += told
        made |= {"podTemplate": {"spec": template}} if template else {}
        if "terminationGracePeriodSeconds" in pod:
            made["terminationGracePeriodSeconds"] = pod["terminationGracePeriodSeconds"]
    return made, errors, notes


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], _Parts]] = {"Model": _model, "Server": _server}


def _counts(spec: Mapping[str, Any]) -> Manifest:
    """0 in a bound means there that it is not set."""
    bounds = {key: spec[key] for key in ("minReplicas", "maxReplicas") if spec.get(key)}
    return ({"replicas": spec["replicas"]} if "replicas" in spec else {}) | bounds


def _not_honoured(spec: Mapping[str, Any], reasons: Mapping[str, str]) -> list[str]:
    return [f"spec.{key}: not supported, and of no effect: {why}" for key, why in reasons.items() if spec.get(key)]


def _pod(pod: Mapping[str, Any], config: str) -> tuple[Manifest, list[str]]:
    """Its containers as one: the inference server's settings, and the variables of those beside it, among them the thresholds of autoscaling."""
    made = {key: value for key, value in pod.items() if key not in ("containers", "terminationGracePeriodSeconds")}
    daemon: Manifest = {"name": DAEMON}
    notes, others = [], []
    for index, container in enumerate(pod.get("containers", ())):
        name, where = container.get("name", ""), f"spec.podSpec.containers[{index}]"
        if name in (config, DAEMON):
            daemon |= {key: value for key, value in container.items() if key not in ("name", "env", "image")}
            notes += _of_container(container, where, ("image",))
        elif name in AGENTS:
            notes += _of_container(container, where, [key for key in container if key not in ("name", "env")])
        else:
            others.append(dict(container))
            continue
        daemon["env"] = _merged_by_name([*daemon.get("env", ()), *container.get("env", ())])
    if not daemon.get("env"):
        daemon.pop("env", None)
    containers = ([daemon] if len(daemon) > 1 else []) + others
    return made | ({"containers": containers} if containers else {}), notes


def _of_container(container: Mapping[str, Any], where: str, keys: Iterable[str]) -> list[str]:
    return [f"{where}.{key}: not supported, and of no effect: there is one container, with our image" for key in keys if key in container]


def _merged_by_name(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return list({entry["name"]: dict(entry) for entry in entries}.values())
