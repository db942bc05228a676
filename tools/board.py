"""The board for Grafana: `python -m tools.board > deploy/grafana/wakeful.json`.

Classic JSON, which Grafana reads since version 10. It names no data source and no machine: both are chosen on the board, or where it is imported.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

Unit = Literal["short", "reqps", "s", "bytes", "percentunit", "rps"]
Kind = Literal["stat", "timeseries", "heatmap"]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'instance=~"$instance"'
MODEL = f'{HERE},model=~"$model"'
CALLERS = f'{MODEL},protocol!="pipeline"'
"""Requests that callers made: steps of pipelines are counted with the pipeline."""
WINDOW = "[$__rate_interval]"
WIDTH = 24
"""Columns of a board."""


class Query(NamedTuple):
    expression: str
    legend: str = ""


class Panel(NamedTuple):
    title: str
    unit: Unit
    queries: Sequence[Query]
    text: str = ""
    """What it shows, where the title does not say it all."""
    kind: Kind = "timeseries"
    stacked: bool = False


class Row(NamedTuple):
    title: str
    height: int
    panels: Sequence[Panel]


def rate(metric: str, by: str, where: str = MODEL) -> str:
    """Of a counter, each second."""
    return f"sum by ({by}) (rate({metric}{{{where}}}{WINDOW}))"


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{MODEL}}}{WINDOW})))"


def buckets(metric: str) -> Query:
    """Of a heatmap: how many came into each bucket in each interval."""
    return Query(f"sum by (le) (increase({metric}_bucket{{{MODEL}}}{WINDOW}))", "{{le}}")


def total(metric: str, where: str = CALLERS) -> str:
    return f"sum(rate({metric}{{{where}}}{WINDOW}))"


FAILED = f'{CALLERS},outcome!="ok"'
AWAKE = f'sum by (instance, model, version) (wakeful_replicas{{{MODEL},state=~"ready|draining"}})'
HELD = f"sum(wakeful_resident_bytes{{{HERE}}})"
BUDGET = f"sum(wakeful_memory_budget_bytes{{{HERE}}})"
REQUESTS = "wakeful_requests_total"

ROWS = (
    Row("Now", 4, (
        Panel("Models awake", "short", [Query(f"sum(clamp_max({AWAKE}, 1))")], kind="stat"),
        Panel("Requests", "reqps", [Query(total(REQUESTS))], kind="stat"),
        Panel("Failing", "percentunit", [Query(f"({total(REQUESTS, FAILED)} or vector(0)) / {total(REQUESTS)}")], "Share of the requests", "stat"),
        Panel("p99", "s", [Query(quantile(0.99, "wakeful_request_seconds"))], "From arrival to answer", "stat"),
        Panel("Budget used", "percentunit", [Query(f"{HELD} / {BUDGET}")], "Memory of all models, of what they may hold", "stat"),
        Panel("Version", "short", [Query(f"wakeful_build_info{{{HERE}}}", "{{version}}, Python {{python}}")], kind="stat"),
    )),
    Row("Traffic", 8, (
        Panel("Requests by model", "reqps", [Query(rate(REQUESTS, "model", CALLERS), "{{model}}")], stacked=True),
        Panel("Requests by outcome", "reqps", [Query(rate(REQUESTS, "outcome", CALLERS), "{{outcome}}")], "ok, or the code of the error"),
        Panel("Waiting for a run", "short", [Query(f"sum by (model) (wakeful_queue_requests{{{MODEL}}})", "{{model}}")]),
    )),
    Row("Latency", 8, (
        Panel("From arrival to answer", "s", [Query(quantile(q, "wakeful_request_seconds"), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)]),
        Panel("p99 of its parts", "s", [
            Query(quantile(0.99, "wakeful_queue_seconds"), "waiting"), Query(quantile(0.99, "wakeful_run_seconds"), "running"),
        ]),
        Panel("Distribution", "s", [buckets("wakeful_request_seconds")], "A mean hides two humps", "heatmap"),
    )),
    Row("Batching", 8, (
        Panel("Rows in a run", "short", [
            Query(f"{rate('wakeful_batch_rows_sum', 'model')} / {rate('wakeful_batch_rows_count', 'model')}", "{{model}}"),
        ], "On average"),
        Panel("Runs", "rps", [Query(rate("wakeful_run_seconds_count", "model"), "{{model}}")]),
        Panel("Distribution of rows", "short", [buckets("wakeful_batch_rows")], kind="heatmap"),
    )),
    Row("Replicas and wakes", 8, (
        Panel("Replicas", "short", [Query(f"sum by (state) (wakeful_replicas{{{MODEL}}})", "{{state}}")], stacked=True),
        Panel("Wakes and further copies", "short", [
            Query(f"sum by (model) (increase(wakeful_load_seconds_count{{{MODEL}}}{WINDOW}))", "{{model}}"),
        ], "In each interval"),
        Panel("How long one takes", "s", [
            Query(quantile(0.5, "wakeful_load_seconds"), "p50"), Query(quantile(0.99, "wakeful_load_seconds"), "p99"),
            Query(f"max(wakeful_oldest_load_seconds{{{HERE}}})", "oldest that is not finished"),
        ]),
        Panel("Scaling", "short", [
            Query(f"sum by (direction) (increase(wakeful_scaling_steps_total{{{MODEL}}}{WINDOW}))", "{{direction}}"),
        ], "Replicas that were started or ended because of load"),
    )),
    Row("Memory", 8, (
        Panel("Memory of models", "bytes", [Query(f"sum by (model) (wakeful_resident_bytes{{{MODEL}}})", "{{model}}")],
              "All replicas of each, shared weights once", stacked=True),
        Panel("Held and allowed", "bytes", [Query(HELD, "held"), Query(BUDGET, "budget")]),
        Panel("The daemon itself", "bytes", [Query(f"sum by (instance) (process_resident_memory_bytes{{{HERE}}})", "{{instance}}")]),
    )),
    Row("Decisions", 8, (
        Panel("Replicas ended", "short", [Query(f"sum by (reason) (increase(wakeful_unloads_total{{{MODEL}}}{WINDOW}))", "{{reason}}")]),
        Panel("Thrashing", "short", [Query(f"sum(increase(wakeful_thrashing_total{{{HERE}}}{WINDOW}))", "models")],
              "Models that were needed again right after they had been evicted"),
        Panel("Replicas that died", "short", [Query(f"sum by (cause) (increase(wakeful_restarts_total{{{MODEL}}}{WINDOW}))", "{{cause}}")]),
        Panel("Loads tried again", "short", [
            Query(f"sum by (model) (increase(wakeful_load_retries_total{{{MODEL}}}{WINDOW}))", "{{model}}"),
        ], "After memory had run out"),
    )),
    Row("Who looks", 6, (
        Panel("Open dashboards", "short", [Query(f"sum(wakeful_ui_streams{{{HERE}}})", "streams")]),
        Panel("Frames missed", "short", [Query(f"sum(increase(wakeful_ui_frames_dropped_total{{{HERE}}}{WINDOW}))", "frames")],
              "By those who read too slowly"),
        Panel("Log lines lost", "short", [Query(f"sum(increase(wakeful_log_lines_dropped_total{{{HERE}}}{WINDOW}))", "lines")],
              "Because nobody read them"),
    )),
)


def queries() -> Iterator[tuple[str, str]]:
    """Title of the panel and expression of each query."""
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                yield f"{row.title}: {panel.title}", query.expression


def board() -> dict[str, Any]:
    return {
        "id": None,
        "uid": "wakeful",
        "title": "Wakeful",
        "tags": ["wakeful"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0, "refresh": 1}
    for name, metric in (("instance", "wakeful_memory_budget_bytes"), ("model", 'wakeful_replicas{instance=~"$instance"}')):
        query = f"label_values({metric}, {name})"
        yield {
            "name": name, "label": name, "type": "query", "datasource": SOURCE, "definition": query, "query": {"query": query, "refId": name},
            "includeAll": True, "multi": True, "allValue": ".*", "current": {}, "hide": 0, "refresh": 2, "sort": 1,
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in ROWS:
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _place(0, top, WIDTH, 1)}
        width = WIDTH // len(row.panels)
        for column, panel in enumerate(row.panels):
            yield _panel(panel, number + 1 + column, _place(column * width, top + 1, width, row.height))
        number += 1 + len(row.panels)
        top += 1 + row.height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend or "__auto",
            "instant": panel.kind == "stat", "range": panel.kind != "stat", "format": "heatmap" if panel.kind == "heatmap" else "time_series",
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.text, "datasource": SOURCE, "gridPos": place, "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []}, "options": _options(panel),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {"unit": panel.unit}
    custom = {
        "drawStyle": "line", "lineWidth": 1, "fillOpacity": 20 if panel.stacked else 0, "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    return {"unit": panel.unit, "min": 0, "custom": custom}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        by_name = any(query.legend for query in panel.queries)
        calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": calculation, "textMode": "name" if by_name else "auto", "colorMode": "none", "graphMode": "none"}
    if panel.kind == "heatmap":
        axis = {"unit": panel.unit, "axisPlacement": "left"}
        colour = {"mode": "scheme", "scheme": "Blues", "steps": 32}
        return {"calculate": False, "cellGap": 1, "yAxis": axis, "color": colour, "tooltip": {"mode": "single"}}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}


def text() -> str:
    """The file."""
    return json.dumps(board(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
