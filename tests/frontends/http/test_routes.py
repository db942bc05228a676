"""The public routes, word by word; and where paths lead."""

import re
from pathlib import Path
from typing import Any

import pytest

from wakeful.config.settings import Role
from wakeful.errors import WakefulError
from wakeful.frontends.http.connection import NOT_UNDERSTOOD, Route
from wakeful.frontends.http.errors import MethodNotAllowed
from wakeful.frontends.http.route_reference import reference
from wakeful.frontends.http.routes import Entry, Router, table

PAGE = Path(__file__).parents[3] / "docs" / "http.md"

PUBLIC = """
POST oip    /v2/models/{model}[/versions/{version}]/infer
GET  oip    /v2
GET  oip    /v2/health/live
GET  oip    /v2/health/ready
GET  oip    /v2/models/stats
GET  oip    /v2/models/{model}[/versions/{version}]/ready
GET  oip    /v2/models/{model}[/versions/{version}]/config
GET  oip    /v2/models/{model}[/versions/{version}]/stats
GET  oip    /v2/models/{model}[/versions/{version}]
POST oip    /v2/repository/index
POST oip    /v2/repository/models/{model}/load
POST oip    /v2/repository/models/{model}/unload
GET  snooze /
GET  snooze /health/live
GET  snooze /health/ready
GET  snooze /v1/models
POST snooze /v1/models/refresh
POST snooze /v1/models/upload
POST snooze /v1/models/{model}/infer
POST snooze /v1/models/{model}/load
POST snooze /v1/models/{model}/unload
POST snooze /v1/models/{model}/pin
POST snooze /v1/models/{model}/unpin
POST openai [/openai]/v1/embeddings
POST openai [/openai]/v1/rerank
GET  openai /openai/v1/models
GET  openai [/openai]/v1/models/{model}
GET  wakeful /wakeful/v1/state
GET  wakeful /wakeful/v1/stream
GET  wakeful /wakeful/v1/history
GET  wakeful /wakeful/v1/models/{model}/history
GET  wakeful /wakeful/v1/models/{model}/explain
GET  wakeful /wakeful/v1/models/{model}
GET  wakeful /wakeful/v1/events
GET  wakeful /wakeful/v1/doctor
GET  wakeful /wakeful/v1/config
GET  wakeful /wakeful/v1/access
GET  snooze /metrics
GET  snooze /v1/events
"""


ROLES = {
    None: "GET /v2/health/live, GET /v2/health/ready, GET /health/live, GET /health/ready, GET /wakeful/v1/access, GET /metrics",
    Role.INFERENCE: (
        "POST /v2/models/{model}[/versions/{version}]/infer, POST /v1/models/{model}/infer, "
        "POST [/openai]/v1/embeddings, POST [/openai]/v1/rerank"
    ),
    Role.ADMIN: (
        "POST /v2/repository/models/{model}/load, POST /v2/repository/models/{model}/unload, POST /v1/models/refresh, POST /v1/models/upload, "
        "POST /v1/models/{model}/load, POST /v1/models/{model}/unload, POST /v1/models/{model}/pin, POST /v1/models/{model}/unpin"
    ),
}
"""All other routes need READ_ONLY."""


def entries() -> list[Entry]:
    return table(None, lambda _: None)  # type: ignore[arg-type]  # no handler is called


@pytest.fixture(scope="module")
def router() -> Router:
    return Router(entries())


def refusal(route: Route) -> WakefulError:
    """The error with which a route refuses."""
    errors: list[WakefulError] = []

    class Recorder:
        fail = staticmethod(errors.append)

    connection: Any = Recorder()
    route.handler(connection, NOT_UNDERSTOOD, b"")
    return errors[0]


def test_the_public_routes() -> None:
    """A route that changes or goes breaks somebody: say so in the change log."""
    assert [(entry.method, entry.dialect, entry.path) for entry in entries()] == [tuple(line.split()) for line in PUBLIC.split("\n") if line]


def test_who_may_do_what() -> None:
    by_route = {route: role for role, routes in ROLES.items() for route in routes.split(", ")}
    for entry in entries():
        assert entry.role is by_route.pop(f"{entry.method} {entry.path}", Role.READ_ONLY), entry.path
    assert not by_route


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make docs"


def test_every_route_is_on_the_page() -> None:
    for entry in entries():
        assert entry.what
        who = f"`{entry.role.name.lower()}`" if entry.role else "anybody"
        assert f"| {entry.method} | `{entry.path}` | {who} | {entry.what} |\n" in reference()


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.method} {entry.path}")
def test_every_route_is_found(router: Router, entry: Entry) -> None:
    """No route hides another one, whatever the model is called."""
    def handler_of(route: Route) -> str:
        return str(getattr(route.handler, "__qualname__", ""))

    for version in ("", "/versions/1"):
        for model in ("m", "a/b/c", "ready", "infer", "..", "a b\n"):
            path = entry.path.replace("[/versions/{version}]", version).replace("[/openai]", "/openai" if version else "").replace("{model}", model)
            route = router.find(entry.method, path, {})
            assert route.dialect == entry.dialect
            assert handler_of(route) == handler_of(Route(entry.handler, "oip"))
            assert route.parameters.get("model", model) == model
            assert route.parameters.get("version", "1") == "1"


def test_head_goes_where_get_goes(router: Router) -> None:
    for entry in entries():
        if entry.method == "GET":
            path = re.sub(r"\[.*\]", "", entry.path).replace("{model}", "m")
            assert router.find("HEAD", path, {}).handler == router.find("GET", path, {}).handler


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v2/models/m/infer", "POST"), ("GET", "/v2/models/a/b/versions/1/infer", "POST"), ("PUT", "/v2/models/m/infer", "POST"),
        ("POST", "/v2/models/m", "GET, HEAD"), ("DELETE", "/v2/models/m/ready", "GET, HEAD"), ("POST", "/", "GET, HEAD"),
        ("GET", "/v1/models/m/load", "POST"), ("GET", "/v1/models/refresh", "POST"), ("GET", "/v2/repository/index", "POST"),
        ("OPTIONS", "/v2", "GET, HEAD"), ("POST", "/metrics", "GET, HEAD"), ("HEAD", "/v1/models/m/infer", "POST"),
    ],
)
def test_a_method_that_is_not_allowed(router: Router, method: str, path: str, allowed: str) -> None:
    error = refusal(router.find(method, path, {}))
    assert isinstance(error, MethodNotAllowed)
    assert error.headers == [("allow", allowed)]


@pytest.mark.parametrize(
    "path",
    [
        "/v3", "/v2x", "/V2", "/v2/models", "/v2/model/m", "/health", "/health/live/x", "/v1", "/v1/model/m", "/openai", "/openai/v1/x",
        "/metricsx", "/../etc/passwd", "/etc/passwd", "", "*", "/v2/repository", "/v2/repository/models/m",
    ],
)
def test_there_is_nothing(router: Router, path: str) -> None:
    route = router.find("GET", path, {})
    error = refusal(route)
    assert (error.code, error.message) == ("not_found", f"there is nothing at {path}; /openapi.json says what there is")
    assert route.dialect == {"v1": "snooze", "openai": "openai"}.get(path.split("/")[1] if path.count("/") > 1 else "", "oip")
