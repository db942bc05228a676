"""`wakeful bench --assert`, and where the server is."""

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_client_verbs import wakeful
from tests.daemon import Daemon, running
from wakeful.cli.bench_asserts import bound
from wakeful.cli.bench_options import WrongUse, place_of

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
    assert [one["holds"] for one in json.loads(file.read_text("utf-8"))["asserts"]] == [True, True]
    done = wakeful("bench", daemon.url, "demo-model", *SHORT, "--assert", "max<1us", "--assert", "failed<=0", "--json", "-")
    assert done.returncode == 1
    asserts = json.loads(done.stdout)["asserts"]
    assert [(one["assert"], one["holds"]) for one in asserts] == [("max<1us", False), ("failed<=0", True)]
    assert wakeful("bench", daemon.url, "demo-model", "--assert", "p99<20").returncode == 2


@pytest.mark.parametrize(
    ("text", "figure", "limit", "share"),
    [
        ("p99<20ms", "p99", 0.02, False),
        ("p99.9 <= 1.5 s", "p99.9", 1.5, False), ("max<500us", "max", 0.0005, False), ("done>900", "done", 900.0, False),
        ("failed<=0.5%", "failed", 0.005, True), ("failed<3", "failed", 3.0, False),
    ],
)
def test_bounds(text: str, figure: str, limit: float, share: bool) -> None:
    made = bound(text)
    assert (made.figure, made.share) == (figure, share)
    assert made.limit == pytest.approx(limit)
    assert made.holds(limit) == ("=" in text)
    assert not made.holds(float("nan"))
    assert "nothing was answered" in made.told(float("nan"))


@pytest.mark.parametrize("text", ["p99<20", "done>900ms", "done>5%", "p99=20ms", "p999<1s", "max", "", "p99<1.2.3s", "mean<1s", "p99<.s"])
def test_what_is_no_bound(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        bound(text)


def test_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_URL", "http://there:1")
    assert place_of(Namespace(models=["m"])) == ("http://there:1", [("m", 1.0)])
    assert place_of(Namespace(models=["a:1"])) == ("http://there:1", [("a:1", 1.0)])
    assert place_of(Namespace(models=["a=2", "b"])) == ("http://there:1", [("a", 2.0), ("b", 1.0)])
    assert place_of(Namespace(models=["127.0.0.1:8080", "m"])) == ("127.0.0.1:8080", [("m", 1.0)])
    assert place_of(Namespace(models=["[::1]:8080/x", "m"])) == ("[::1]:8080/x", [("m", 1.0)])
    assert place_of(Namespace(models=["http://x", "m=3"])) == ("http://x", [("m", 3.0)])
    monkeypatch.delenv("WAKEFUL_URL")
    assert place_of(Namespace(models=["m"]))[0] == "http://127.0.0.1:8080"
    for models in (["http://x"], ["m=x"]):
        with pytest.raises(WrongUse):
            place_of(Namespace(models=models))
