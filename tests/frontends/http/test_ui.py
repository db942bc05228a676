"""The dashboard's files, byte for byte, and which requests of browsers are taken."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import Daemon, running
from tests.frontends.http.stage import Client, Stage, get, post, serving
from wakeful.config.settings import Role
from wakeful.errors import Forbidden
from wakeful.frontends.http import ui
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.guard import Guard, name_of
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.routes import Entry, Router, pages
from wakeful.tensors import Buffer

MOST_BYTES = 140 * 1024
"""Of all that is served."""


def answer(connection: Connection, _head: Head, _body: Buffer) -> None:
    connection.respond_json(b"{}")


ROUTES = [
    Entry("GET", "/wakeful/v1/state", Role.READ_ONLY, "wakeful", answer, ""),
    Entry("POST", "/v1/models/{model}/load", Role.ADMIN, "snooze", answer, ""),
    Entry("POST", "/v2/models/{model}/infer", Role.INFERENCE, "oip", answer, ""), Entry("GET", "/v2", Role.READ_ONLY, "oip", answer, ""),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Stage]:
    with serving(find=Router([*pages(), *ROUTES], guard=Guard(["models.example"])).find) as stage:
        yield stage


@pytest.fixture
def caller(site: Stage) -> Iterator[Client]:
    client = site.connect()
    yield client
    client.close()


def to(host: str, request: bytes) -> bytes:
    return request.replace(b"host: a", b"host: " + host.encode(), 1)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_is_asked_for_again_and_sent_once(caller: Client) -> None:
    status, headers, body = caller.ask(get("/ui/"))
    assert (status, headers["content-type"], headers["cache-control"]) == (200, "text/html; charset=utf-8", "no-cache")
    assert ui.site().version.encode() in body
    assert b"{VERSION}" not in body
    status, headers, body = caller.ask(get("/ui/", f"if-none-match: {headers['etag']}"))
    assert (status, body) == (304, b"")
    assert "content-length" not in headers
    assert caller.ask(get("/ui/", 'if-none-match: "older"'))[0] == 200
    assert caller.ask(get("/ui"))[:2][1]["location"] == "ui/"
    caller.send(get("/ui/", method="HEAD"))
    assert caller.receive(head_only=True)[0] == 200


def test_files_are_kept_for_ever_and_named_by_what_is_in_them(caller: Client) -> None:
    version = ui.site().version
    for name, (content, kind) in ui.site().files.items():
        status, headers, body = caller.ask(get(f"/ui/{version}/{name}"))
        assert (status, headers["content-type"], body) == (200, kind, content)
        assert "immutable" in headers["cache-control"]
        assert content == (ui.DIRECTORY / name).read_bytes()


def test_nothing_else_is_there(caller: Client) -> None:
    version = ui.site().version
    for path in ("x", version, f"{version}/none.js", "000000000000/app.js", f"{version}/index.html", f"{version}/vendor/vendor.toml",
                 f"{version}/../app.js", f"{version}/%2e%2e/__init__.py", f"{version}/..%2f..%2f__init__.py", f"{version}/vendor", "index.html"):
        status, headers, body = caller.ask(get(f"/ui/{path}"))
        assert (status, headers["content-type"]) == (404, "application/json"), path
        assert b"not_found" in body
    assert caller.ask(post("/ui/"))[0] == 405


def test_browsers_are_told_to_take_nothing_from_elsewhere(caller: Client) -> None:
    for path in ("/ui/", f"/ui/{ui.site().version}/app.js"):
        headers = caller.ask(get(path))[1]
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy.pop("img-src") == "'self' data:"
        assert set(policy.values()) == {"'none'", "'self'"}
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_the_page_needs_no_other_host_no_style_and_no_script_within_it() -> None:
    for path in ui.DIRECTORY.rglob("*"):
        if path.suffix in ui.KINDS:
            text = path.read_text("utf-8").replace("http://www.w3.org/", "")
            assert not re.findall(r"""["'(](?:https?:)?//[a-z0-9]""", text), path.name
    index = (ui.DIRECTORY / ui.INDEX).read_text("utf-8")
    assert not re.search(r"<style|style=|<script(?![^>]* src=)|\bon[a-z]+=|(?:src|href)=\"/", index)


def test_it_stays_small() -> None:
    assert sum(path.stat().st_size for path in ui.DIRECTORY.rglob("*") if path.suffix in ui.KINDS) <= MOST_BYTES


def test_what_is_of_others_is_named_with_its_licence() -> None:
    vendor = ui.DIRECTORY / "vendor"
    listed = tomllib.loads((vendor / "vendor.toml").read_text("utf-8"))["files"]
    assert {entry["name"] for entry in listed} == {path.name for path in vendor.glob("*.js")}
    for entry in listed:
        assert hashlib.sha256((vendor / entry["name"]).read_bytes()).hexdigest() == entry["here"], entry["name"]
        assert entry["here"] == entry["sha256"] or entry["package"] == "preact"
        assert (vendor / entry["licence"]).stat().st_size > 1000


def test_a_change_of_any_file_is_another_version(tmp_path: Path) -> None:
    versions = []
    for content in ("1", "2"):
        directory = tmp_path / content
        directory.mkdir()
        (directory / "index.html").write_text('<script src="{VERSION}/a.js">')
        (directory / "a.js").write_text(content)
        versions.append(ui.site(directory).version)
        assert ui.site(directory).page == f'<script src="{versions[-1]}/a.js">'.encode()
    assert versions[0] != versions[1]


# ── which requests ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "192.168.1.7:1", "localhost", "LocalHost:8080", "me.localhost",
    "gpu.local", "Gpu.Local.:80",
    "models.example", "MODELS.example:443", "wakeful", "my-server:8080", "pod.ns.svc.cluster.local",
])
def test_names_that_no_site_can_have(caller: Client, host: str) -> None:
    for request in (get("/ui/"), get("/wakeful/v1/state"), post("/v1/models/m/load"), get("/v2", "origin: http://elsewhere.example")):
        assert caller.ask(to(host, request))[0] == 200


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "notlocal.example", "xmodels.example",
    "a.models.example",
    "127.0.0.1, evil.example", "[::1", "[::1]x", "127.0.0.1:x", "", "evil.example.", "1.2.3", "0x7f.1", "a b",
])
def test_names_that_a_site_may_have_pointed_here(caller: Client, host: str) -> None:
    for request in (get("/ui/"), get("/wakeful/v1/state"), post("/v1/models/m/load"), get("/v2", "origin: http://evil.example"),
                    post("/v2/models/m/infer", b"{}", "origin: http://evil.example")):
        status, _, body = caller.ask(to(host, request))
        assert (status, b"allowed_hosts" in body) == (403, True), request
    assert caller.ask(to(host, get("/v2")))[0] == 200
    assert caller.ask(to(host, post("/v2/models/m/infer", b"{}")))[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://a:81", "https://a.evil.example", "http://a@evil.example", "a", "file://"])
def test_pages_of_others_change_nothing(caller: Client, origin: str) -> None:
    status, _, body = caller.ask(post("/v1/models/m/load", b"", f"origin: {origin}"))
    assert (status, b"may not change anything" in body) == (403, True)
    assert caller.ask(get("/wakeful/v1/state", f"origin: {origin}"))[0] == 200


def test_our_own_page_may(caller: Client) -> None:
    for origin in ("http://a", "https://A"):
        assert caller.ask(post("/v1/models/m/load", b"{}", f"origin: {origin}", "content-type: application/json"))[0] == 200


def test_programs_that_say_no_host(caller: Client) -> None:
    assert caller.ask(get("/wakeful/v1/state", version="1.0").replace(b"host: a\r\n", b""))[0] == 200
    with pytest.raises(Forbidden):
        Guard().check("/v2", {"origin": "http://a"}, changes=False)


def test_names_without_ports() -> None:
    assert [name_of(host) for host in ("A:1", "[fe80::1]:80", "[x", "a:b", "")] == ["a", "fe80::1", "", "", ""]


# ── the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    keys = ("--api-key", "admin:the-key-of-an-admin", "--api-key", "read_only:the-key-of-a-reader")
    with running(tmp_path_factory.mktemp("ui"), "--demo", "--no-grpc", "--allowed-hosts", "models.example, b.example", *keys) as daemon:
        yield daemon


def test_the_page_needs_no_key_and_what_it_shows_does(daemon: Daemon) -> None:
    for host, status in (("models.example", 200), ("b.example:80", 200), ("evil.example", 403)):
        assert daemon.call("GET", "/ui/", headers={"host": host})[0] == status
    assert daemon.call("GET", "/wakeful/v1/state")[0] == 401
    reader = {"authorization": "Bearer the-key-of-a-reader"}
    assert daemon.call("GET", "/wakeful/v1/state", headers=reader)[0] == 200
    assert daemon.call("POST", "/v1/models/digits/unload", headers=reader)[0] == 403


def test_who_shows_a_key_is_no_page_of_others(daemon: Daemon) -> None:
    """Such a page has none, so that a name which only programs use need not be listed."""
    headers = {"authorization": "Bearer the-key-of-an-admin", "host": "anything.example"}
    assert daemon.call("GET", "/wakeful/v1/state", headers=headers)[0] == 200
    assert daemon.call("POST", "/v1/models/digits/unload", headers=headers)[0] == 200


def test_a_browser_at_the_root_is_shown_the_way(daemon: Daemon) -> None:
    import http.client

    client = http.client.HTTPConnection(daemon.host, daemon.port, timeout=30)
    client.request("GET", "/", headers={"accept": "text/html,*/*", "authorization": "Bearer the-key-of-a-reader"})
    response = client.getresponse()
    assert (response.status, response.headers["location"]) == (302, "ui/")
    client.close()
