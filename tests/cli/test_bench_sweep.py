"""`wakeful bench --sweep`: its page from fixed steps to golden files, what is asked of the daemon, and two short ones against real servers."""

import json
import math
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.cli.golden_files import assert_golden
from tests.cli.test_bench import bench, open_inference, url
from tests.daemon import running
from tests.loadgen.stage import reply, serving
from tests.loadgen.steps import SWEEP, step
from tools.forms.schema import closed
from tools.forms.verbs import VERBS, envelope
from wakeful.cli import bench_own, bench_sweep
from wakeful.cli.bench_chart import chart
from wakeful.cli.bench_page import HEAD
from wakeful.cli.looks import Looks
from wakeful.loadgen.sweep import MOST_STEPS, Own, Step

PLAIN = Looks(unicode=True)
ABOUT = "open loop, Poisson; input_ids INT64 [1,16] random; 2 cores, client included"
TITLE = "search-embedder at http://127.0.0.1:8080: sweep, 2 s a step"
SHORT = ("--sweep", "--for", "0.3", "--warmup", "0.1", "--rate", "20")


def text(steps: list[Step], looks: Looks) -> str:
    return "\n".join(bench_sweep.page(steps, TITLE, ABOUT, looks)) + "\n"


@pytest.mark.parametrize(
    ("name", "looks"),
    [("bench_sweep.txt", PLAIN), ("bench_sweep_ascii.txt", Looks()), ("bench_sweep_narrow.txt", PLAIN._replace(width=60))],
)
def test_the_page(name: str, looks: Looks) -> None:
    assert_golden(name, text(SWEEP, looks))


def test_another_server_says_nothing_of_itself() -> None:
    foreign = [one._replace(own=None) for one in SWEEP]
    assert_golden("bench_sweep_foreign.txt", text(foreign, PLAIN))


def test_words() -> None:
    def said(*steps: Step) -> list[str]:
        return list(bench_sweep.conclusion(steps))

    assert said(*SWEEP) == ["knee near 1,000/s (p99 12 ms); stable: last three windows within 2 %"]
    shaky = SWEEP[2]._replace(windows=SWEEP[4].windows[:1] + SWEEP[2].windows[1:])
    assert said(shaky, SWEEP[3])[0].endswith("; not stable: the last three windows differ by up to 60 % from their mean")
    silent = step(4, 3, 0.3, 0.4, windows=((1, 0.3), (0, math.nan), (1, 0.3)))
    assert said(silent, SWEEP[3])[0].endswith("; not stable: a window has no answer")
    assert said(SWEEP[3]) == ["no knee: not even 2,000/s was kept up"]
    assert said() == ["no knee: nothing was measured to its end"]
    busy = SWEEP[2]._replace(busy=0.93)
    assert said(SWEEP[0], busy) == [
        "no knee up to 1,000/s (p99 12 ms); stable: last three windows within 2 %",
        "warning: from 1,000/s on, the generator was the limit: it used 93% of a core. The server may be faster.",
    ]
    assert said(SWEEP[0], SWEEP[1]._replace(interrupted=True))[-1] == "note: interrupted"
    assert bench_sweep.line(SWEEP[3]) == "2,000/s: 1,311 done/s, p99 240 ms, not kept up"


def test_how_figures_are_computed() -> None:
    out, err = bench("--explain")
    assert_golden("bench_explain.txt", out)
    assert err == ""
    assert all(len(line) <= 80 for line in out.splitlines())
    for figure in (*bench_sweep.HEAD, *bench_sweep.OWN_HEAD, *HEAD):
        assert figure in out or figure in ("answered", "rate/s", "p90", "p95", "p99", "p99.9"), figure


def test_charts_of_little() -> None:
    assert chart([], PLAIN) == chart(SWEEP[:1], PLAIN) == []
    nothing = step(10, 0, math.nan, math.nan, failed=20)
    assert chart([SWEEP[0], nothing], PLAIN) == []
    twice = chart([SWEEP[0], SWEEP[0]._replace(rate=251)], PLAIN)
    assert sum(line.count("●") for line in twice) == 2  # one of them in the legend
    for width in (20, 40, 200):
        assert all(len(line) <= max(width, 30) + 7 for line in chart(SWEEP, PLAIN._replace(width=width)))


def test_for_programs() -> None:
    told = json.loads(json.dumps(bench_sweep.as_dict(SWEEP), allow_nan=False))
    assert (told["knee"], told["stable"]) == (1000, True)
    assert [one["kept"] for one in told["steps"]] == [True, True, True, False, False]
    assert told["steps"][0]["latency_ms"]["p99"] == pytest.approx(6.2)
    assert told["steps"][0]["own"] == {"rows": 1.1, "queue": 0.0002, "run": 0.0036, "memory": 96 << 20}
    nothing = step(10, 0, math.nan, math.nan, failed=20, windows=((0, math.nan),) * 3)
    assert json.loads(json.dumps(bench_sweep.as_dict([nothing]), allow_nan=False))["steps"][0]["latency_ms"]["p50"] is None


def test_what_the_daemon_says_of_itself() -> None:
    state = {"models": [
        {"key": "m:1", "name": "m", "version": "1", "runs": 9, "resident_bytes": 5},
        {"key": "m:2", "name": "m", "version": "2", "runs": 3, "resident_bytes": 7},
        {"key": 'a"b', "name": 'a"b', "version": None, "runs": 0, "resident_bytes": 11},
    ]}
    page = """\
wakeful_batch_rows_sum{model="m",version="1"} 40.0
wakeful_batch_rows_count{model="m",version="1"} 10
wakeful_batch_rows_sum{model="m",version="2"} 1000.0
wakeful_run_seconds_sum{model="m",version="1"} 0.5
wakeful_run_seconds_count{model="m",version="1"} 10
wakeful_queue_seconds_bucket{model="m",version="1",le="1"} 3
wakeful_batch_rows_sum{model="a\\"b"} 2
"""
    found = bench_own.counted(state, page, ["m"])
    assert found is not None
    assert found.memory == 5
    assert found.sums == {"batch_rows_sum": 40.0, "batch_rows_count": 10.0, "run_seconds_sum": 0.5, "run_seconds_count": 10.0}
    both = bench_own.counted(state, page, ["m:1", 'a"b'])
    assert both is not None
    assert (both.memory, both.sums["batch_rows_sum"]) == (16, 42)
    assert bench_own.counted(state, page, ["m", "other"]) is None
    before = bench_own.Counted({"batch_rows_sum": 10.0, "batch_rows_count": 5.0}, 4)
    assert bench_own.between(before, found) == Own(6.0, None, 0.05, 5)
    assert bench_own.between(None, found) is None


def test_a_sweep_of_a_daemon(tmp_path: Path) -> None:
    """Its figures depend on the machine; that they are all there does not."""
    with running(tmp_path, "--demo", "--no-grpc") as daemon:
        pictures = "--plot", str(tmp_path / "a.html"), "--json", str(tmp_path / "a.json")
        # whether a busy machine keeps up with anything is not what is tested
        out, err = bench(daemon.url, "demo-model", *SHORT, "--connections", "4", *pictures, status=None)
    written = json.loads((tmp_path / "a.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(closed(envelope("bench", VERBS["bench"]))).validate(written)
    told = written["data"]
    assert 1 <= len(told["steps"]) <= MOST_STEPS
    assert told["steps"][0]["rate"] == 20
    assert told["steps"][0]["own"]["memory"] > 0
    assert out.splitlines()[1].startswith("open loop, Poisson; input FP32 [1,4] random; ")
    assert out.splitlines()[2].split() == ["rate/s", "done/s", "p50", "p99", "p99.9", "rows", "queue", "run", "memory", "refused"]
    assert "knee" in out
    assert err.splitlines()[0] == "sweep, 0.3 s a step: warming up ..."
    assert (tmp_path / "a.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_sweep_of_a_server_that_refuses() -> None:
    full = reply(b'{"error":"full"}', "429 Too Many Requests")
    with serving(open_inference(lambda number: full)) as server:
        out, _ = bench(url(server), "m", *SHORT, "--cold", "--assert", "p99<1s", status=1)
    assert "no knee: not even 20.0/s was kept up" in out
    assert "assert p99<1s: nothing was answered, which is not so" in out
    assert out.splitlines()[2].split() == ["rate/s", "done/s", "p50", "p99", "p99.9", "refused"]
