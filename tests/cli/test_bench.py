"""`wakeful bench` against the real daemon, and against servers that are not what they should be."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, running, wait_until
from tests.loadgen.stage import Server, reply, serving
from wakeful.cli.bench_options import add_arguments, bursts, counts, int_range, load_of, weighted
from wakeful.cli.bench_page import remarks, stroke
from wakeful.cli.bench_progress import Progress
from wakeful.cli.looks import Looks
from wakeful.cli.parser import Parser
from wakeful.loadgen.results import Results

UTF8 = {"LC_ALL": "C.UTF-8"}
METADATA = b'{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[]}'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("bench"), "--demo", "--no-grpc") as daemon:
        yield daemon


def bench(*arguments: str, status: int | None = 0, **env: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "wakeful", "bench", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL, env=os.environ | UTF8 | env)
    assert status is None or done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def figures(*arguments: str, status: int = 0) -> Any:
    told = json.loads(bench(*arguments, "--json", "-", status=status)[0])
    assert (told["wakeful"], told["kind"]) == (1, "bench")
    return told["data"]


def open_inference(infer: Callable[[int], bytes], metadata: bytes = METADATA) -> Callable[[int, bytes], list[bytes]]:
    """A server of one model, whose n-th inference is answered as told."""
    asked = 0

    def behave(number: int, request: bytes) -> list[bytes]:
        nonlocal asked
        if request.startswith(b"GET"):
            return [reply(metadata)] if b"/m HTTP" in request else [reply(b"{}", "404 Not Found")]
        if b"repository/index" in request:
            return [reply(b'[{"name":"m"},{"name":"n"}]')]
        asked += 1
        return [infer(asked)]

    return behave


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.address[1]}"


# ── against the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_loop(daemon: Daemon) -> None:
    out, err = bench(daemon.url, "demo-model", "--duration", "0.5", "--connections", "4", "--warmup", "0.1")
    assert err.splitlines() == ["4 connections for 0.5 s ..."]
    lines = out.splitlines()
    assert lines[0] == f"demo-model at {daemon.url}: 4 connections for 0.5 s"
    assert lines[1].split() == ["requests/s", "rows/s", "p50", "p90", "p95", "p99", "max", "answered", "failed"]
    assert lines[2].split()[-1] == "0"
    assert "█" in out
    assert "\x1b" not in out
    assert "HTTP" not in out


@pytest.mark.parametrize("options", [["--rate", "200"], ["--bursts", "20,500,0.2,0.5"]])
def test_open_loops_with_several_models_and_row_counts(daemon: Daemon, options: list[str]) -> None:
    told = figures(daemon.url, "demo-model=3", "digits", *options, "--rows", "1,4", "--duration", "1", "--binary")
    assert told["requests"] == told["ok"] > 50
    assert told["errors"] == []
    assert 1.2 < told["rows_per_second"] / told["requests_per_second"] < 3.8
    parts = {name: part["ok"] for name, part in told["models"].items()}
    assert sum(parts.values()) == told["ok"]
    assert parts["demo-model"] > parts["digits"] > 0


def test_a_trace_and_a_body_of_ones_own(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("\n".join(str(100 + 0.01 * number) for number in range(30)), encoding="utf-8")
    body = {"inputs": [{"name": "input", "shape": [2, 4], "datatype": "FP32", "data": [1] * 8}]}
    (tmp_path / "body").write_text(json.dumps(body), encoding="utf-8")
    told = figures(daemon.url, "demo-model", "--trace", str(tmp_path / "trace"), "--request", str(tmp_path / "body"))
    assert told["requests"] == told["ok"] == 30
    assert told["rows_per_second"] == pytest.approx(2 * told["requests_per_second"])
    told = figures(daemon.url, "demo-model", "--trace", str(tmp_path / "trace"), "--duration", "0.095", "--cold")
    assert told["requests"] == 10


def test_json_and_pictures(daemon: Daemon, tmp_path: Path) -> None:
    for name, magic in (("run.png", b"\x89PNG"), ("run.svg", b"<?xml"), ("run.html", b"<!DOCTYPE")):
        files = "--json", str(tmp_path / "run.json"), "--plot", str(tmp_path / name)
        out, _ = bench(daemon.url, "demo-model", "--rate", "200", "--duration", "0.5", *files)
        assert "requests/s" in out
        assert (tmp_path / name).read_bytes().startswith(magic)
    told = json.loads((tmp_path / "run.json").read_text("utf-8"))["data"]
    assert told["ok"] == sum(one["count"] for one in told["histogram"])
    assert {"p50", "p90", "p95", "p99", "max"} == set(told["latency_ms"])


def inferences(daemon: Daemon) -> int:
    return int(daemon.call("GET", "/v2/models/demo-model/stats")[1]["model_stats"][0]["inference_count"])


def test_ctrl_c_shows_what_was_measured(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "wakeful", "bench", daemon.url, "demo-model", "--duration", "600", "--warmup", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "16 connections for 600 s ...\n"
        answered = inferences(daemon)
        wait_until(lambda: inferences(daemon) > answered + 10, "the load runs")
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(60) == 0
    assert "note: interrupted after" in out


def test_a_terminal_gets_a_bar(daemon: Daemon) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "wakeful", "bench", daemon.url, "demo-model", "--duration", "1", "--warmup", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, env=os.environ | UTF8 | {"TERM": "xterm"}) as process:
        assert process.wait(60) == 0
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "16 connections for 1 s" in shown
    assert re.search(r"\r\x1b\[K16 connections for 1 s +█* +\d+ %", shown)
    assert shown.endswith("\r\x1b[K")


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_there() -> None:
    with serving(lambda number, request: []) as server:
        address = url(server)
    _, err = bench(address, "m", status=3)
    assert err.splitlines()[0] == f"error: {address} cannot be reached: connection refused"
    assert "wakeful serve --demo" in err
    out, err = bench("m", "--url", address, "--json", status=3)
    assert (json.loads(out)["error"]["code"], err) == ("unreachable", "")


@pytest.mark.parametrize("address", ["", "http://", "http://[::1", "http://a:99999", "http://.", f"http://{'a' * 80}.b", "http://a/\u00e9"])
def test_no_address(address: str) -> None:
    _, err = bench(address, "m", status=2)
    assert err == f"error: the server's address: expected something like http://127.0.0.1:8080, got {address!r}\n"


def test_an_unknown_model(daemon: Daemon) -> None:
    _, err = bench(daemon.url, "demo", status=4)
    assert err == f"error: {daemon.url} has no model demo; it has demo-model, digits\n"


@pytest.mark.parametrize(("options", "message"), [
    (["--shape", "y=1,2"], "m has no input y; it has x"),
    (["--dim", "1=3"], "--dim 1: m has no free dimension of this number or name"),
    (["--rate", "1", "--trace", "x"], "--rate and --trace are two different loads"),
    (["--request", "x", "--rows", "2"], "--request is the whole body"),
    (["--request", "nowhere"], "cannot read nowhere: No such file or directory"),
    (["--trace", "nowhere"], "cannot read nowhere: No such file or directory"),
    (["--plot", "x.jpeg"], "--plot x.jpeg: pictures are written as .svg, .html or .png"),
    (["--rate", "0.001", "--duration", "0.1"], "no call is due"),
    (["--rate", "1e9"], "more than 20,000,000 calls"),
    (["--rate", "fast"], "argument --rate: 'fast' is not a number of 0 or more"),
    (["--seed", "-1"], "argument --seed: '-1' is not a whole number of 0 or more"),
    (["--connections", "0"], "argument --connections: '0' is not a whole number of 1 or more"),
    (["--assert", "p99<fast"], "argument --assert: 'p99<fast': expected such as p99<20ms, mean<5ms, max<1s, done>900, rows>5000"),
    (["--json", "http://127.0.0.1:1"], "--json takes http://127.0.0.1:1 for the name of a file"),
    (["--sweep", "--bursts", "1,2,3,0.5"], "--sweep and --bursts are two different loads"),
    (["--for", "soon"], "argument --duration/--for: expected seconds above 0, or such as 10m and 1h; got soon"),
    (["--conections", "1"], "wakeful bench does not know --conections\n  hint: did you mean --connections?"),
])
def test_wrong_use(options: list[str], message: str) -> None:
    with serving(open_inference(lambda number: reply())) as server:
        _, err = bench(url(server), "m", *options, status=2)
    assert err.startswith("error: ")
    assert message in err


def test_a_fixed_axis_0() -> None:
    with serving(open_inference(lambda number: reply(), METADATA.replace(b"-1", b"1"))) as server:
        _, err = bench(url(server), "m", "--rows", "4", status=2)
    assert "axis 0 of m is not free, input x is [1, 2]" in err


@pytest.mark.parametrize(("metadata", "message"), [
    (METADATA.replace(b"FP32", b"IMAGE"), "input x of m has the datatype IMAGE"),
    (b'{"name":"m"}', "the server does not say what m takes"),
    (METADATA.replace(b"-1", b"1e999"), "does not describe m as the Open Inference Protocol has it"),
    (b"<html>", "does not describe m as the Open Inference Protocol has it: b'<html>'"),
])
def test_inputs_that_cannot_be_made_up(metadata: bytes, message: str) -> None:
    with serving(open_inference(lambda number: reply(), metadata)) as server:
        _, err = bench(url(server), "m", status=3 if "does not describe" in message else 2)
    assert message in err


def test_a_load_that_is_refused_is_not_measured_unless_cold() -> None:
    with serving(open_inference(lambda number: reply(b'{"error":"bad shape"}', "400 Bad Request"))) as server:
        _, err = bench(url(server), "m", status=2)
        assert err.startswith("error: m does not answer such a request: HTTP 400, bad shape\n")
        assert "--cold" in err
        out, _ = bench(url(server), "m", "--cold", "--duration", "0.1", "--warmup", "0", status=1)
    assert "× HTTP 400, first: bad shape" in out


def test_errors_are_shown_with_the_first_text() -> None:
    full = reply(b'{"error":"queue is full"}', "429 Too Many Requests")
    with serving(open_inference(lambda number: reply() if number % 2 else full)) as server:
        out, _ = bench(url(server), "m", "--rate", "100", "--duration", "0.5")
    assert "× HTTP 429, first: queue is full" in out


def test_an_error_cannot_command_the_terminal() -> None:
    with serving(open_inference(lambda number: reply(b"bad\x1b[2J\x07 [/shape]", "400 Bad Request"))) as server:
        out, _ = bench(url(server), "m", "--cold", "--duration", "0.1", "--warmup", "0", status=1)
    assert "first: bad?[2J? [/shape]" in out


def test_without_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError", encoding="utf-8")
    _, err = bench("127.0.0.1:1", "m", "--plot", "x.png", status=2, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert err == "error: --plot FILE.png needs matplotlib, which is not installed\n  hint: pip install 'wakeful[bench]', or --plot FILE.svg\n"


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_values_of_options() -> None:
    assert (weighted("fraud"), weighted("a=b=0.5")) == (("fraud", 1), ("a=b", 0.5))
    assert (counts("1,4,16"), int_range("-3:9"), bursts("0,5,2,0.1")) == ((1, 4, 16), (-3, 9), (0, 5, 2, 0.1))
    for parse, texts in ((weighted, ("a=0", "a=x")), (counts, ("1,", "0", "-1")), (int_range, ("9:3", "1", "a:b")), (bursts, ("1,2,3", "1,2,0,1"))):
        for text in texts:
            with pytest.raises(ArgumentTypeError):
                parse(text)


def test_every_option_changes_the_load() -> None:
    parser = Parser("wakeful bench", "")
    add_arguments(parser)

    def load(*options: str) -> Any:
        return load_of(parser.parse_args(["http://h", "m", *options]))

    assert load()[:4] == ("16 connections for 10 s", 16, 1, 10)
    assert load("--connections", "1", "--duration", "3", "--warmup", "0")[:4] == ("1 connection for 3 s", 1, 0, 3)
    rate = load("--rate", "50", "--seed", "2")
    assert rate.connections == 256
    assert len(rate.arrivals) == pytest.approx(550, rel=0.2)
    assert rate.arrivals != load("--rate", "50").arrivals


def test_remarks() -> None:
    def remarked(**figures: float | bool) -> str:
        from array import array

        columns = array("d", [0, 1]), array("d", [0.001, 0.001]), array("h", [200, 200]), array("l", [0, 0])
        return "\n".join(remarks(Results(*columns, **({"wall": 10.0, "cpu": 1.0, "lag": 0.0} | figures))))  # type: ignore[arg-type]

    assert remarked() == "generator: 10% of a core"
    assert "warning: the generator was the limit: it used 90% of a core" in remarked(cpu=9.0)
    assert "part of the latency is the generator's own" in remarked(lag=0.0005)
    assert "interrupted after 10 s; 3 calls were under way, the oldest for 2.0 s" in remarked(interrupted=True, under_way=3, oldest=2.0)


def test_strokes() -> None:
    for looks in (Looks(), Looks(unicode=True)):
        assert [len(stroke(share, looks)) for share in (0, 1e-6, 0.5, 1)] == [0, 1, 20, 40]
    assert stroke(0.51, Looks()) == 20 * "#"


def test_progress() -> None:
    off, on = io.StringIO(), io.StringIO()
    for stream, looks in ((off, Looks()), (on, Looks(width=60))):
        moments = iter((0.0, 0.1, 5.0, 10.0, 10.1, 20.0, 20.0, 30.0))
        progress = Progress("some load", stream, looks, clock=lambda moments=moments: next(moments))  # type: ignore[misc]
        for share in (0.0, 0.2, 0.4, 0.41, 0.8):
            progress.report(share)
        progress.step("part 1 is done", "part 2")
        progress.report(0.5)
        progress.done()
    assert off.getvalue().splitlines() == [
        "some load ...", "some load: 40 %  15 s left", "some load: 80 %  5.0 s left", "part 1 is done", "part 2: 50 %  10 s left",
    ]
    states = on.getvalue().split("\r\x1b[K")
    assert states[1:3] == ["some load  #####                    20 %  20 s left", "some load  ##########               40 %  15 s left"]
    assert len(states) == 6  # what came within a quarter of a second is not shown
    assert states[-1] == ""
    quiet = io.StringIO()
    silent = Progress("some load", quiet, Looks(), quiet=True)
    silent.step("part 1", "part 2")
    silent.done()
    assert (quiet.getvalue(), silent.seen) == ("", None)


def test_serving_does_not_import_the_generator() -> None:
    code = "import sys, wakeful.cli.serve, wakeful.cli.daemon; print([name for name in sys.modules if name.startswith('wakeful.loadgen')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
