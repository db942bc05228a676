"""deploy/helm and deploy/kustomize, made from the code: `python -m wakeful.cluster.packaging deploy`. A test holds it up to date.

For Helm the same objects are written with marks where values go; what a value switches on stands behind an `if`.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wakeful import __version__
from wakeful.cluster.crds import crds
from wakeful.cluster.documents import Manifest, written
from wakeful.cluster.groups import GROUP, VERSION
from wakeful.cluster.install import install_objects
from wakeful.cluster.manifests import CONTROLLER, Install

_MADE = "# Made from src/wakeful/cluster by `python -m wakeful.cluster.packaging deploy`; a test holds it up to date.\n"
_KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": Install().namespace}
_SWITCHES = {"seldon": "Models and Servers of Seldon's group (mlops.seldon.io) are served too; do not install it beside Seldon itself",
             "storage_secrets": "Models may name Secrets with keys of their storage; the controller may then read every Secret of the namespace",
             "custom_metrics": "The controller answers for custom.metrics.k8s.io, so that autoscalers can go by requests; a cluster has one who does"}
"""Fields of Install, as they are told to people."""


def files() -> dict[str, str]:
    """Path under deploy/ to content."""
    return {path: (text if path.endswith(".txt") else _MADE + text) for path, text in {**_kustomize(), **_helm()}.items()}


# ── kustomize ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _kustomize() -> dict[str, str]:
    install = Install()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": install.namespace}}
    made = {
        "kustomize/base/crds.yaml": written(crds()),
        "kustomize/base/install.yaml": written([namespace, *install_objects(install)]),
        "kustomize/base/kustomization.yaml": written([{**_KUSTOMIZATION, "resources": ["crds.yaml", "install.yaml"]}]),
    }
    for switch in _SWITCHES:
        name, kinds = _path_name(switch), crds(("seldon",)) if switch == "seldon" else []
        made[f"kustomize/components/{name}/objects.yaml"] = written([*kinds, *_added(install, _on(switch, install))])
        made[f"kustomize/components/{name}/kustomization.yaml"] = written([_component(switch)])
        made[f"kustomize/overlays/{name}/kustomization.yaml"] = written([
            {**_KUSTOMIZATION, "resources": ["../../base"], "components": [f"../../components/{name}"]}])
    for name, server in (("cpu", _server({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}})),
                         ("gpu", _server({"requests": {"cpu": "2", "memory": "16Gi"}, "limits": {"memory": "16Gi", "nvidia.com/gpu": 1}}))):
        made[f"kustomize/overlays/{name}/server.yaml"] = written([server])
        made[f"kustomize/overlays/{name}/kustomization.yaml"] = written([
            {**_KUSTOMIZATION, "resources": ["../../base", "server.yaml"]}])
    return made


def _server(resources: Manifest) -> Manifest:
    """The first Server of an installation."""
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Server", "metadata": {"name": "server"}, "spec": {"replicas": 1, "resources": resources}}


def _component(switch: str) -> Manifest:
    """What a switch adds to whatever has the base: several can be in one kustomization, as each adds its flag to those that are there."""
    patch: list[Manifest] = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": _flag(switch)}]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "resources": ["objects.yaml"],
        "patches": [{"target": {"kind": "Deployment", "name": CONTROLLER}, "patch": written([patch])}],
    }


def _path_name(switch: str) -> str:
    return switch.replace("_", "-")


def _flag(switch: str) -> str:
    return f"--{_path_name(switch)}"


def _on(switch: str, install: Install) -> Install:
    changes: dict[str, Any] = {switch: True}
    return replace(install, **changes)


def _added(before: Install, after: Install) -> list[Manifest]:
    there = [_identity(one) for one in install_objects(before)]
    return [one for one in install_objects(after) if _identity(one) not in there]


def _identity(one: Manifest) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


# ── Helm ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

_FLAGS = 8 * " "
"""Before a container's `args`."""
_MARKED = Install(namespace="HELM-NAMESPACE", image="HELM-IMAGE", envoy="HELM-ENVOY", controllers=90001, gateways=90002)
_MARKS = {
    "HELM-NAMESPACE": "{{ .Release.Namespace }}", "HELM-IMAGE": "{{ .Values.image | quote }}", "HELM-ENVOY": "{{ .Values.envoy | quote }}",
    "90001": "{{ .Values.controllers }}", "90002": "{{ .Values.gateways }}",
}
_KEEP = {"helm.sh/resource-policy": "keep"}
_KINDS = """\
# The kinds themselves come with the release. Not with a second one in the same cluster: Helm refuses what another release has brought.
kinds: true
"""
_NOTES = """\
Wakeful serves the namespace {{ .Release.Namespace }}. Next, a Server to put Models on:

  kubectl apply -n {{ .Release.Namespace }} -f - <<END
  apiVersion: wakeful.dev/v1alpha1
  kind: Server
  metadata: {name: server}
  END

Requests go to the Service wakeful-gateway, port 8080. The kinds Model and Server stay when this release is uninstalled.
"""


def _helm() -> dict[str, str]:
    chart = {
        "apiVersion": "v2", "name": "wakeful", "description": "A server for machine-learning models that sleep until a request wakes them",
        "type": "application", "version": _chart_version(), "appVersion": __version__, "kubeVersion": ">=1.30.0-0",
    }
    install = Install()
    values = {name: getattr(install, name) for name in ("image", "envoy", "controllers", "gateways")}
    switches = "".join(f"# {meaning}.\n{_value_name(name)}: false\n" for name, meaning in _SWITCHES.items())
    return {
        "helm/wakeful/Chart.yaml": written([chart]),
        "helm/wakeful/values.yaml": f"# Images, as the cluster's own registry has them.\n{written([values])}{switches}{_KINDS}",
        # Not in crds/, which Helm would never upgrade.
        "helm/wakeful/templates/crds.yaml": _behind("kinds", written(_kept(crds()))),
        "helm/wakeful/templates/install.yaml": _marked(written(_always())),
        "helm/wakeful/templates/seldon-crds.yaml": _behind("seldon", _behind("kinds", written(_kept(crds(("seldon",)))))),
        **{f"helm/wakeful/templates/{_path_name(switch)}.yaml": _switched(switch) for switch in _SWITCHES},
        "helm/wakeful/templates/NOTES.txt": _NOTES,
    }


def _chart_version() -> str:
    """Helm wants three numbers; what Python calls 1.2.dev0 it calls 1.2.0-dev0."""
    numbers, _, rest = __version__.partition(".dev")
    parts = [*numbers.split("."), "0", "0"][:3]
    return ".".join(parts) + (f"-dev{rest}" if rest else "")


def _value_name(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _kept(objects: Sequence[Manifest]) -> list[Manifest]:
    """Uninstalling the release must not delete every Model with it."""
    return [{**one, "metadata": {**one["metadata"], "annotations": _KEEP}} for one in objects]


def _always() -> list[Manifest]:
    """What there is however the values are; with every flag, each of which `_marked` puts behind its value."""
    everything: dict[str, Any] = dict.fromkeys(_SWITCHES, True)
    extra = [_identity(one) for one in _added(_MARKED, replace(_MARKED, **everything))]
    return [one for one in install_objects(replace(_MARKED, **everything)) if _identity(one) not in extra]


def _switched(switch: str) -> str:
    """What an installation has more when a field of it is switched on."""
    return _behind(_value_name(switch), _marked(written(_added(_MARKED, _on(switch, _MARKED)))))


def _behind(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _marked(text: str) -> str:
    """With values where their marks are, and with the flag of a switch only where that is on."""
    for mark, value in _MARKS.items():
        text = text.replace(mark, value)
    for switch in _SWITCHES:
        flag = f"{_FLAGS}- {_flag(switch)}\n"
        text = text.replace(flag, f"{_FLAGS}{{{{- if .Values.{_value_name(switch)} }}}}\n{flag}{_FLAGS}{{{{- end }}}}\n")
    return text


if __name__ == "__main__":
    for path, text in files().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
