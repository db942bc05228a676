"""The description that the daemon gives of itself is valid, complete, and kept under attack by requests that are made from it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests import onnx_models
from tests.daemon import Daemon, running

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
ROUTES = [
    (method, path) for method, route in re.findall(r"^\| (GET|POST) \| `(.*?)`", PAGE.read_text("utf-8"), re.MULTILINE)
    for path in sorted({re.sub(r"\[(.*?)]", shown, route) for shown in ("", r"\1")})
]
NEARLY_RIGHT = {
    "name": {"enum": ["x"]}, "shape": {"enum": [[1, 4], [2, 2]]}, "datatype": {"enum": ["FP32", "INT64"]},
    "data": {"type": "array", "minItems": 4, "maxItems": 4, "items": {"type": "number"}},
}
FAULTS_OF_NOBODY = {501, 503, 504}
"""Not built, asleep, and too slow."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("openapi")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.all_types(directory / "all_types.onnx")
    with running(directory / "daemon", "--models-dir", str(directory), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def document(served: Daemon) -> dict[str, Any]:
    status, found = served.call("GET", "/openapi.json")
    assert status == 200
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def schema(served: Daemon, document: dict[str, Any]) -> Any:
    """Narrowed to what gets a request further than to 404: the daemon's own models, and tensors that are nearly right or wholly."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"] = {"enum": ["ident", "all_types"] if parameter["name"] == "model" else ["1"]}
    for name in ("InferRequest", "SnoozeInferRequest"):
        inputs = document["components"]["schemas"][name]["properties"]["inputs"]
        inputs["maxItems"] = 2
        inputs["items"]["properties"] |= NEARLY_RIGHT
    loaded = schemathesis.openapi.from_dict(document)
    loaded.config.update(base_url=served.url)
    return loaded


def test_it_is_valid_and_names_every_route(document: dict[str, Any]) -> None:
    validate(document)
    assert {(method.upper(), path) for path, methods in document["paths"].items() for method in methods} == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_whatever_a_client_makes_of_it_is_answered_as_described(schema: Any, method: str, path: str) -> None:
    operation = schema[path][method]
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @given(st.one_of(modes))
    @settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def attack(case: Any) -> None:
        response = case.call(timeout=60)
        case.validate_response(response, checks=[status_code_conformance, response_schema_conformance])
        assert response.status_code < 500 or response.status_code in FAULTS_OF_NOBODY, response.text

    attack()


def test_it_lives_on(served: Daemon) -> None:
    assert served.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert "Traceback" not in served.log
