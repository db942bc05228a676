"""Every route of the page, spelled in every way, asked by strangers and by callers of too low a role: keys hold for what is meant, not for how it
is written."""

import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running

KEYS = {"read_only": "reader-key-of-some-length", "inference": "caller-key-of-some-length", "admin": "boss-key-of-some-length"}
RANK = {role: rank for rank, role in enumerate(KEYS)}
STRANGERS = ["", "wrong", KEYS["admin"][:-1], KEYS["admin"] + "x", KEYS["admin"].upper(), KEYS["admin"] * 1000, "\xe9" * 20, "a.b.c"]
ANYBODY = "anybody"
PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")


class Wanted(NamedTuple):
    method: str
    path: str
    role: str
    """The lowest that may, or ANYBODY."""


ROUTES = [
    Wanted(method, re.sub(r"\[(.*?)]", shown, route).format(model="m", version="1"), role.strip("`"))
    for method, route, role in re.findall(r"^\| (GET|POST) \| `(.*?)` \| (\S+) \|", PAGE, re.MULTILINE)
    for shown in sorted({"", r"\1"} if "[" in route else {""})
]


def spellings(path: str) -> list[str]:
    """The same path, as others might write it to get past a guard."""
    encoded = "/" + "".join(f"%{ord(letter):02x}" for letter in path[1:])
    return [
        path, path + "/", path + "//", path.replace("/", "//"), "/" + path, encoded, path + "?key=value", path + "?/health/live", path + "?#",
        "http://elsewhere" + path, path + "/?x=%2Fhealth%2Flive",
    ]


def elsewhere(path: str) -> list[str]:
    """Paths that lead nowhere, though they look like this one, or like one that is open."""
    return [path.upper() + "X", "/V1" + path, f"/health/live/..{path}", f"/health/live/%2e%2e{path}", f"{path};/health/live", f"/./{path}"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("access")
    onnx_models.ident(directory / "m.onnx")
    keys = [part for role, key in KEYS.items() for part in ("--api-key", f"{role}:{key}")]
    with running(directory / "daemon", "--models-dir", str(directory), "--no-grpc", "--log-requests", *keys) as daemon:
        yield daemon


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[http.client.HTTPConnection]:
    """Kept from one request to the next, so that what was allowed once could be remembered for the wrong caller."""
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as connection:
        yield connection


def status(connection: http.client.HTTPConnection, method: str, path: str, key: str, field: str = "x-api-key") -> int:
    value = f"Bearer {key}" if field == "authorization" else key
    connection.request(method, path, "{}" if method == "POST" else None, {field: value.encode("latin-1")} if key else {})
    answer = connection.getresponse()
    if answer.headers.get_content_type() == "text/event-stream":
        connection.close()  # it has no end, and the next request opens another connection
    else:
        answer.read()
    return answer.status


def test_the_page_has_been_read() -> None:
    assert {route.role for route in ROUTES} == {*KEYS, ANYBODY}
    assert len(ROUTES) > 25


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_strangers_are_told_nothing_however_they_spell_it(connection: http.client.HTTPConnection, route: Wanted) -> None:
    """C51: 401 for any path, method and spelling, be there something or not; health stays open for probes, and is all that is."""
    shown = [(key, route.path) for key in STRANGERS] + [("wrong", path) for path in spellings(route.path)]
    for field in ("x-api-key", "authorization"):
        for key, path in shown:
            got = status(connection, route.method, path, key, field)
            assert (got != 401) == (route.role == ANYBODY), (path, key[:30], got)
    spelled = [(method, path) for method in ("GET", "HEAD", "OPTIONS") for path in spellings(route.path)]
    for method, path in [*spelled, *((method, route.path) for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE"))]:
        got = status(connection, method, path, "")
        assert got == 401 if route.role != ANYBODY else got in (200, 405), (method, path, got)
    for path in elsewhere(route.path):
        assert status(connection, route.method, path, "") == 401, path


@pytest.mark.parametrize("role", ["read_only", "inference"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_role_that_is_too_low_stays_too_low_however_it_is_spelled(connection: http.client.HTTPConnection, route: Wanted, role: str) -> None:
    """C51: 403 for the key of callers on what administrators do."""
    may = route.role == ANYBODY or RANK[role] >= RANK[route.role]
    for path in spellings(route.path):
        got = status(connection, route.method, path, KEYS[role])
        assert (got == 403) == (not may), (path, got)
        assert got != 401
    for method in ("OPTIONS", "HEAD", "PUT", "DELETE"):
        got = status(connection, method, route.path, KEYS[role])
        if method == "HEAD" and route.method == "GET":
            assert got in ({200, 503} if may else {403}), (method, got)
        else:
            assert got == 405 or not may, (method, got)
            assert got in (403, 405), (method, got)


def test_the_highest_key_may_do_everything(connection: http.client.HTTPConnection) -> None:
    """C51: 503 is the readiness of a model that sleeps, 415 an upload that is no form, 400 an inference without inputs."""
    got = {route: status(connection, route.method, route.path, KEYS["admin"]) for route in ROUTES}
    assert {route: code for route, code in got.items() if code not in (200, 400, 415, 503)} == {}


def test_who_was_refused_changed_nothing_and_no_key_was_written_down(daemon: Daemon, connection: http.client.HTTPConnection) -> None:
    """C51: after all that strangers and low roles asked for above, no model was touched by them; and a key in an address is not logged either."""
    admin = {"x-api-key": KEYS["admin"]}
    assert daemon.call("POST", "/v1/models/m/pin", {}, admin)[0] == 200
    before = daemon.call("GET", "/v1/events", headers=admin)[1]["events"][-1]["seq"]
    for key in ("", "wrong", KEYS["read_only"], KEYS["inference"]):
        for path in ("/v1/models/m/unload", "/v2/repository/models/m/unload", "/v1/models/m/unpin", "/v1/models/refresh"):
            assert status(connection, "POST", path, key) in (401, 403)
    assert status(connection, "GET", f"/v2?api_key={KEYS['admin']}", "") == 401
    after = daemon.call("GET", f"/v1/events?since={before}", headers=admin)[1]["events"]
    assert [event["kind"] for event in after if event["kind"] not in ("probe", "prepare", "refuse")] == []
    (model,) = daemon.call("GET", "/v1/models", headers=admin)[1]
    assert (model["pinned"], model["state"]) == (True, "ready")
    assert not [key for key in KEYS.values() if key in daemon.log]


def test_it_listens_to_this_machine_alone_unless_told_otherwise(daemon: Daemon) -> None:
    """C51"""
    assert daemon.host == "127.0.0.1"
    rows = [line.split() for line in Path(f"/proc/{daemon.process.pid}/net/tcp").read_text().splitlines()[1:]]
    assert [row[1].partition(":")[0] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == daemon.port] == ["0100007F"]
