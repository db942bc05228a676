"""deploy/helm and deploy/kustomize are what the code makes, and kustomize and Helm install the same objects."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from wakeful.cli.cluster_leave import HUNG_SECONDS
from wakeful.cluster.crds import crds
from wakeful.cluster.documents import read, written
from wakeful.cluster.install import RIGHTS, install_objects, rules_of
from wakeful.cluster.manifests import Install
from wakeful.cluster.packaging import files

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
MADE = ("helm", "kustomize")
"""What else lies there is written by hand."""


def test_the_committed_files_are_up_to_date() -> None:
    made = (path for directory in MADE for path in (DEPLOY / directory).rglob("*") if path.is_file())
    committed = {str(path.relative_to(DEPLOY)): path.read_text() for path in made}

    assert committed.keys() == files().keys()
    for path, text in files().items():
        assert committed[path] == text, f"{path}: run python -m wakeful.cluster.packaging deploy"


def test_the_kinds_are_in_the_base() -> None:
    assert read((DEPLOY / "kustomize/base/crds.yaml").read_text()) == crds()


@pytest.mark.parametrize("switch", [None, "seldon", "storage_secrets", "custom_metrics"])
def test_helm_installs_what_kustomize_does(switch: str | None) -> None:
    install = Install() if switch is None else replace(Install(), **{switch: True})  # type: ignore[arg-type]  # a name of a field
    values = yaml.safe_load((DEPLOY / "helm/wakeful/values.yaml").read_text())
    if switch is not None:
        values[{"storage_secrets": "storageSecrets", "custom_metrics": "customMetrics"}.get(switch, switch)] = True
    templates = sorted((DEPLOY / "helm/wakeful/templates").glob("*.yaml"))
    objects = [one for path in templates for one in read(rendered(path.read_text(), values, install.namespace))]

    installed = [one for one in objects if one["kind"] != "CustomResourceDefinition"]
    kinds = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    assert _by_name(installed) == _by_name(install_objects(install))
    assert all(kind["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"} for kind in kinds)
    assert _by_name(kinds) == _by_name(crds(("wakeful", "seldon") if install.seldon else ("wakeful",)))


def _by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def rendered(template: str, values: dict[str, Any], namespace: str) -> str:
    """What Helm makes of the few words of its language that are used here."""
    lines, shown = [], [True]
    for line in template.splitlines():
        if begins := re.fullmatch(r" *\{\{- if \.Values\.(\w+) \}\}", line):
            shown.append(shown[-1] and bool(values[begins[1]]))
        elif line.strip() == "{{- end }}":
            shown.pop()
        elif shown[-1]:
            lines.append(line)
    text = "\n".join(lines).replace("{{ .Release.Namespace }}", namespace)
    text = re.sub(r"\{\{ \.Values\.(\w+)( \| quote)? \}\}", lambda found: f'"{values[found[1]]}"' if found[2] else str(values[found[1]]), text)
    assert "{{" not in text
    return text


@pytest.mark.parametrize("switch", ["seldon", "storage_secrets", "custom_metrics"])
def test_an_overlay_adds_its_rights_and_the_base_has_none_of_them(switch: str) -> None:
    name = switch.replace("_", "-")
    base = _by_name(read((DEPLOY / "kustomize/base/install.yaml").read_text()))
    added = _by_name(read((DEPLOY / f"kustomize/components/{name}/objects.yaml").read_text()))
    [patch] = yaml.safe_load((DEPLOY / f"kustomize/components/{name}/kustomization.yaml").read_text())["patches"]

    assert not base.keys() & added.keys()
    assert yaml.safe_load(patch["patch"]) == [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"--{name}"}]
    if switch == "storage_secrets":
        assert [one["rules"] for one in added.values() if "rules" in one] == [[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]]


def test_no_registry_is_named() -> None:
    for path, text in files().items():
        images = re.findall(r"image: ?(\S+)|envoy: ?(\S+)", text)
        assert not [name for pair in images for name in pair if "/" in name], path


def test_every_pod_is_confined() -> None:
    for one in install_objects(Install()):
        if one["kind"] != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert pod["automountServiceAccountToken"] is (one["metadata"]["name"] == "wakeful-controller")


def test_a_gateways_envoy_ends_after_the_hook_that_waits_for_its_requests() -> None:
    [deployment] = [one for one in install_objects(Install()) if one["kind"] == "Deployment" and one["metadata"]["name"] == "wakeful-gateway"]
    pod = deployment["spec"]["template"]["spec"]
    [helper], sidecars = pod["containers"], [one["name"] for one in pod["initContainers"] if one.get("restartPolicy") == "Always"]

    assert sidecars == ["envoy"]  # Kubernetes ends sidecars after all others
    command = helper["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:3] == ["wakeful", "cluster", "leave"]
    assert int(command[command.index("--seconds") + 1]) < pod["terminationGracePeriodSeconds"]
    assert helper["livenessProbe"]["terminationGracePeriodSeconds"] > HUNG_SECONDS, "the hook can find out that it is hung"


def test_envoy_has_as_many_threads_as_its_container_asks_for() -> None:
    """Without the option it has one for each processor of the node; without a request, too, as Kubernetes then says the node's."""
    [deployment] = [one for one in install_objects(Install()) if one["kind"] == "Deployment" and one["metadata"]["name"] == "wakeful-gateway"]
    [envoy] = [one for one in deployment["spec"]["template"]["spec"]["initContainers"] if one["name"] == "envoy"]
    [variable] = envoy["env"]

    assert envoy["command"][-2:] == ["--concurrency", f"$({variable['name']})"]
    assert variable["valueFrom"] == {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}
    assert envoy["resources"]["requests"]["cpu"]


def test_only_the_controller_has_rights_and_none_beyond_its_namespace_but_token_reviews() -> None:
    objects = install_objects(replace(Install(), seldon=True, storage_secrets=True))
    bound = [subject["name"] for one in objects for subject in one.get("subjects", ())]
    (cluster_wide,) = (one for one in objects if one["kind"] == "ClusterRole")

    assert set(bound) == {"wakeful-controller"}
    assert cluster_wide["rules"] == [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]


def test_rights_name_no_wildcard_and_say_what_for() -> None:
    assert all(right.why for right in RIGHTS)
    assert "*" not in written(rules_of(RIGHTS))
    assert [right for right in RIGHTS if right.resources == ("secrets",) and "get" in right.verbs and not right.names] == []


def test_models_are_reached_by_gateways_alone() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in install_objects(Install()) if one["kind"] == "NetworkPolicy"}

    (ingress,) = policies["wakeful-server"]["ingress"]
    assert ingress == {"from": [{"podSelector": {"matchLabels": {
        "app.kubernetes.io/name": "wakeful", "app.kubernetes.io/component": "gateway"}}}]}
    assert policies["wakeful-server"]["podSelector"] == {"matchExpressions": [{"key": "wakeful.dev/server", "operator": "Exists"}]}
