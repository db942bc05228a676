"""The overview, in a browser, of a real daemon."""

import json
import re
from typing import Any

import pytest

from tests.daemon import Daemon, running, wait_until
from tests.ui.conftest import Open
from tests.ui.visit import Visit
from wakeful.telemetry.units import show_bytes

ASKED = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def state_of(daemon: Daemon, model: str) -> dict[str, Any]:
    models: list[dict[str, Any]] = daemon.call("GET", "/wakeful/v1/state")[1]["models"]
    return next(one for one in models if one["key"] == model)


def sleeping(daemon: Daemon, *models: str) -> None:
    for model in models:
        daemon.call("POST", f"/v1/models/{model}/unload")


def test_it_opens_with_data_and_without_a_complaint(daemon: Daemon, visit: Open) -> None:
    """Nothing is asked of another host, nothing breaks the policy, nothing is said on the console: `visit` looks after that in every test."""
    seen = visit(daemon)
    for model in ("ident", "titles", "broken"):
        seen.row(model)
    seen.live()
    assert seen.page.title() == "Wakeful"
    seen.see(".facts", "memory")
    fonts = seen.page.evaluate("[...document.fonts].length")
    assert fonts == 0


def test_looking_wakes_nobody(daemon: Daemon, visit: Open) -> None:
    sleeping(daemon, "ident")
    before = len(daemon.events(kind="load"))
    seen = visit(daemon)
    seen.live()
    for route in ("#/m/ident", "#/events", "#/system", "#/m/titles"):
        seen.go(route)
        seen.see("main .panel")
    assert len(daemon.events(kind="load")) == before
    assert state_of(daemon, "ident")["state"] == "asleep"


def test_calls_show_as_they_happen(daemon: Daemon, visit: Open) -> None:
    sleeping(daemon, "ident", "titles")
    seen = visit(daemon)
    row = seen.row("ident", "asleep")
    assert "○" in row.inner_text()
    first = max(event["seq"] for event in daemon.events())
    for _ in range(40):
        assert daemon.call("POST", "/v2/models/ident/infer", ASKED)[0] == 200
    row = seen.row("ident", "ready")
    dots = len(state_of(daemon, "ident")["replicas"])
    assert row.locator(".dots .dot").count() == dots
    load = daemon.wait_event("load", "ident", since=first)
    seen.see(f"li[data-seq='{load['seq']}']", load["text"])
    assert seen.page.locator(f"li[data-seq='{load['seq']}']").count() == 1
    row.locator("svg.spark path[d^=M]").wait_for(state="attached")

    def same() -> bool:
        memory = daemon.call("GET", "/wakeful/v1/state")[1]["daemon"]["memory"]
        shown: str = seen.page.locator("[data-test=memory]").inner_text()
        return shown == f"{show_bytes(memory['used'])} of {show_bytes(memory['budget'])}"

    seen.until(same, "the page shows the memory that the daemon reports")
    row.locator("button.dots").click()
    pid = state_of(daemon, "ident")["replicas"][0]["pid"]
    seen.see("dialog td", str(pid))
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")


def test_a_model_is_unloaded_and_loaded(daemon: Daemon, visit: Open) -> None:
    assert daemon.call("POST", "/v1/models/titles/load")[0] == 200
    seen = visit(daemon)
    seen.row("titles", "ready").get_by_role("button", name="Unload titles").click()
    seen.see("dialog h2", "Unload titles?")
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")
    assert state_of(daemon, "titles")["state"] == "ready"
    seen.row("titles").get_by_role("button", name="Unload titles").click()
    seen.see("dialog").get_by_role("button", name="Unload").click()
    seen.row("titles", "asleep").get_by_role("button", name="Load titles").wait_for()
    event = daemon.events(model="titles", kind="unload")[-1]
    seen.see(f"li[data-seq='{event['seq']}']", "titles")
    seen.see("[data-lane=titles] .letter", "m")
    seen.row("titles").get_by_role("button", name="Load titles").click()
    seen.row("titles", "ready")
    seen.row("titles").get_by_role("button", name="Pin titles").click()
    seen.see("tr[data-model=titles] .tag", "pinned")
    assert seen.page.locator("table.models tbody tr").first.get_attribute("data-model") == "titles"
    seen.row("titles").get_by_role("button", name="Unpin titles").click()
    seen.page.locator("tr[data-model=titles] .tag").wait_for(state="detached")


def test_a_load_that_fails_says_why(daemon: Daemon, visit: Open) -> None:
    seen = visit(daemon)
    seen.forgiven = ("503",)
    seen.row("broken").get_by_role("button", name="Load broken").click()
    seen.see(".notice.bad", "not a readable ONNX file")
    assert "✕" in seen.row("broken", "failed").inner_text()


def test_searching_and_sorting(daemon: Daemon, visit: Open) -> None:
    seen = visit(daemon)
    seen.row("broken")
    names = "[...document.querySelectorAll('table.models tbody tr')].map((row) => row.dataset.model)"
    assert seen.page.evaluate(names) == ["broken", "ident", "titles"]
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("heavier")
    seen.until(lambda: seen.page.evaluate(names) == ["titles"], "the row that matches is left")
    seen.page.locator("#search").fill("")
    assert daemon.call("POST", "/v1/models/titles/load")[0] == 200
    seen.row("titles", "ready")
    seen.page.get_by_role("button", name="Memory", exact=True).click()
    seen.until(lambda: seen.page.evaluate(names)[0] == "titles", "the largest is on top")


def test_events_are_filtered(daemon: Daemon, visit: Open) -> None:
    assert daemon.call("POST", "/v1/models/ident/load")[0] == 200
    sleeping(daemon, "ident")
    assert daemon.call("POST", "/v1/models/ident/load")[0] == 200
    seen = visit(daemon, "#/events")
    seen.see("li.event.load", "ident")
    seen.page.get_by_label("Kind").select_option("unload")
    seen.page.locator("li.event.load").first.wait_for(state="detached")
    kinds = seen.page.evaluate("[...new Set([...document.querySelectorAll('li.event .kind')].map((kind) => kind.textContent))]")
    assert kinds == ["unload"]
    seen.page.locator("summary").first.click()
    seen.see("dt", "reason")
    numbers = seen.page.evaluate("[...document.querySelectorAll('li.event')].map((event) => Number(event.dataset.seq))")
    assert numbers == sorted(numbers, reverse=True)


# ── who may what ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_key_allows(visit: Open, tmp_path: Any) -> None:
    keys = ("--api-key", "admin:the-key-of-an-admin", "--api-key", "read_only:the-key-of-a-reader")
    with running(tmp_path, "--demo", "--no-grpc", *keys) as daemon:
        assert daemon.call("POST", "/v1/models/digits/load", headers={"authorization": "Bearer the-key-of-an-admin"})[0] == 200
        seen = visit(daemon)
        seen.forgiven = ("401", "403")
        seen.see("dialog h2", "Key")
        assert seen.page.locator("table.models").count() == 0
        field = seen.see("dialog input")
        field.fill("not-a-key-at-all-no")
        field.press("Enter")
        seen.see("dialog .bad", "does not know this key")
        field.fill("the-key-of-a-reader")
        field.press("Enter")
        seen.row("digits", "ready")
        seen.see("button", "Key: read only")
        assert seen.page.locator("table.models .actions").count() == 0
        headers = "{authorization: 'Bearer the-key-of-a-reader'}"
        forged = f"fetch('../v1/models/digits/unload', {{method: 'POST', headers: {headers}}}).then((got) => got.status)"
        assert seen.page.evaluate(forged) == 403
        assert "the-key-of-a-reader" not in seen.page.content() + seen.page.url + daemon.log
        seen.see("button", "Key: read only").click()
        field = seen.see("dialog input")
        field.fill("the-key-of-an-admin")
        field.press("Enter")
        seen.row("digits").get_by_role("button", name="Unload digits").wait_for()
        assert seen.page.evaluate("Object.keys(localStorage).length") == 0


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_streams(daemon: Daemon) -> int:
    return int(daemon.call("GET", "/wakeful/v1/state")[1]["daemon"]["streams"]["open"])


def test_nine_tabs_share_one_stream(daemon: Daemon, visit: Open) -> None:
    wait_until(lambda: open_streams(daemon) == 0, "pages of other tests are gone", 60.0)
    seen = visit(daemon)
    pages = [seen.page, *(seen.another() for _ in range(8))]
    for page in pages:
        seen.live(page)
    assert open_streams(daemon) == 1
    assert daemon.call("POST", "/v1/models/ident/load")[0] == 200
    for page in pages:
        page.locator("tr[data-model=ident][data-state=ready]").wait_for()
    assert open_streams(daemon) == 1
    for page in pages[1:]:
        page.close()
    seen.live()


def hide(seen: Visit, hidden: bool) -> None:
    script = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    seen.page.evaluate(script, hidden)


def test_without_a_shared_worker_the_stream_closes_while_nobody_looks(daemon: Daemon, visit: Open) -> None:
    wait_until(lambda: open_streams(daemon) == 0, "pages of other tests are gone", 60.0)
    seen = visit(daemon, alone=True)
    seen.live()
    assert open_streams(daemon) == 1
    hide(seen, True)
    seen.see("[data-test=stream]", "paused")
    wait_until(lambda: open_streams(daemon) == 0, "the stream is closed", 60.0)
    hide(seen, False)
    seen.live()


def test_where_no_stream_is_left_the_page_asks(daemon: Daemon, visit: Open) -> None:
    seen = visit(daemon, alone=True)
    seen.forgiven = ("503",)
    seen.live()
    refusal = json.dumps({"error": "32 streams are open", "code": "unavailable"})
    seen.page.route("**/wakeful/v1/stream", lambda route: route.fulfill(status=503, body=refusal, content_type="application/json"))
    seen.page.reload()
    seen.see("[data-test=stream]", "every 5 s")
    seen.row("ident")


def test_a_daemon_that_comes_back(visit: Open, tmp_path: Any) -> None:
    with running(tmp_path / "one", "--demo", "--no-grpc") as daemon:
        assert daemon.call("POST", "/v1/models/digits/load")[0] == 200
        seen = visit(daemon)
        seen.forgiven = ("Failed to load resource",)
        seen.row("digits", "ready")
        seen.see("[data-lane=digits] rect.ready")
        daemon.process.kill()
        daemon.process.wait()
        seen.see("[data-test=stream]", "reconnecting")
    with running(tmp_path / "two", "--demo", "--no-grpc", "--port", str(daemon.port)) as again:
        seen.live()
        seen.row("digits", "asleep")
        assert again.call("POST", "/v1/models/digits/load")[0] == 200
        seen.row("digits", "ready")
        seen.see("[data-lane=digits] rect.unknown")  # what was before is kept, with a gap
        load = again.wait_event("load", "digits")
        seen.see(f"li[data-seq='{load['seq']}']", load["text"])
        numbers = seen.page.evaluate("[...document.querySelectorAll('li.event')].map((event) => event.dataset.seq)")
        assert len(numbers) == len(set(numbers))
        assert {int(number) for number in numbers} <= {event["seq"] for event in again.events()}


# ── what comes from elsewhere ────────────────────────────────────────────────────────────────────────────────────────────────────────────

EVIL = "<img src=x onerror=alert(1)>"


def doctored(daemon: Daemon, models: list[dict[str, Any]]) -> str:
    """A stream's first frame, with these models."""
    state = daemon.call("GET", "/wakeful/v1/state")[1] | {"models": models}
    return f"retry: 1000\n\nevent: snapshot\nid: 1\ndata: {json.dumps(state)}\n\n"


def play(seen: Visit, text: str) -> None:
    seen.page.route("**/wakeful/v1/stream", lambda route: route.fulfill(status=200, body=text, content_type="text/event-stream"))
    seen.page.reload()


def test_names_and_texts_never_become_markup(daemon: Daemon, visit: Open) -> None:
    model = state_of(daemon, "ident")
    evil = model | {"key": EVIL, "name": EVIL, "reason": EVIL, "description": EVIL, "error": EVIL, "batching": EVIL, "path": EVIL}
    event = {"seq": 10**6, "time": 1e9, "kind": "load", "model": EVIL, "reason": EVIL, "text": EVIL, "figures": {EVIL: EVIL}}
    seen = visit(daemon, alone=True)
    seen.forgiven = ("404", "Failed to load")
    play(seen, doctored(daemon, [evil]) + f"event: event\nid: {event['seq']}\ndata: {json.dumps(event)}\n\n")
    seen.see("tr th", EVIL)
    seen.see("li.event", EVIL)
    seen.page.locator("summary").first.click()
    seen.go("#/m/" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    seen.see("h1", EVIL)
    assert seen.page.locator("main img, main script, main iframe").count() == 0


def test_a_tick_draws_no_row_that_has_not_changed(daemon: Daemon, visit: Open) -> None:
    """Two hundred models, of which one has changed."""
    model = state_of(daemon, "ident")
    many = [model | {"key": f"model-{number:03}", "name": f"model-{number:03}", "replicas": [], "state": "asleep"} for number in range(200)]
    seen = visit(daemon, alone=True)
    seen.forgiven = ("Failed to load",)
    play(seen, doctored(daemon, many))
    seen.row("model-199")
    assert seen.page.locator("table.models tbody tr").count() == 200
    watched = """new Promise((done) => {
        const rows = new Set();
        new MutationObserver((changes) => {
            for (const change of changes) {
                const row = (change.target.closest ? change.target : change.target.parentElement).closest("tr[data-model]");
                if (row) rows.add(row.dataset.model);
            }
            if (rows.has("model-007")) done([...rows]);
        }).observe(document.querySelector("table.models tbody"), { subtree: true, childList: true, characterData: true, attributes: true });
        import(document.querySelector("script[type=module]").src.replace("app.js", "store.js")).then(({ store, say }) => {
            const models = new Map(store.picture.models);
            models.set("model-007", { ...models.get("model-007"), queue: 5 });
            store.picture = { ...store.picture, models };
            say(null);
        });
    })"""
    assert seen.page.evaluate(watched) == ["model-007"]


def test_addresses_are_relative(daemon: Daemon, visit: Open) -> None:
    """So that the page works below any prefix of a proxy."""
    seen = visit(daemon)
    seen.live()
    assert seen.module("net.js", "m.ROOT.href") == f"{daemon.url}/"
    asked = seen.page.evaluate("performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)")
    assert all(re.match(r"/(ui|wakeful)/", path) for path in asked), asked


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_follows_the_system_until_one_is_chosen(daemon: Daemon, visit: Open, theme: Any) -> None:
    seen = visit(daemon, color_scheme=theme)
    seen.live()
    background = "getComputedStyle(document.documentElement).backgroundColor"
    shades = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 19, 23)"}
    assert seen.page.evaluate(background) == shades[theme]
    seen.page.get_by_role("button", name="Colours").click()
    seen.until(lambda: seen.page.evaluate("document.documentElement.dataset.theme") == "dark", "dark is chosen")
    assert seen.page.evaluate(background) == shades["dark"]
    seen.page.reload()
    assert seen.page.evaluate(background) == shades["dark"]
