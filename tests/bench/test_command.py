"""python -m bench: which parts run, what a failure and Ctrl-C cost, how long is left."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from bench.__main__ import LETTERS, PARTS, Bench, Progress
from bench.context import Context
from bench.report import Row, earlier


def part(monkeypatch: pytest.MonkeyPatch, name: str, *steps: str | BaseException) -> None:
    """A module of rows that yields these letters, and raises where there is an error."""

    def rows(context: Context) -> Iterator[Row]:
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            yield Row(step, f"row {step}", "1", "2", True)

    module = ModuleType(name)
    vars(module)["rows"] = rows
    monkeypatch.setitem(sys.modules, f"bench.rows.{name}", module)


def bench(directory: Path, parts: Sequence[str], only: str = "") -> Bench:
    progress = Progress(directory / "durations.json", "full", parts, 60.0)
    return Bench(Context(False, 1, directory, progress.say, only=frozenset(only)), parts, directory / "out", progress, "today")


def test_each_row_belongs_to_one_part() -> None:
    assert sorted(LETTERS) == list("ABCDEFGHIJKLMNO")


def test_a_part_that_breaks_off_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part(monkeypatch, "tiny", "A", RuntimeError("no such peer"))
    part(monkeypatch, "overhead", "C", "E")
    one = bench(tmp_path, ["tiny", "overhead"])
    assert one.run()
    assert [(row.letter, row.verdict) for row in one.rows] == [("A", "yes"), ("B", "not measured"), ("C", "yes"), ("E", "yes")]
    assert "no such peer" in (tmp_path / "out" / "report.md").read_text("utf-8")
    assert list(json.loads((tmp_path / "durations.json").read_text())) == ["full overhead"], "what broke off took no time worth keeping"


def test_an_interrupted_run_leaves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part(monkeypatch, "tiny", "A", "B")
    part(monkeypatch, "overhead", "C", KeyboardInterrupt())
    one = bench(tmp_path, ["tiny", "overhead"])
    assert not one.run()
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert not report["complete"]
    assert [row["letter"] for row in report["rows"]] == ["A", "B", "C"]


def test_a_row_can_be_measured_anew_into_the_same_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part(monkeypatch, "waking", "H", "I")
    bench(tmp_path, ["waking"]).run()
    part(monkeypatch, "waking", "H")
    one = bench(tmp_path, ["waking"], "H")
    one.began, one.earlier = "tomorrow", earlier(tmp_path / "out")
    assert one.run()
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert report["began"] == "today"
    assert [(row["letter"], row["measured_at"]) for row in report["rows"]] == [("H", "tomorrow"), ("I", "")]
    assert "begun tomorrow" in (tmp_path / "out" / "report.md").read_text("utf-8")


def test_rows_that_nobody_asked_for_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part(monkeypatch, "waking", "H", RuntimeError("row I is not even begun"))
    part(monkeypatch, "scaling", "J", "L")
    one = bench(tmp_path, ["waking", "scaling"], "HJ")
    assert one.run()
    assert [row.letter for row in one.rows] == ["H", "J"]


def test_a_part_takes_about_what_it_took_the_last_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "durations.json"
    path.write_text('{"full tiny": 100, "full overhead": 30.0, "full broken": "x"}')
    Progress(path, "full", ["tiny", "overhead", "unknown"], 60.0).say("begins")
    assert capsys.readouterr().err == "[0:00, about 3:10 left] begins\n"
    path.write_text("[")
    Progress(path, "full", ["tiny"], 60.0).say("begins")
    assert "about 1:00 left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--only", "A,Z", "there is no row Z"), ("--peers", "tritonn", "there is no peer tritonn"), ("--rounds", "0", "from 1 to 100")],
)
def test_a_wrong_option_is_named(option: str, value: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", option, value], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_no_part_is_forgotten() -> None:
    there = {path.stem for path in (Path(__file__).parents[2] / "bench" / "rows").glob("[a-z]*.py")}
    assert there <= set(PARTS)
