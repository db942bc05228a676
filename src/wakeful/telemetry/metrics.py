"""Every metric's name, labels and help text, and the counters behind them.

Counting happens on the way of each request, so counters are plain integers on objects that belong to their model and outlive its replicas; they
never fall. Like all state they have one writer, the event loop.

A scrape runs in that loop too, so the page is written here, by string formatting: prometheus_client's families and `generate_latest` take
some twenty times as long, a stall that every request would see (docs/decisions/05-metrics-page.md). Its parser reads the page in the tests.
"""

import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from wakeful import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

UnloadReason = Literal["idle", "lru", "capacity", "oom", "no_gain", "manual", "shutdown", "config"]
Direction = Literal["up", "down"]

REPLICA_STATES = ("starting", "ready", "draining")
"""States that `wakeful_replicas` always shows, with 0 where no replica is in them; a model may report others."""

SUCCESS = "ok"
"""The outcome of an answered request; every other outcome is a code of `wakeful.errors`."""

STEP = "pipeline"
"""The protocol of requests that pipelines make of their models. Totals of all models leave them out: the caller's is counted."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
LATENCY_BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Upper bounds, in seconds, of what people are shown: even steps, where those of Prometheus's page are round numbers."""
REQUEST_SECONDS = tuple(sorted({*SECONDS, *LATENCY_BOUNDS}))
"""Of the buckets that requests are counted in: once, for both."""


class Definition(NamedTuple):
    """What the documentation says of a metric, and what a scrape shows."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


DEFINITIONS = {
    row.name: row
    for row in (
        Definition("wakeful_requests_total", "counter", ("model", "protocol", "outcome"),
                   "Inference requests that were settled: ok or an error code. An empty model: none that is configured was named. "
                   "Protocol pipeline: a step of a pipeline, which is counted under its own name too."),
        Definition("wakeful_queue_seconds", "histogram", ("model",), "From a request's arrival to the start of its run."),
        Definition("wakeful_run_seconds", "histogram", ("model",), "A run of the model, as its replica measured it; requests share a run."),
        Definition("wakeful_request_seconds", "histogram", ("model",), "From a request's arrival to its answer or refusal."),
        Definition("wakeful_load_seconds", "histogram", ("model",), "From the decision for a further replica until it is ready."),
        Definition("wakeful_batch_rows", "histogram", ("model",), "Rows in a run."),
        Definition("wakeful_replicas", "gauge", ("model", "state"), "Replicas by state."),
        Definition("wakeful_queue_requests", "gauge", ("model",), "Requests that wait for a run."),
        Definition("wakeful_resident_bytes", "gauge", ("model",), "Memory of all replicas, shared weights counted once."),
        Definition("wakeful_memory_budget_bytes", "gauge", (), "Memory that all models together may hold."),
        Definition("wakeful_unloads_total", "counter", ("model", "reason"),
                   "Replicas that were ended, by reason: idle, lru (memory was needed), capacity (max_loaded_models), oom, no_gain (one "
                   "replica more brought no throughput), manual, shutdown, config."),
        Definition("wakeful_scaling_steps_total", "counter", ("model", "direction"), "Replicas started or ended because of load: up, down."),
        Definition("wakeful_thrashing_total", "counter", (), "Models that were needed again right after they had been evicted."),
        Definition("wakeful_restarts_total", "counter", ("model", "cause"), "Replicas that were replaced after they died, by cause."),
        Definition("wakeful_load_retries_total", "counter", ("model",), "Loads tried again after memory had run out."),
        Definition("wakeful_oldest_load_seconds", "gauge", (), "Age of the oldest load that is not finished; 0 when there is none."),
        Definition("wakeful_stream_connected", "gauge", ("stream",), "1 while the stream's broker answers, else 0."),
        Definition("wakeful_stream_in_flight", "gauge", ("stream",), "Messages that were taken and are not acknowledged yet."),
        Definition("wakeful_stream_consumed_total", "counter", ("stream",), "Messages that were taken, those that came again among them."),
        Definition("wakeful_stream_published_total", "counter", ("stream",), "Messages that were published: answers and dead letters."),
        Definition("wakeful_stream_errors_total", "counter", ("stream", "code"), "Messages that were answered with an error, by its code."),
        Definition("wakeful_build_info", "gauge", ("version", "python"), "Always 1: its labels say which Wakeful runs on which Python."),
        Definition("wakeful_ui_streams", "gauge", (), "Streams of frames to dashboards and other followers that are open."),
        Definition("wakeful_ui_frames_dropped_total", "counter", (), "Frames that followers have missed because they read too slowly."),
        Definition("wakeful_log_lines_dropped_total", "counter", (), "Log lines lost because nobody read them."),
        Definition("snoozeml_requests_total", "counter", ("status",), "Inference requests of all models: success, error, and all (their sum)."),
        Definition("snoozeml_inference_latency_seconds_total", "counter", (), "Sum of the times from arrival to answer or refusal."),
        Definition("snoozeml_batches_dispatched_total", "counter", (), "Runs of all models."),
        Definition("snoozeml_model_deallocations_total", "counter", ("reason",),
                   "Replicas that were ended: oom, idle, or capacity (room was needed for another)."),
        Definition("snoozeml_model_load_retries_total", "counter", (), "Loads tried again after memory had run out."),
        Definition("snoozeml_deallocation_thrashing_total", "counter", (), "Models that were needed again right after they had been evicted."),
        Definition("snoozeml_stream_messages_consumed_total", "counter", (), "Messages that were taken from all streams."),
        Definition("snoozeml_stream_messages_published_total", "counter", (), "Answers and dead letters that were published."),
        Definition("snoozeml_stream_errors_total", "counter", (), "Messages that were answered with an error."),
    )
}


class Histogram:
    """Counts by fixed bounds, and the sum. A value on a bound belongs to the bucket that the bound closes, as Prometheus wants it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def coarser(self, bounds: Sequence[float]) -> list[int]:
        """The counts by fewer bounds, each of them one of ours; the last one is of all above."""
        ends = [0, *(bisect_left(self.bounds, bound) + 1 for bound in bounds)]
        counts = self.counts
        return [*(sum(counts[begin:end]) for begin, end in pairwise(ends)), sum(counts[ends[-1]:])]


class Gauges(NamedTuple):
    """What a model tells of itself when it is asked."""

    replicas: Mapping[str, int]
    """By state."""
    queue_requests: int
    resident_bytes: int


@lru_cache(maxsize=4096)
def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


Listener = Callable[[str, str, str, float], None]
"""Takes model, protocol, outcome and seconds."""


class ModelStats:
    """All counters of one model, or of one of its numbered versions.

    They live as long as the daemon, whatever becomes of the model's replicas or of its registration."""

    __slots__ = (
        "model", "labels", "requests", "queue_seconds", "run_seconds", "request_seconds", "failures", "steps", "step_seconds",
        "load_seconds", "batch_rows", "unloads", "scaling_steps", "restarts", "load_retries", "read_gauges", "_listener",
    )

    def __init__(self, model: str, listener: Listener | None = None, version: str | None = None) -> None:
        self.model = model
        self.labels = f'model="{_escape(model)}"' + ("" if version is None else f',version="{version}"')
        """As the page has them: `version` is there where there are versions."""
        self._listener = listener
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By (protocol, outcome)."""
        self.queue_seconds = Histogram(SECONDS)
        self.run_seconds = Histogram(SECONDS)
        self.request_seconds = Histogram(REQUEST_SECONDS)
        self.failures = Histogram(REQUEST_SECONDS)
        """Those of them without success."""
        self.steps = Histogram(REQUEST_SECONDS)
        """Those of them that are steps of pipelines and went well."""
        self.step_seconds = 0.0
        """The part of it that went to steps of pipelines."""
        self.load_seconds = Histogram(SECONDS)
        self.batch_rows = Histogram(ROWS)
        self.unloads: defaultdict[UnloadReason, int] = defaultdict(int)
        self.scaling_steps: defaultdict[Direction, int] = defaultdict(int)
        self.restarts: defaultdict[str, int] = defaultdict(int)
        """By cause."""
        self.load_retries = 0
        self.read_gauges: Callable[[], Gauges] | None = None
        """Set by the registered model; None while no model of this name is registered."""

    def settled(self, protocol: str, outcome: str, seconds: float) -> None:
        """Count one request. `outcome` is SUCCESS or an error's code, `seconds` the time since it arrived."""
        self.requests[protocol, outcome] += 1
        histogram = self.request_seconds  # observe() written out: this runs for every answer
        histogram.counts[bisect_left(REQUEST_SECONDS, seconds)] += 1
        histogram.sum += seconds
        if outcome != SUCCESS:
            self.failures.observe(seconds)
        if protocol == STEP:
            self.step_seconds += seconds
            if outcome == SUCCESS:
                self.steps.observe(seconds)
        if self._listener is not None:
            self._listener(self.model, protocol, outcome, seconds)


class StreamStats:
    """All counters of one stream. They live as long as the daemon."""

    __slots__ = ("connected", "in_flight", "consumed", "published", "errors")

    def __init__(self) -> None:
        self.connected = False
        self.in_flight = 0
        self.consumed = 0
        self.published = 0
        self.errors: defaultdict[str, int] = defaultdict(int)
        """By code."""


class Metrics:
    """The counters of the whole daemon, and the page that shows them. `listener` hears of each request as it is settled."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self.unnamed = ModelStats("", listener)
        """For requests that name no configured model: their names come from callers and must not become labels."""
        self.read_budget: Callable[[], float] = _nothing
        self.read_thrashing: Callable[[], float] = _nothing
        self.read_oldest_load: Callable[[], float] = _nothing
        self.read_dropped_lines: Callable[[], float] = _nothing
        self.read_followers: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Streams that are open, and frames that were dropped."""
        self._models: dict[tuple[str, str | None], ModelStats] = {}
        self._streams: dict[str, StreamStats] = {}
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    def model(self, name: str, version: str | None = None) -> ModelStats:
        """The counters of a configured model; a name that comes back after its removal finds its old ones."""
        stats = self._models.get((name, version))
        if stats is None:
            stats = self._models[name, version] = ModelStats(name, self._listener, version)
        return stats

    def by_name(self) -> dict[str, list[ModelStats]]:
        """All counters of each model, one for each of its versions."""
        found: dict[str, list[ModelStats]] = {}
        for (name, _), stats in self._models.items():
            found.setdefault(name, []).append(stats)
        return found

    def stream(self, name: str) -> StreamStats:
        """The counters of a configured stream."""
        return self._streams.setdefault(name, StreamStats())

    def render(self) -> bytes:
        """The page, in Prometheus's text format (CONTENT_TYPE)."""
        return "".join(self._lines()).encode() + generate_latest(self._process)

    def _lines(self) -> Iterator[str]:
        models = list(self._models.values())
        yield from _counters(models, self.unnamed)
        yield from _histograms(models)
        yield from _gauges(models)
        yield from _family("wakeful_build_info", [((__version__, platform.python_version()), 1)])
        yield from _single("wakeful_memory_budget_bytes", self.read_budget())
        yield from _single("wakeful_thrashing_total", self.read_thrashing())
        yield from _single("wakeful_oldest_load_seconds", self.read_oldest_load())
        open_streams, frames_dropped = self.read_followers()
        yield from _single("wakeful_ui_streams", open_streams)
        yield from _single("wakeful_ui_frames_dropped_total", frames_dropped)
        yield from _single("wakeful_log_lines_dropped_total", self.read_dropped_lines())
        yield from _streams(self._streams)
        yield from _snooze([*models, self.unnamed], self.read_thrashing(), list(self._streams.values()))


def _nothing() -> float:
    return 0.0


# ── from counters to text ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values, in the order of the definition, and a number. Of a model, all its labels stand in the place of its name."""


def _head(name: str) -> str:
    definition = DEFINITIONS[name]
    return f"# HELP {name} {definition.help}\n# TYPE {name} {definition.kind}\n"


def _family(name: str, samples: Samples) -> Iterator[str]:
    yield _head(name)
    line = name + "{" + ",".join(["%s" if label == "model" else f'{label}="%s"' for label in DEFINITIONS[name].labels]) + "} %s\n"
    yield "".join([line % (*values, number) for values, number in samples])


def _single(name: str, number: float) -> Iterator[str]:
    yield f"{_head(name)}{name} {number}\n"


def _histogram(name: str, bounds: Sequence[float], histograms: Iterable[tuple[str, Histogram]]) -> Iterator[str]:
    yield _head(name)
    edges = [*(f'le="{float(bound)}"}} ' for bound in bounds), 'le="+Inf"} ']
    for label, histogram in histograms:
        if any(histogram.counts):  # hundreds of models that never woke would make every scrape long
            counts = list(accumulate(histogram.counts if histogram.bounds is bounds else histogram.coarser(bounds)))
            yield "".join([f"{name}_bucket{{{label},{edge}{count}\n" for edge, count in zip(edges, counts, strict=True)])
            yield f"{name}_sum{{{label}}} {histogram.sum}\n{name}_count{{{label}}} {counts[-1]}\n"


def _counters(models: Sequence[ModelStats], unnamed: ModelStats) -> Iterator[str]:
    yield from _family("wakeful_requests_total", [((m.labels, *key), n) for m in (*models, unnamed) for key, n in m.requests.items()])
    yield from _family("wakeful_unloads_total", [((m.labels, reason), n) for m in models for reason, n in m.unloads.items()])
    yield from _family("wakeful_scaling_steps_total", [((m.labels, way), n) for m in models for way, n in m.scaling_steps.items()])
    yield from _family("wakeful_restarts_total", [((m.labels, cause), n) for m in models for cause, n in m.restarts.items()])
    yield from _family("wakeful_load_retries_total", [((m.labels,), m.load_retries) for m in models])


def _histograms(models: Sequence[ModelStats]) -> Iterator[str]:
    yield from _histogram("wakeful_queue_seconds", SECONDS, ((m.labels, m.queue_seconds) for m in models))
    yield from _histogram("wakeful_run_seconds", SECONDS, ((m.labels, m.run_seconds) for m in models))
    yield from _histogram("wakeful_request_seconds", SECONDS, ((m.labels, m.request_seconds) for m in models))
    yield from _histogram("wakeful_load_seconds", SECONDS, ((m.labels, m.load_seconds) for m in models))
    yield from _histogram("wakeful_batch_rows", ROWS, ((m.labels, m.batch_rows) for m in models))


def _gauges(models: Sequence[ModelStats]) -> Iterator[str]:
    live = [(stats.labels, stats.read_gauges()) for stats in models if stats.read_gauges is not None]
    none = dict.fromkeys(REPLICA_STATES, 0)
    yield from _family("wakeful_replicas", [((name, state), n) for name, g in live for state, n in (none | dict(g.replicas)).items()])
    yield from _family("wakeful_queue_requests", [((name,), gauges.queue_requests) for name, gauges in live])
    yield from _family("wakeful_resident_bytes", [((name,), gauges.resident_bytes) for name, gauges in live])


def _streams(streams: Mapping[str, StreamStats]) -> Iterator[str]:
    yield from _family("wakeful_stream_connected", [((name,), int(stream.connected)) for name, stream in streams.items()])
    yield from _family("wakeful_stream_in_flight", [((name,), stream.in_flight) for name, stream in streams.items()])
    yield from _family("wakeful_stream_consumed_total", [((name,), stream.consumed) for name, stream in streams.items()])
    yield from _family("wakeful_stream_published_total", [((name,), stream.published) for name, stream in streams.items()])
    yield from _family("wakeful_stream_errors_total", [((name, code), n) for name, s in streams.items() for code, n in s.errors.items()])


def _snooze(models: Sequence[ModelStats], thrashing: float, streams: Sequence[StreamStats]) -> Iterator[str]:
    """The totals that SnoozeML's SDK reads. It takes the last line of a name, whatever the labels, so there is nothing per model here."""
    asked = [(outcome, n) for m in models for (protocol, outcome), n in m.requests.items() if protocol != STEP]
    everything = sum(n for _, n in asked)
    success = sum(n for outcome, n in asked if outcome == SUCCESS)
    statuses = {"all": everything, "success": success, "error": everything - success}
    yield from _family("snoozeml_requests_total", [((status,), n) for status, n in statuses.items()])
    yield from _single("snoozeml_inference_latency_seconds_total", sum(m.request_seconds.sum - m.step_seconds for m in models))
    yield from _single("snoozeml_batches_dispatched_total", sum(m.batch_rows.count for m in models))
    reasons: dict[str, tuple[UnloadReason, ...]] = {"oom": ("oom",), "idle": ("idle",), "capacity": ("capacity", "lru")}
    unloads = [((label,), sum(m.unloads.get(r, 0) for m in models for r in merged)) for label, merged in reasons.items()]
    yield from _family("snoozeml_model_deallocations_total", unloads)
    yield from _single("snoozeml_model_load_retries_total", sum(m.load_retries for m in models))
    yield from _single("snoozeml_deallocation_thrashing_total", thrashing)
    yield from _single("snoozeml_stream_messages_consumed_total", sum(stream.consumed for stream in streams))
    yield from _single("snoozeml_stream_messages_published_total", sum(stream.published for stream in streams))
    yield from _single("snoozeml_stream_errors_total", sum(sum(stream.errors.values()) for stream in streams))
