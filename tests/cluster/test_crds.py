"""The schemas of the API server say the same as the daemon's own declarations. What a real API server makes of them: scenarios/test_manifests.py."""

from typing import Any

import pytest

from wakeful.cluster.crds import crds
from wakeful.cluster.schemas import NOT_OF_A_MODEL, NOT_OF_A_SERVER, config_schema, serving_schema
from wakeful.config.schema import ALIASES, DefaultsTable, ModelTable, ServerTable


def spec_of(name: str) -> dict[str, Any]:
    (found,) = (crd for crd in crds(("wakeful", "seldon")) if crd["metadata"]["name"] == name)
    schema: dict[str, Any] = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_serving_has_every_key_of_a_model() -> None:
    keys = set(serving_schema()["properties"])

    assert keys == (ModelTable.model_fields.keys() | ALIASES.keys()) - NOT_OF_A_MODEL


def test_config_has_every_key_of_the_file_that_does_not_follow_from_the_pod() -> None:
    tables = config_schema()["properties"]

    assert set(tables) == {"server", "defaults", "auth"}
    assert set(tables["server"]["properties"]) == ServerTable.model_fields.keys() - NOT_OF_A_SERVER
    assert set(tables["defaults"]["properties"]) == DefaultsTable.model_fields.keys() | ALIASES.keys()


def test_secrets_cannot_be_written_into_an_object() -> None:
    auth = config_schema()["properties"]["auth"]["properties"]

    assert set(auth["api_keys"]["items"]["properties"]) == {"role", "key_env", "name"}
    assert "secret" not in auth["jwt"]["properties"]
    assert "secret_env" in auth["jwt"]["properties"]


def test_bounds_are_the_daemons() -> None:
    keys = serving_schema()["properties"]

    assert keys["max_batch_size"] == {"description": "most rows in one run; reaching it sends the batch at once [rows]", "type": "integer",
                                      "minimum": 1, "maximum": 1_000_000}
    assert keys["target_p99_ms"]["minimum"] == 0
    assert keys["target_p99_ms"]["exclusiveMinimum"] is True
    assert keys["batch_policy"]["enum"] == ["adaptive", "timer"]
    assert keys["memory_limit"]["x-kubernetes-int-or-string"] is True
    assert keys["pad"]["required"] == ["axis"]


def test_no_default_goes_before_those_of_the_server() -> None:
    assert "default" not in str(serving_schema()).replace("default ", "")


@pytest.mark.parametrize("name", ["models.wakeful.dev", "servers.wakeful.dev"])
def test_every_field_is_declared_but_those_that_are_other_peoples(name: str) -> None:
    """Where unknown keys are kept, a misspelt one is lost."""
    found: list[str] = []

    def walk(schema: dict[str, Any], path: str) -> None:
        if "x-kubernetes-preserve-unknown-fields" in schema:
            found.append(path)
        for key, inner in schema.get("properties", {}).items():
            walk(inner, f"{path}.{key}")
        for part in ("items", "additionalProperties"):
            if isinstance(schema.get(part), dict):
                walk(schema[part], f"{path}[]")

    walk(spec_of(name), "spec")

    of_kubernetes = ["spec.podTemplate.spec", "spec.volumeClaimTemplates[].spec"]
    of_several_kinds = ["spec.serving.versions"] if name.startswith("models") else ["spec.config.server.grpc_port"]
    assert sorted(found) == sorted([*of_several_kinds, *(of_kubernetes if name.startswith("servers") else [])])


@pytest.mark.parametrize("dialect", ["wakeful", "seldon"])
def test_both_kinds_have_a_scale_of_their_own(dialect: Any) -> None:
    for crd in crds((dialect,)):
        version = crd["spec"]["versions"][0]
        assert version["subresources"]["scale"] == {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}


def test_a_placement_names_the_life_of_the_pod() -> None:
    (model, _) = crds()
    status = model["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]

    assert status["placements"]["items"]["required"] == ["replica", "uid", "state"]
    assert status["placements"]["x-kubernetes-list-type"] == "atomic"
