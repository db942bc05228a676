"""The board for Grafana and the alerts: they name what the daemon shows, and a Prometheus that scrapes one finds all of it."""

import json
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until
from tools import board
from wakeful.errors import BY_CODE
from wakeful.telemetry.metrics import DEFINITIONS, SUCCESS

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yaml"
SECONDS = 120.0
"""Only ends a test that would hang."""
NAME = re.compile(r"\b(?:wakeful|snoozeml|process)_\w+")


def alerts() -> dict[str, str]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def expressions() -> dict[str, str]:
    shown = {f"{title} {number}": expression for number, (title, expression) in enumerate(board.queries())}
    page = (DEPLOY.parent / "docs" / "how-to" / "prometheus.md").read_text("utf-8")
    told = {f"of the page {number}": expression for number, expression in enumerate(re.findall(r"^\|.*\| `(.*)` \|$", page, re.MULTILINE))}
    return shown | alerts() | told


def test_the_file_is_what_the_tool_writes() -> None:
    assert (DEPLOY / "grafana" / "wakeful.json").read_text() == board.text()


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions().keys())
def test_it_asks_for_what_there_is(expression: str) -> None:
    """Names, labels and outcomes."""
    names = NAME.findall(expression)
    assert names
    labels = {"instance", "job", "le", "version"}
    for name in names:
        if name.startswith("process_"):
            continue
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        definition = DEFINITIONS[family if family in DEFINITIONS and DEFINITIONS[family].kind == "histogram" else name]
        labels |= set(definition.labels)
    used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression))
    used |= {label for names in re.findall(r"by \(([^)]*)\)", expression) for label in names.split(", ")}
    assert used <= labels
    for outcomes in re.findall(r'outcome(?:=~|!~|!=|=)"([^"]*)"', expression):
        assert set(outcomes.split("|")) <= {SUCCESS, *BY_CODE}


def test_nothing_in_it_belongs_to_one_machine() -> None:
    """It can be imported by hand and provisioned alike."""
    page = board.board()
    assert page["id"] is None
    variables = {variable["name"]: variable for variable in page["templating"]["list"]}
    assert set(variables) == {"datasource", "instance", "model"}
    assert all(variable["current"] == {} for variable in variables.values())
    panels = [panel for panel in page["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])


def test_no_panel_lies_over_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board.board()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= board.WIDTH
        taken |= cells


def test_what_is_provisioned_is_where_compose_puts_it() -> None:
    [provider] = yaml.safe_load((DEPLOY / "grafana" / "provisioning" / "dashboards" / "wakeful.yaml").read_text())["providers"]
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for service in ("grafana", "prometheus") for volume in compose[service]["volumes"])
    assert mounts["../grafana/wakeful.json"].startswith(provider["options"]["path"] + "/")
    [source] = yaml.safe_load((DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert urllib.parse.urlsplit(source["url"]).hostname in compose
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    assert scraped == ["wakeful:8080"]


# ── with Prometheus ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")


@needs_promtool
@pytest.mark.parametrize("command", ["check rules alerts.yaml", "test rules alerts_test.yaml", "check config prometheus.yaml"])
def test_promtool_finds_no_fault(command: str) -> None:
    done = subprocess.run(["promtool", *command.split()], cwd=RULES.parent, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tried() -> None:
    tried = yaml.safe_load((RULES.parent / "alerts_test.yaml").read_text())["tests"]
    raised = {case["alertname"] for test in tried for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert raised == set(alerts())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """It has answered, refused, grown, lost a process, and put a model to sleep."""
    directory = tmp_path_factory.mktemp("board")
    models = directory / "models"
    models.mkdir()
    onnx_models.ident(models / "quick.onnx")
    onnx_models.slow(models / "slow.onnx", 50)
    settings = 'id = "slow"\npath = "slow.onnx"\nautoscale_queue_threshold = 1\nmax_replicas = 2\nmax_batch_size = 1\n'
    (models / "models.toml").write_text(f'[defaults]\nprepare = "off"\n[[models]]\n{settings}')
    with running(directory, "--models-dir", str(models), "--no-grpc") as daemon:
        with Crowd(daemon, "slow", clients=8):
            wait_until(lambda: daemon.metric("wakeful_scaling_steps_total", model="slow", direction="up") > 0, "slow has grown", SECONDS)
        assert daemon.call("POST", "/v2/repository/models/slow/unload")[0] == 200
        assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        pid = daemon.replica()
        psutil.Process(pid).send_signal(signal.SIGKILL)
        wait_until(lambda: daemon.metric("wakeful_restarts_total", model="quick") > 0, "quick's process is gone", SECONDS)
        assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        yield daemon


@needs_promtool
def test_the_page_of_metrics_is_as_prometheus_wants_it(daemon: Daemon) -> None:
    page: bytes = daemon.call("GET", "/metrics")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


class Prometheus:
    """Scrapes one daemon every second."""

    def __init__(self, directory: Path, target: str) -> None:
        config = {"scrape_configs": [{"job_name": "wakeful", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}]}
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with (directory / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/data",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        self._port = 0
        wait_until(self._listens, "Prometheus listens", SECONDS)

    def _listens(self) -> bool:
        assert self.process.poll() is None, "Prometheus has ended"
        listening = [one.laddr.port for one in psutil.Process(self.process.pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        self._port = listening[0] if listening else 0
        return self._port > 0

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it yields now; none while Prometheus is not ready."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 503:
                    raise AssertionError(f"{expression}: {error.read()!r}") from None
            return []


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    server = Prometheus(directory, target)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus")
def test_every_panel_has_something_to_show(daemon: Daemon, tmp_path: Path) -> None:
    values = {"$instance": ".*", "$model": ".*", "$__rate_interval": "5m"}
    with prometheus(tmp_path, f"{daemon.host}:{daemon.port}") as server:
        for title, expression in board.queries():
            for variable, value in values.items():
                expression = expression.replace(variable, value)  # noqa: PLW2901 - the same, with what Grafana puts in
            wait_until(lambda expression=expression: server.query(expression), f"{title} has a series: {expression}", SECONDS)
        for variable in board.board()["templating"]["list"]:
            if variable["type"] == "query":
                metric = variable["definition"].removeprefix("label_values(").split("{")[0].split(",")[0]
                assert all(variable["name"] in series["metric"] for series in server.query(metric))
