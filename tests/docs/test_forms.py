"""The schemas of JSON are up to date, and what a daemon and the verbs say has these fields and no others."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests import onnx_models
from tests.cli.test_client_verbs import wakeful
from tests.daemon import Daemon, running
from tests.insight.following import Following
from tools.forms.page import FOLDER, ROOT, files
from tools.forms.routes import ROUTES
from tools.forms.schema import Schema, closed
from tools.forms.verbs import FAILURE, VERBS, envelope
from wakeful.frontends.http.routes import table
from wakeful.insight.history import SPANS

PIPELINE = '[[pipelines]]\nid = "twice"\nsteps = [{ model = "one" }]\n'


def assert_is(schema: Schema, answer: Any) -> None:
    """A field that the schema does not know is one that nobody has written about."""
    jsonschema.Draft202012Validator(closed(schema)).validate(answer)


def test_the_files_are_up_to_date() -> None:
    made = files()
    for name, text in made.items():
        assert (ROOT / name).read_text("utf-8") == text, "python -m tools.forms"
    assert {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).rglob("*.json")} == {name for name in made if name.endswith(".json")}


def test_they_are_schemas() -> None:
    for schema in [*(schema for _, schema in ROUTES.values()), *(envelope(*one) for one in VERBS.items()), FAILURE]:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_route_of_the_prefix_and_every_kind_has_one() -> None:
    told = {route.partition(":")[0] for route, _ in ROUTES.values()}
    served = table(None, lambda _: None)  # type: ignore[arg-type]  # no handler is called
    assert {f"{route.method} {route.path}" for route in served if route.path.startswith("/wakeful/v1/")} <= told
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/wakeful/cli").glob("*.py"))
    forms = (r'\.result\("(\w+)"', r'"wakeful": 1, "kind": "(\w+)"', r'run_change\(arguments, "(\w+)"')
    kinds = {kind for form in forms for kind in re.findall(form, source)}
    assert kinds == VERBS.keys()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("forms")
    models = directory / "models"
    models.mkdir()
    onnx_models.ident(models / "one.onnx")
    onnx_models.heavy(models / "heavy.onnx", 8)
    (models / "broken.onnx").write_bytes(b"no model at all")
    (models / "models.toml").write_text(PIPELINE)
    with running(directory / "daemon", "--models-dir", str(models)) as daemon:
        daemon.infer("one", "x", [1.0, 2.0, 3.0, 4.0], [1, 4])
        daemon.infer("broken", "x", [1.0], [1, 1])
        yield daemon


def test_what_routes_answer(daemon: Daemon) -> None:
    paths: dict[str, list[str]] = {name: [] for name in ROUTES}
    for name in ("one", "heavy", "broken", "twice"):
        paths["model"].append(f"models/{name}")
        paths["explain"] += [f"models/{name}/explain", f"models/{name}/explain?wake=1"]
        paths["model-history"] += [f"models/{name}/history?span={span}" for span in SPANS] if name != "twice" else []
    paths["history"] = [f"history?span={span}" for span in SPANS]
    paths |= {name: [name] for name in ("state", "events", "config", "doctor", "access")} | {"error": ["models/nobody", "history?span=2m"]}
    for name, asked in paths.items():
        for path in asked:
            _, answer = daemon.call("GET", f"/wakeful/v1/{path}")
            assert_is(ROUTES[name][1], answer)


def test_what_the_stream_says(daemon: Daemon) -> None:
    daemon.call("POST", "/v1/models/heavy/unload")
    following = Following(daemon)
    daemon.call("POST", "/v1/models/heavy/load")
    frames = following.until(lambda frame: frame.kind == "event" and frame.data["model"] == "heavy")
    frames += following.until(lambda frame: frame.kind == "tick")
    following.close()
    assert frames[0].kind == "snapshot"
    for frame in frames:
        assert_is(ROUTES["state" if frame.kind == "snapshot" else f"stream-{frame.kind}"][1], frame.data)
    assert_is(ROUTES["stream-gap"][1], {"from": 1, "to": 2})
    assert_is(ROUTES["stream-bye"][1], {"reason": "stopping"})


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_what_verbs_print(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[defaults]\nmax_batchsize = 8\n")
    models = ["--models-dir", str(daemon.directory.parent / "models"), "--cache-dir", str(tmp_path / "cache")]
    asked = [
        ["ps"], ["events"], ["explain", "one"], ["explain", "heavy", "--wake"], ["load", "one", "heavy", "--dry-run"], ["load", "one", "heavy"],
        ["load", "heavy", "broken"], ["pin", "one", "--dry-run"], ["pin", "one"], ["unpin", "one", "--dry-run"], ["unpin", "one"],
        ["unload", "one", "--dry-run"], ["unload", "one", "heavy"], ["infer", "one"], ["infer", "one", "--curl"], ["health"], ["config"],
    ]
    alone = [
        ["check", str(tmp_path / "wrong.toml")], ["check", *models], ["config", "show", *models], ["doctor", *models], ["version"],
        ["prepare", "heavy", "broken", *models], ["prepare", "heavy", "--clean", *models],
    ]
    seen = set()
    for command in [*([*one, "--url", daemon.url] for one in asked), *alone]:
        answer = printed(wakeful(*command, "--json"))
        seen.add(answer["kind"])
        assert_is(envelope(answer["kind"], VERBS[answer["kind"]]), answer)
    for several in (["one"], ["one", "heavy"]):
        run = printed(wakeful("bench", *several, "--duration", "0.3", "--assert", "done>0", "--json", WAKEFUL_URL=daemon.url))
        assert_is(envelope("bench", VERBS["bench"]), run)
    assert seen == VERBS.keys() - {"bench", "event"}  # which --follow prints, of the same form as in events
    for command in (["ps", "--url", "http://127.0.0.1:1"], ["config", "show", "server.prot"], ["prepare", "nobody", *models]):
        assert_is(FAILURE, printed(wakeful(*command, "--json")))
