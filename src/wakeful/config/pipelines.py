"""The [[pipelines]] of a file. What only the models' files can tell is checked when they are open (`models.pipelines.plan`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from wakeful.config.document import Document
from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Problem
from wakeful.config.schema import PipelineTable, StepTable
from wakeful.config.settings import ModelSettings, PipelineSettings, StepSettings, rank
from wakeful.config.validate import nearest, validate
from wakeful.config.wiring import Fault, faults_of, label

MAX_STEPS = 64
"""Of one pipeline. More is a mistake of whoever writes files by program."""

Known = Mapping[str, set[str] | None]
"""The names that a step may have, with their versions where these are known."""


def configured_pipelines(
    document: Document, models: Sequence[ModelSettings], request_timeout: float, report: list[Problem]
) -> tuple[PipelineSettings, ...]:
    """All that are right; what is wrong with the others is in `report`. `request_timeout`: seconds, for those that do not tell theirs."""
    raw = document.values.get("pipelines", [])
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        hint = "each pipeline begins with [[pipelines]], in double brackets"
        report.append(Problem("wrong-type", "`pipelines` must be a list of tables", document.place(("pipelines",)), "pipelines", hint))
        return ()
    known: dict[str, set[str] | None] = dict.fromkeys(_written_ids(document, "models") | _written_ids(document, "pipelines"))
    known |= {model.id: {other.version or "1" for other in models if other.id == model.id} for model in models}
    _report_taken_ids(document, raw, models, report)
    pipelines = {}
    for index, entry in enumerate(raw):
        if (pipeline := _pipeline(document, index, entry, known, request_timeout, report)) is not None:
            pipelines[index] = pipeline
    for index in _in_themselves(pipelines):
        path: KeyPath = ("pipelines", index, "steps")
        report.append(Problem("cycle", f"the pipeline {pipelines[index].id} is a step of itself", document.place(path), dotted(path)))
    return tuple(pipelines.values())


def _pipeline(
    document: Document, index: int, entry: Mapping[str, Any], known: Known, request_timeout: float, report: list[Problem]
) -> PipelineSettings | None:
    base: KeyPath = ("pipelines", index)
    table = validate(PipelineTable, entry, "[[pipelines]]", document.place, report, base=base)
    steps = None if table is None else _steps(document, (*base, "steps"), table.steps, known, report)
    if table is None or steps is None:
        return None
    inputs, outputs = (None if names is None else tuple(names) for names in (table.inputs, table.outputs))
    seconds = request_timeout if table.request_timeout_ms is None else table.request_timeout_ms / 1000
    pipeline = PipelineSettings(table.id, steps, inputs, outputs, table.description, seconds)
    report.extend(_problem(document, base, pipeline, fault) for fault in faults_of(pipeline, [None] * len(steps)))
    return pipeline


def _steps(document: Document, base: KeyPath, raw: list[Any], known: Known, report: list[Problem]) -> tuple[StepSettings, ...] | None:
    """None if one of them is wrong."""
    if not 1 <= len(raw) <= MAX_STEPS or not all(isinstance(entry, dict) for entry in raw):
        hint = 'steps = [{ model = "tokenize" }, { model = "classify" }]'
        report.append(Problem("wrong-value", f"`steps` must be 1 to {MAX_STEPS} tables", document.place(base), dotted(base), hint))
        return None
    steps = []
    for index, entry in enumerate(raw):
        here = (*base, index)
        table = validate(StepTable, entry, "a step", document.place, report, base=here)
        if table is None:
            continue
        steps.append(table.settings())
        if table.model not in known:
            near = nearest(table.model, known)
            hint = f"did you mean `{near}`?" if near else f"there are {', '.join(sorted(known))}"
            path = (*here, "model")
            report.append(Problem("unknown-model", f"no model is called `{table.model}`", document.place(path), dotted(path), hint))
        elif table.version is not None and (versions := known[table.model]) and str(table.version) not in versions:
            path = (*here, "version")
            message = f"`{table.model}` has no version {table.version}, only {', '.join(sorted(versions, key=rank))}"
            report.append(Problem("unknown-model", message, document.place(path), dotted(path)))
        if table.name is not None and any(table.name == step.name for step in steps[:-1]):
            path = (*here, "name")
            report.append(Problem("duplicate-id", f"another step is called `{table.name}` already", document.place(path), dotted(path)))
    return tuple(steps) if len(steps) == len(raw) else None


def _problem(document: Document, base: KeyPath, pipeline: PipelineSettings, fault: Fault) -> Problem:
    path = (*base, fault.key) if fault.step is None else (*base, "steps", fault.step, fault.key)
    whose = f"{label(pipeline, fault.step)}: " if fault.step is not None else ""
    return Problem("wiring", whose + fault.message, document.place(path), dotted(path), fault.hint)


def _written_ids(document: Document, section: str) -> set[str]:
    """Those of entries with other mistakes too: these are told already."""
    raw = document.values.get(section)
    return {entry["id"] for entry in raw if isinstance(entry, dict) and isinstance(entry.get("id"), str)} if isinstance(raw, list) else set()


def _report_taken_ids(document: Document, raw: list[dict[str, Any]], models: Sequence[ModelSettings], report: list[Problem]) -> None:
    taken = {model.id.lower(): f"the model {model.path}" for model in models}
    for index, entry in enumerate(raw):
        name = entry.get("id")
        if not isinstance(name, str):
            continue
        path: KeyPath = ("pipelines", index, "id")
        if other := taken.get(name.strip().lower()):
            report.append(Problem("duplicate-id", f'the id "{name}" is taken by {other}', document.place(path), dotted(path)))
        else:
            taken[name.strip().lower()] = f"another pipeline (line {document.place(path).line})"


def _in_themselves(pipelines: Mapping[int, PipelineSettings]) -> list[int]:
    """Pipelines that would run for ever."""
    steps = {pipeline.id: {step.model for step in pipeline.steps} for pipeline in pipelines.values()}

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = steps.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    return [index for index, pipeline in pipelines.items() if pipeline.id in reached(pipeline.id)]
