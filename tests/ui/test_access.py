"""The dashboard for everybody: by keyboard, for screen readers, on small screens, in both themes."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon
from tests.ui.conftest import Open
from tests.ui.visit import Visit

PAGES = {"#/": "table.models tr[data-model]", "#/m/ident": ".bars li", "#/events": "li.event", "#/system": ".checks li"}
MOST_TABS = 200


def axe() -> str:
    """The checker's own code, or the reason why there is none."""
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed, and brings the checker")
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


def settled(seen: Visit, route: str) -> None:
    seen.go(route)
    seen.see(PAGES[route])
    if route != "#/events":
        reading = "/(Reading|Asking|Looking) (the|…)/.test(document.querySelector('main').textContent)"
        seen.until(lambda: not seen.page.evaluate(reading), "the page has read what it shows")


@pytest.fixture(scope="module")
def used(daemon: Daemon) -> Daemon:
    """With something on every chart."""
    for model in ("ident", "titles"):
        assert daemon.call("POST", f"/v1/models/{model}/load")[0] == 200
    for rows in (1, 2, 5):
        assert daemon.infer("ident", "x", [1.0] * 4 * rows, [rows, 4])[0] == 200
    daemon.call("POST", "/v1/models/broken/load")
    daemon.call("POST", "/v1/models/titles/unload")
    return daemon


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding_of_axe(used: Daemon, visit: Open, theme: Any) -> None:
    code = axe()
    seen = visit(used, color_scheme=theme)
    found = []
    for route in PAGES:
        settled(seen, route)
        seen.page.evaluate(code)
        result = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            (route, one["id"], [node["target"] for node in one["nodes"]][:3], one["nodes"][0]["failureSummary"])
            for one in result["violations"] if one["impact"] in ("serious", "critical")
        ]
    assert not found, found


def focused(seen: Visit) -> str:
    script = """() => { const here = document.activeElement;
        return here.id || here.getAttribute("aria-label") || here.textContent.trim(); }"""
    return str(seen.page.evaluate(script))


def tab_to(seen: Visit, name: str) -> None:
    for _ in range(MOST_TABS):
        seen.page.keyboard.press("Tab")
        if focused(seen) == name:
            return
    raise AssertionError(f"{name} is not reached with the Tab key; the last one is {focused(seen)}")


def test_everything_is_reached_with_the_keyboard(used: Daemon, visit: Open) -> None:
    seen = visit(used)
    seen.row("titles")
    seen.page.keyboard.press("Tab")
    assert focused(seen) == "Skip to content"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert seen.page.evaluate(outline) == "solid"
    for name in ("Memory by model, over time", "search", "ident", "Unload ident"):
        tab_to(seen, name)
        assert seen.page.evaluate(outline) == "solid"
    seen.page.keyboard.press("Enter")
    seen.see("dialog h2", "Unload ident?")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.closest('dialog') !== null || document.activeElement === document.body")
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")
    assert focused(seen) == "Unload ident"


def test_short_ways(used: Daemon, visit: Open) -> None:
    seen = visit(used)
    seen.row("ident")
    for keys, selector in (("ge", "li.event"), ("gs", ".checks li"), ("go", "table.models tr")):
        for key in keys:
            seen.page.keyboard.press(key)
        seen.see(selector)
    seen.page.keyboard.press("?")
    seen.see("dialog h2", "Keyboard")
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")
    seen.page.keyboard.press("p")
    seen.see("[data-test=stream]", "Frozen")
    seen.page.keyboard.press("p")
    seen.live()
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("gs?p")
    assert seen.page.locator("#search").input_value() == "gs?p"
    seen.page.keyboard.press("Escape")
    assert focused(seen) != "search"
    assert seen.page.evaluate("location.hash") in ("", "#/")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (320, 640)])
def test_every_page_fits(used: Daemon, visit: Open, width: int, height: int) -> None:
    seen = visit(used, viewport={"width": width, "height": height})
    for route in PAGES:
        settled(seen, route)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, route
        wide = """[...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll, pre, svg, .hidden, .lanes")
            && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 100))"""
        assert seen.page.evaluate(wide) == [], route


def test_targets_are_large_enough_for_fingers(used: Daemon, visit: Open) -> None:
    seen = visit(used, viewport={"width": 390, "height": 844})
    for route in PAGES:
        settled(seen, route)
        small = """[...document.querySelectorAll("main button, header button, header a, main select, main input:not([type=checkbox])")]
            .map((one) => [one.getBoundingClientRect(), one.outerHTML.slice(0, 80)])
            .filter(([box]) => box.height > 0 && box.height < 43.5).map(([box, text]) => [box.height, text])"""
        assert seen.page.evaluate(small) == [], route


def test_words_do_not_lie_over_each_other(used: Daemon, visit: Open) -> None:
    seen = visit(used)
    overlapping = """(() => {
        const boxes = [...document.querySelectorAll("header a, header button, header span, h1, h2, .panel > p, td, th, figcaption, .tools button")]
            .filter((one) => one.children.length === 0 && one.textContent.trim() && !one.closest(".hidden"))
            .map((one) => [one.getBoundingClientRect(), one.textContent]).filter(([box]) => box.width > 0);
        const found = [];
        boxes.forEach(([one, text], index) => boxes.slice(index + 1).forEach(([other, words]) => {
            const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
            const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
            if (across > 1 && down > 1) found.push([text, words]);
        }));
        return found;
    })()"""
    for route in PAGES:
        settled(seen, route)
        assert seen.page.evaluate(overlapping) == [], route


def test_whoever_wants_no_motion_has_none(used: Daemon, visit: Open) -> None:
    seen = visit(used, reduced_motion="reduce")
    seen.row("ident")
    assert used.infer("ident", "x", [1.0] * 4, [1, 4])[0] == 200
    seen.live()
    assert seen.page.locator("svg.spark").count() == 0
