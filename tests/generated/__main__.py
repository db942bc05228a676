"""The golden rule for models that nobody wrote: an answer in company is the answer alone, and that is the one of ONNX Runtime without a server.

Random graphs with random requests, each asked alone and then all at once: `python -m tests.generated --models 500 --seed 7`. Ends with
what the models were like; status 1 if an answer was wrong. `--only 17` shows one of them.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from tests.daemon import Daemon, running
from tests.e2e.asking import Answer, Question, ask_together
from tests.generated.models import ROW_LIMIT, Case, Model, arrays, difference, generate, write

AT_ONCE = 24
"""Models in the directory at a time."""

CONFIG = f"""
[defaults]
batch_policy = "timer"
max_batch_size = {ROW_LIMIT}
max_batch_delay_ms = 10
max_replicas = 1
"""


@dataclass
class Report:
    models: Counter[str] = field(default_factory=Counter)
    """How many are merged, and how many are not, for which reason."""
    answers: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    runs: int = 0
    """Of models that are merged, in company."""
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"{count:6} models: {reason}" for reason, count in self.models.most_common()]
        lines += [f"{count:6} answers {kind}" for kind, count in sorted(self.answers.items())]
        lines += [f"{self.requests:6} requests to merged models took {self.runs} runs", *(f"PROBLEM: {problem}" for problem in self.problems)]
        return "\n".join(lines)


def check(directory: Path, indices: range, seed: int, say: bool = False) -> Report:
    """Generate these models, serve them by one daemon, and compare."""
    report = Report()
    files = directory / "models"
    files.mkdir()
    config = directory / "wakeful.toml"
    config.write_text(CONFIG)
    with running(directory / "daemon", "--config", str(config), "--models-dir", str(files), "--no-grpc") as daemon:
        for first in indices[::AT_ONCE]:
            some = range(first, min(first + AT_ONCE, indices.stop))
            _check_some(daemon, files, [generate(seed, index) for index in some], report)
            if say:
                sys.stderr.write(f"\r{some.stop - indices.start:6} models, {len(report.problems)} problems ")
    if "Traceback" in daemon.log:
        report.problems.append(f"a traceback:\n{daemon.log}")
    return report


def _check_some(daemon: Daemon, files: Path, models: list[Model], report: Report) -> None:
    paths = [write(model, files) for model in models]
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    loads = ask_together(daemon, [Question(f"/v2/repository/models/{model.name}/load", b"") for model in models])
    for model, load in zip(models, loads, strict=True):
        if load.status != 200:
            report.problems.append(f"{model.name} does not load: {load.body!r}")
    for number in range(len(models[0].cases)):
        for model, answer in zip(models, ask_together(daemon, [model.cases[number].question for model in models]), strict=True):
            _judge(model, number, answer, "alone", report)
    merged = [model for model in models if _describe(daemon, model, report)]
    before = _runs(daemon, merged)
    everything = [(model, number) for model in models for number in range(len(model.cases))]
    answers = ask_together(daemon, [model.cases[number].question for model, number in everything])
    for (model, number), answer in zip(everything, answers, strict=True):
        _judge(model, number, answer, "in company", report)
    report.requests += sum(len(model.cases) for model in merged)
    report.runs += _runs(daemon, merged) - before
    for path in paths:
        path.unlink()
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200


def _describe(daemon: Daemon, model: Model, report: Report) -> bool:
    """What the model's metadata say: is it merged, and why (not)?"""
    batching = daemon.call("GET", f"/v2/models/{model.name}")[1]["batching"]
    merged, reason = bool(batching["merged"]), str(batching["reason"])
    report.models[f"{'merged' if merged else 'one by one'}, {_kind(reason)}"] += 1
    if not reason or "not tested" in reason:
        report.problems.append(f"{model.name} does not say whether it is merged: {batching}")
    if model.mergeable and not merged:
        report.problems.append(f"{_shown(model)}\nis not merged, although its rows are independent: {reason}")
    return merged


def _kind(reason: str) -> str:
    """A reason without names and figures."""
    for words in ("influence each other", "beside it", "in company as alone", "a merged run fails", "found no input", "too few inputs", "has shape",
                  "fixed to", "no free axis 0", "no declared axis 0", "further axis", "from run to run", "depends on its place", "axis 0 of"):
        if words in reason:
            return words
    return reason


def _runs(daemon: Daemon, models: list[Model]) -> int:
    names = {model.name for model in models}
    return sum(one["execution_count"] for one in daemon.call("GET", "/v2/models/stats")[1]["model_stats"] if one["name"] in names)


def _judge(model: Model, number: int, answer: Answer, circumstances: str, report: Report) -> None:
    case = model.cases[number]
    report.answers[f"{circumstances}: {answer.status}"] += 1
    fault = _fault(model, case, answer)
    if fault:
        report.problems.append(f"{_shown(model)}\nrequest {number}, {circumstances}: {fault}")


def _fault(model: Model, case: Case, answer: Answer) -> str:
    if case.expected is None:
        return "" if answer.status in (400, 500) else f"status {answer.status}, although the model refuses it"
    if answer.status != 200:
        return f"status {answer.status}: {answer.body!r}"
    return difference(model, arrays(answer), case.expected)


def _shown(model: Model) -> str:
    return onnx.printer.to_text(model.proto)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--models", type=int, default=AT_ONCE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="number of one model")
    options = parser.parse_args()
    indices = range(options.models) if options.only is None else range(options.only, options.only + 1)
    with tempfile.TemporaryDirectory() as directory:
        report = check(Path(directory), indices, options.seed, say=sys.stderr.isatty())
    print(report.text())
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
