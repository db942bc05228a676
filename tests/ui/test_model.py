"""A model's page: what it shows is what the daemon says, and the calls that it writes work as they stand."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.daemon import Daemon
from tests.ui.conftest import Open
from tests.ui.visit import Visit
from wakeful.telemetry.metrics import LATENCY_BOUNDS, ROWS

ROWS_ASKED = [1, 3, 8]


def ask(daemon: Daemon, rows: int) -> None:
    assert daemon.infer("ident", "x", [1.0] * 4 * rows, [rows, 4])[0] == 200


def detail(daemon: Daemon, model: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.call("GET", f"/wakeful/v1/models/{model}")[1]
    return found


def test_its_facts_are_the_daemons(daemon: Daemon, visit: Open) -> None:
    ask(daemon, 1)
    seen = visit(daemon, "#/m/ident")
    seen.see("h1", "ident")
    seen.see("dl.facts dd", detail(daemon, "ident")["model"]["path"])
    seen.see("#replicas ~ .scroll td, .panel td", str(detail(daemon, "ident")["model"]["replicas"][0]["pid"]))
    for tensor in ("x", "y"):
        seen.see("th code", tensor)
    seen.see("td", "FP32 [any, 4]")
    seen.see("table.settings th", "max_batch_size")
    seen.see("table.settings td", "models.toml:9")
    assert seen.page.locator("table.settings th", has_text="queue_limit").count() == 0
    seen.see("#settings ~ *, .panel", "all (").get_by_role("button", name="all (").click()
    seen.see("table.settings th", "queue_limit")
    assert seen.page.title() == "ident · Wakeful"


def test_batches_and_latencies_are_those_that_were_counted(daemon: Daemon, visit: Open) -> None:
    for rows in ROWS_ASKED:
        ask(daemon, rows)
    seen = visit(daemon, "#/m/ident")
    bars = "Object.fromEntries([...document.querySelectorAll('.bars li')].map((bar) => [bar.dataset.rows, Number(bar.dataset.count)]))"

    def counted() -> bool:
        """Both are asked at different moments, so what is compared has to stand still."""
        shown: dict[str, int] = seen.page.evaluate(bars)
        said = {str(one["rows"]): one["count"] for one in detail(daemon, "ident")["batches"]}
        return bool(shown) and all(said[rows] == count for rows, count in shown.items()) and sum(shown.values()) == sum(said.values())

    seen.until(counted, "the bars show the runs of the last minute")
    seen.see(".bars li[data-rows='8'].limit em", "max_batch_size 8")
    assert seen.page.locator(".bars li.limit").count() == 1
    plot = seen.page.get_by_role("slider", name="Time to answer, over time")
    plot.wait_for()
    seen.page.locator("path.heat").first.wait_for(state="attached")
    assert seen.module("model.js", "m.BOUNDS") == list(LATENCY_BOUNDS)
    assert {str(rows) for rows in ROWS} >= set(seen.page.evaluate(bars))


def test_a_chart_is_read_with_the_keyboard_and_as_a_table(daemon: Daemon, visit: Open) -> None:
    ask(daemon, 2)
    seen = visit(daemon, "#/m/ident")
    plot = seen.page.get_by_role("slider", name="In hand, over time")
    plot.focus()
    last = int(plot.get_attribute("aria-valuemax"))
    assert int(plot.get_attribute("aria-valuenow")) == last
    for key, expected in (("ArrowLeft", last - 1), ("PageUp", last - 11), ("ArrowRight", last - 10), ("Home", 0), ("End", last)):
        plot.press(key)
        seen.until(lambda wanted=expected: int(plot.get_attribute("aria-valuenow")) == wanted, f"{key} moves the cursor")
    seen.until(lambda: "replicas 1" in plot.get_attribute("aria-valuetext"), "the replica is counted")
    seen.page.get_by_role("button", name="In hand as a table").click()
    rows = seen.page.get_by_role("region", name="In hand, last rows").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 20


@pytest.mark.parametrize("span", ["1 h", "24 h"])
def test_other_spans(daemon: Daemon, visit: Open, span: str) -> None:
    ask(daemon, 1)
    seen = visit(daemon, "#/m/ident")
    seen.page.get_by_role("slider", name="Time to answer, over time").wait_for()
    seen.page.get_by_role("button", name=span, exact=True).first.click()
    seen.see(".axis", f"−{span}" if span == "1 h" else "−24 h")


def test_one_that_never_woke_can_be_tried(daemon: Daemon, visit: Open) -> None:
    seen = visit(daemon, "#/m/titles")
    daemon.call("POST", "/v1/models/titles/unload")
    seen.see("h1", "titles")
    seen.see(".state.asleep")
    seen.page.get_by_role("button", name=re.compile("Read its inputs|Wake it and send")).wait_for()
    if seen.page.get_by_role("button", name="Read its inputs").count():  # else it was awake before, in another test
        seen.page.get_by_role("button", name="Read its inputs").click()
    seen.page.get_by_role("button", name="Wake it and send").wait_for()
    assert seen.page.locator(".title .state").inner_text().endswith("asleep")
    seen.page.get_by_role("button", name="Wake it and send").click()
    seen.see("[data-test=answer] h3", "it was asleep")
    seen.see(".title .state", "ready")


def test_no_such_model(daemon: Daemon, visit: Open) -> None:
    seen = visit(daemon, "#/m/none/of/this")
    seen.forgiven = ("404",)
    seen.see(".blank", "No model is called none/of/this here")


# ── trying it ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def awake(daemon: Daemon) -> Daemon:
    """Its model "ident" is ready, and what it takes is known."""
    ask(daemon, 1)
    return daemon


def choose(seen: Visit, name: str) -> str:
    """The text of the call in that form."""
    seen.page.get_by_role("group", name="The same call for").get_by_role("button", name=name, exact=True).click()
    text: str = seen.see(f"pre[aria-label={json.dumps(name)}]").inner_text()
    return text


def test_zeros_are_answered_as_the_command_line_answers_them(awake: Daemon, visit: Open) -> None:
    seen = visit(awake, "#/m/ident")
    seen.page.get_by_label("x, size of axis 0").fill("2")
    seen.page.get_by_role("button", name="Send").click()
    seen.see("[data-test=answer] p", "FP32 [2, 4]")
    assert seen.see("[data-output=y]").inner_text() == ", ".join(["0"] * 8)


def test_values_of_ones_own(awake: Daemon, visit: Open) -> None:
    seen = visit(awake, "#/m/ident")
    seen.page.get_by_role("group", name="Values of x").get_by_role("button", name="JSON").click()
    values = seen.page.get_by_label("Values of x as JSON")
    values.fill("[[1, 2.5, -3")
    seen.see(".try .bad", "x:")
    values.fill("[[1, 2.5, -3]]")
    seen.see(".try .bad", "4 values make this shape, and there are 3")
    values.fill("[[1, 2.5, -3, 4e3]]")
    seen.page.get_by_role("button", name="Send").click()
    assert seen.see("[data-output=y]").inner_text() == "1, 2.5, -3, 4000"


@pytest.mark.parametrize("form", ["curl", "wakeful infer"])
def test_what_is_copied_for_a_shell_works_as_it_stands(awake: Daemon, visit: Open, form: str) -> None:
    seen = visit(awake, "#/m/ident")
    text = choose(seen, form).replace("wakeful infer", f"{sys.executable} -m wakeful infer")
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"NO_PROXY": "*"})
    assert done.returncode == 0, done.stderr
    if form == "curl":
        assert json.loads(done.stdout)["outputs"][0]["data"] == [0, 0, 0, 0]
    else:
        assert "y" in done.stdout


@pytest.mark.parametrize("form", ["tritonclient", "requests", "snoozeml"])
def test_what_is_copied_for_python_works_as_it_stands(awake: Daemon, visit: Open, form: str) -> None:
    pytest.importorskip({"tritonclient": "tritonclient.http"}.get(form, form), reason="a client library that is not installed")
    seen = visit(awake, "#/m/ident")
    text = choose(seen, form)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("y ")


def test_a_model_of_that_name_can_do_nothing_to_a_shell(daemon: Daemon, visit: Open) -> None:
    """Quoting, of all that a name or a value may hold."""
    seen = visit(daemon)
    seen.live()
    nasty = "a'b\"c $HOME `id` \\ ; \n é 😀"
    quoted = seen.module("calls.js", "m.quoted(a[0])", nasty)
    assert subprocess.run(["/bin/sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True).stdout == nasty
    value = [nasty, True, False, None, 1.5, {nasty: [-1]}]
    assert eval(seen.module("calls.js", "m.literal(a[0])", value)) == value


def test_explained_in_the_daemons_words(daemon: Daemon, visit: Open) -> None:
    daemon.call("POST", "/v1/models/titles/unload")
    seen = visit(daemon, "#/m/titles")
    seen.see(".title .state", "asleep")

    def same() -> bool:
        """It says how long ago, so words are compared that no clock changes."""
        shown = seen.page.evaluate("[...document.querySelectorAll('[data-test=explain] dt')].map((label) => label.textContent)")
        said = daemon.call("GET", "/wakeful/v1/models/titles/explain?wake=1")[1]
        first: str = seen.see("[data-test=explain] p").inner_text()
        return bool(shown == [line["label"] for line in said["lines"]] and first.split()[:3] == said["text"].split()[:3])

    seen.until(same, "the explanation is the daemon's")
    seen.see(".plan", "If a request came now:")
