"""The page is read by Prometheus's own parser and by SnoozeML's; counters outlive what they count."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from snoozeml.metrics import parse_prometheus_metrics

from wakeful.telemetry.metrics import DEFINITIONS, REPLICA_STATES, ROWS, SECONDS, Gauges, Histogram, Metrics, ModelStats

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(metrics: Metrics) -> Page:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def busy() -> Metrics:
    """Two models that did a bit of everything, and a request for a third that does not exist."""
    metrics = Metrics()
    a, b = metrics.model("a"), metrics.model("b")
    for seconds in (0.25, 0.5, 0.25):
        a.settled("oip-http", "ok", seconds)
    a.settled("snooze-http", "overloaded", 1.0)
    b.settled("oip-http", "ok", 2.0)
    metrics.unnamed.settled("oip-http", "not_found", 0.0)
    a.batch_rows.observe(3)
    a.run_seconds.observe(0.125)
    b.batch_rows.observe(1)
    b.run_seconds.observe(0.5)
    a.queue_seconds.observe(0.01)
    a.load_seconds.observe(0.04)
    for reason, count in {"idle": 2, "lru": 3, "capacity": 4, "oom": 5, "manual": 6}.items():
        a.unloads[reason] += count  # type: ignore[index]  # the keys are reasons, which dict.items() forgets
    a.scaling_steps["up"] += 1
    a.restarts["signal"] += 1
    b.load_retries += 7
    metrics.read_thrashing = lambda: 8
    a.read_gauges = lambda: Gauges({"ready": 2, "odd": 1}, queue_requests=11, resident_bytes=1 << 40)
    metrics.read_budget = lambda: 4e9
    metrics.read_dropped_lines = lambda: 12
    return metrics


def test_prometheus_reads_the_page() -> None:
    page = scrape(busy())
    assert page[key("wakeful_requests_total", model="a", protocol="oip-http", outcome="ok")] == 3
    assert page[key("wakeful_requests_total", model="a", protocol="snooze-http", outcome="overloaded")] == 1
    assert page[key("wakeful_requests_total", model="", protocol="oip-http", outcome="not_found")] == 1
    assert page[key("wakeful_request_seconds_count", model="a")] == 4
    assert page[key("wakeful_request_seconds_sum", model="a")] == 2
    assert page[key("wakeful_request_seconds_bucket", model="a", le="0.25")] == 2
    assert page[key("wakeful_request_seconds_bucket", model="a", le="+Inf")] == 4
    assert page[key("wakeful_batch_rows_bucket", model="a", le="2.0")] == 0
    assert page[key("wakeful_batch_rows_bucket", model="a", le="4.0")] == 1
    assert page[key("wakeful_unloads_total", model="a", reason="lru")] == 3
    assert page[key("wakeful_scaling_steps_total", model="a", direction="up")] == 1
    assert page[key("wakeful_restarts_total", model="a", cause="signal")] == 1
    assert page[key("wakeful_load_retries_total", model="b")] == 7
    assert page[key("wakeful_thrashing_total")] == 8
    assert page[key("wakeful_resident_bytes", model="a")] == 1 << 40
    assert page[key("wakeful_queue_requests", model="a")] == 11
    assert page[key("wakeful_memory_budget_bytes")] == 4e9
    assert page[key("wakeful_log_lines_dropped_total")] == 12
    assert page[key("wakeful_oldest_load_seconds")] == 0
    states = {dict(labels)["state"]: value for (name, labels), value in page.items() if name == "wakeful_replicas"}
    assert states == dict.fromkeys(REPLICA_STATES, 0) | {"ready": 2, "odd": 1}


def test_snoozeml_reads_the_totals() -> None:
    read = parse_prometheus_metrics(busy().render().decode())
    assert (read.requests_total, read.requests_success, read.requests_error) == (6, 4, 2)
    assert read.inference_latency_seconds_total == 4.0
    assert read.average_latency_ms == pytest.approx(4000 / 6)
    assert read.batches_dispatched_total == 2
    assert (read.idle_deallocations_total, read.capacity_deallocations_total, read.oom_deallocations_total) == (2, 7, 5)
    assert read.model_load_retries_total == 7
    assert read.deallocation_thrashing_total == 8
    assert (read.stream_messages_consumed_total, read.stream_messages_published_total, read.stream_errors_total) == (0, 0, 0)


def test_snoozeml_finds_every_series_before_the_first_request() -> None:
    raw = parse_prometheus_metrics(Metrics().render().decode()).raw_metrics
    assert {'snoozeml_requests_total{status="all"}', 'snoozeml_model_deallocations_total{reason="oom"}'} <= raw.keys()
    assert all(value == 0 for series, value in raw.items() if series.startswith("snoozeml_"))


def test_the_page_shows_what_is_defined_and_nothing_else() -> None:
    families = {family.name: family for family in text_string_to_metric_families(busy().render().decode())}
    ours = {name: family for name, family in families.items() if name.startswith(("wakeful_", "snoozeml_"))}
    assert ours.keys() == {name.removesuffix("_total") for name in DEFINITIONS}
    for definition in DEFINITIONS.values():
        family = ours[definition.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (definition.kind, definition.help)
        assert all(set(sample.labels) - {"le"} == set(definition.labels) for sample in family.samples)
        assert definition.kind != "counter" or definition.name.endswith("_total")
    assert "process_resident_memory_bytes" in families


def test_counters_survive_the_model() -> None:
    """C48: ten calls, unload, scrape, load again, five calls: fifteen, and never less on the way (a counter that falls breaks rate())."""
    metrics = Metrics()

    def answered() -> float:
        return scrape(metrics).get(key("wakeful_requests_total", model="m", protocol="oip-http", outcome="ok"), 0)

    seen = []
    for calls in (10, 0, 5):
        stats = metrics.model("m")
        stats.read_gauges = lambda: Gauges({"ready": 1}, 0, 1000)
        for _ in range(calls):
            stats.settled("oip-http", "ok", 0.001)
        stats.read_gauges = None
        seen.append(answered())
    assert seen == [10, 10, 15]
    assert key("wakeful_resident_bytes", model="m") not in scrape(metrics)


def test_a_model_without_traffic_has_no_histograms() -> None:
    metrics = Metrics()
    metrics.model("asleep")
    assert not [name for name, labels in scrape(metrics) if ("model", "asleep") in labels and name.endswith("_bucket")]


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "brace}", "→"])
def test_label_values_are_escaped(name: str) -> None:
    metrics = Metrics()
    metrics.model(name).settled("oip-http", "ok", 1.0)
    assert scrape(metrics)[key("wakeful_request_seconds_count", model=name)] == 1
    assert parse_prometheus_metrics(metrics.render().decode()).requests_total == 1


def test_numbers_that_the_snoozeml_parser_would_skip_do_not_appear() -> None:
    metrics = Metrics()
    metrics.model("m").settled("snooze-http", "ok", 1.5e-7)
    assert parse_prometheus_metrics(metrics.render().decode()).inference_latency_seconds_total == 1.5e-7


class TestHistogram:
    def test_short_and_long_times_fall_into_different_finite_buckets(self) -> None:
        histogram = Histogram(SECONDS)
        for seconds in (0.0004, 0.003, 40.0):
            histogram.observe(seconds)
        assert [count for count in histogram.counts if count] == [1, 1, 1]
        assert histogram.counts[-1] == 0

    @pytest.mark.parametrize("bounds", [SECONDS, ROWS])
    def test_a_bound_closes_its_bucket(self, bounds: tuple[float, ...]) -> None:
        histogram = Histogram(bounds)
        for bound in bounds:
            histogram.observe(bound)
        histogram.observe(bounds[-1] + 1)
        assert histogram.counts == [1] * (len(bounds) + 1)
        assert histogram.count == len(bounds) + 1
        assert histogram.sum == sum(bounds) + bounds[-1] + 1


def histograms(stats: ModelStats) -> Iterator[Histogram]:
    yield from (stats.queue_seconds, stats.run_seconds, stats.request_seconds, stats.load_seconds, stats.batch_rows)


def test_models_share_no_counts() -> None:
    metrics = Metrics()
    for histogram in histograms(metrics.model("a")):
        histogram.observe(1)
    assert all(histogram.count == 0 for histogram in histograms(metrics.model("b")))
