"""`wakeful bench --assert`, and where the server is."""

import json
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_client_verbs import wakeful
from tests.daemon import Daemon, running
from wakeful.cli.bench_asserts import bound
from wakeful.cli.bench_options import WrongUse, add_arguments, place_of
from wakeful.cli.parser import Parser
from wakeful.loadgen.summary import Facts

SHORT = ("--duration", "0.3", "--warmup", "0", "--connections", "2")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("asserts"), "--demo", "--no-grpc") as daemon:
        yield daemon


def test_bounds_decide_the_status(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    there = {"WAKEFUL_URL": daemon.url}
    done = wakeful("bench", "demo-model", *SHORT, "--assert", "p99<1000s", "--assert", "done>0", "--json", str(file), **there)
    assert done.returncode == 0, done.stderr
    assert "assert p99<1000s: " in done.stdout
    assert "which is not so" not in done.stdout
    assert [one["holds"] for one in json.loads(file.read_text("utf-8"))["data"]["asserts"]] == [True, True]
    done = wakeful("bench", daemon.url, "demo-model", *SHORT, "--assert", "max<1us", "--assert", "failed<=0", "--json", "-")
    assert done.returncode == 1
    asserts = json.loads(done.stdout)["data"]["asserts"]
    assert [(one["assert"], one["holds"]) for one in asserts] == [("max<1us", False), ("failed<=0", True)]
    assert wakeful("bench", daemon.url, "demo-model", "--assert", "p99<20").returncode == 2


@pytest.mark.parametrize(
    ("text", "figure", "limit", "share"),
    [
        ("p99<20ms", "p99", 0.02, False),
        ("p99.9 <= 1.5 s", "p99.9", 1.5, False), ("max<500us", "max", 0.0005, False), ("done>900", "done", 900.0, False),
        ("failed<=0.5%", "failed", 0.005, True), ("failed<3", "failed", 3.0, False),
        ("mean<5ms", "mean", 0.005, False), ("rows>=5000", "rows", 5000.0, False),
    ],
)
def test_bounds(text: str, figure: str, limit: float, share: bool) -> None:
    made = bound(text)
    assert (made.figure, made.share) == (figure, share)
    assert made.limit == pytest.approx(limit)
    assert made.holds(limit) == ("=" in text)
    assert not made.holds(float("nan"))
    assert "nothing was answered" in made.told(float("nan"))


@pytest.mark.parametrize("text", ["p99<20", "done>900ms", "done>5%", "p99=20ms", "p999<1s", "max", "", "p99<1.2.3s", "mean<1", "rows>1ms", "p99<.s"])
def test_what_is_no_bound(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        bound(text)


def test_the_figures_that_bounds_are_for() -> None:
    facts = Facts(done=950.4, rows=3801.6, calls=1000, failed=5, percentile=lambda q: q / 1000, mean=0.03)
    texts = ("p99.9<1s", "max<99ms", "mean<31ms", "done>950", "rows>4000", "failed<=5", "failed<0.1%")
    told = [made.told(made.value(facts)) for made in map(bound, texts)]
    assert told == [
        "assert p99.9<1s: 100 ms", "assert max<99ms: 100 ms, which is not so", "assert mean<31ms: 30 ms", "assert done>950: 950.4",
        "assert rows>4000: 3802, which is not so", "assert failed<=5: 5", "assert failed<0.1%: 0.5 %, which is not so",
    ]


def test_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser("wakeful bench", "")
    add_arguments(parser)

    def found(*options: str) -> tuple[str, list[tuple[str, float]]]:
        return place_of(parser.parse_args(options))

    monkeypatch.setenv("WAKEFUL_URL", "http://there:1")
    assert found("m") == ("http://there:1", [("m", 1.0)])
    assert found("a:1") == ("http://there:1", [("a:1", 1.0)])
    assert found("a=2", "b:3") == ("http://there:1", [("a", 2.0), ("b:3", 1.0)])
    assert found("fraud:2", "m") == ("http://there:1", [("fraud:2", 1.0), ("m", 1.0)])
    assert found("http://x", "m=3") == ("http://x", [("m", 3.0)])
    for address in ("localhost", "localhost:80", "127.0.0.1:1", "127.0.0.1:8080", "[::1]:8080/x", "gpu.local:8000", ""):
        assert found(address, "m") == (address, [("m", 1.0)])
    assert found("localhost", "m", "--url", "h") == ("h", [("localhost", 1.0), ("m", 1.0)])
    monkeypatch.delenv("WAKEFUL_URL")
    assert found("m")[0] == "http://127.0.0.1:8080"
    for options, message in ((("http://x",), "which model"), (("m=x",), "argument MODEL: 'x' is not a number")):
        with pytest.raises(WrongUse, match=message):
            found(*options)
