"""[[pipelines]]: what is written is what counts, and each mistake is told with its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.test_errors import problems as _problems
from wakeful.config.effective import effective
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.schema import PipelineTable, StepTable
from wakeful.config.settings import PipelineSettings, Settings, StepSettings

problems = _problems  # the fixture
ENTRY = '[[models]]\nid = "a"\npath = "a.onnx"\n'
WHOLE = ENTRY + """
[[pipelines]]
id = "review"
description = "what people think"
inputs = ["TEXT"]
outputs = ["SCORE"]
request_timeout_ms = 1500
steps = [
    { model = "a", version = 1, name = "first", inputs = { x = "TEXT" }, outputs = { y = "half", "odd name" = "rest" } },
    { model = "a", inputs = { x = "half" }, outputs = { y = "SCORE", "odd name" = "more" } },
]
"""


def read(directory: Path, text: str) -> Settings:
    (directory / "a.onnx").touch()
    (directory / "c.toml").write_text(text, "utf-8")
    return load(Options(config=directory / "c.toml"), {"HOME": "/nowhere"})


def test_every_key_counts(tmp_path: Path) -> None:
    (pipeline,) = read(tmp_path, WHOLE).pipelines
    assert pipeline == PipelineSettings(
        "review",
        (
            StepSettings("a", 1, "first", {"x": "TEXT"}, {"y": "half", "odd name": "rest"}),
            StepSettings("a", None, None, {"x": "half"}, {"y": "SCORE", "odd name": "more"}),
        ),
        ("TEXT",), ("SCORE",), "what people think", 1.5,
    )


def test_what_is_not_said(tmp_path: Path) -> None:
    text = "[defaults]\nrequest_timeout_ms = 700\n" + ENTRY + '[[pipelines]]\nid = "p"\nsteps = [{ model = "a" }]\n'
    (pipeline,) = read(tmp_path, text).pipelines
    assert pipeline == PipelineSettings("p", (StepSettings("a"),), request_timeout=0.7)


@pytest.mark.parametrize("models_dir", [False, True])
def test_a_model_that_lies_beside_the_file_is_served_with_its_directory(tmp_path: Path, models_dir: bool) -> None:
    (tmp_path / "beside.onnx").touch()
    (tmp_path / "models.toml").write_text(ENTRY + '[[pipelines]]\nid = "p"\nsteps = [{ model = "a" }, { model = "beside" }]\n', "utf-8")
    (tmp_path / "a.onnx").touch()
    if models_dir:
        assert len(load(Options(models_dir=tmp_path), {"HOME": "/nowhere"}).pipelines) == 1
        return
    with pytest.raises(ConfigError) as caught:
        load(Options(config=tmp_path / "models.toml"), {"HOME": "/nowhere"})
    unknown, beside = caught.value.problems
    assert (unknown.code, beside.code, beside.hint) == ("unknown-model", "models-dir", f"--models-dir {tmp_path}")
    assert beside.message.startswith("beside: in ")


def test_what_is_shown_gives_the_same_settings(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    shown = effective(settings)
    assert read(tmp_path, shown).pipelines == settings.pipelines
    assert {*PipelineTable.model_fields, *StepTable.model_fields} <= set(shown.replace('"', " ").split())


CASES = [
    ("[pipelines]\nid = 'p'", "wrong-type", 4, "each pipeline begins with [[pipelines]], in double brackets"),
    ("[[pipeline]]\nid = 'p'", "unknown-table", 4, "did you mean [[pipelines]]?"),
    ("[[pipelines]]\nid = 'p'", "missing-key", 4, None),
    ("[[pipelines]]\nid = 'p'\nsteps = []", "wrong-value", 6, 'steps = [{ model = "tokenize" }, { model = "classify" }]'),
    ("[[pipelines]]\nid = 'p'\nsteps = ['a']", "wrong-value", 6, 'steps = [{ model = "tokenize" }, { model = "classify" }]'),
    ("[[pipelines]]\nid = 'p'\nsteps = [\n{ model = 'a' },\n{ modle = 'a', model = 'a' }]", "unknown-key", 8, "did you mean `model`?"),
    ("[[pipelines]]\nid = 'p'\nsteps = [{ model = 'A1' }]", "unknown-model", 6, "there are a, p"),
    ("[[pipelines]]\nid = 'p'\nsteps = [\n{ model = 'a', inputs = { x = 1 } }]", "wrong-type", 7, None),
    ("[[pipelines]]\nid = 'p'\nsteps = [\n{ model = 'a', version = 2 }]", "unknown-model", 7, None),
    ("[[pipelines]]\nid = 'A'\nsteps = [{ model = 'a' }]", "duplicate-id", 5, None),
    ("[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a' }]\n[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a' }]", "duplicate-id", 8, None),
    ("[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a', name = 's' },\n{ model = 'a', name = 's' }]", "duplicate-id", 7, None),
    ("[[pipelines]]\nid = 'p'\nsteps = [{ model = 'p' }]", "cycle", 6, None),
    (
        "[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a', outputs = { y = 's' } },\n{ model = 'a', outputs = { y = 's' } }]", "wiring", 7,
        'rename one: outputs = { y = "..." }',
    ),
    (
        "[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a', inputs = { x = 'q' }, outputs = { y = 'q' } }]", "wiring", 6,
        'rename one: inputs = { x = "..." }',
    ),
    ("[[pipelines]]\nid = 'p'\ninputs = ['s']\nsteps = [{ model = 'a', outputs = { y = 's' } }]", "wiring", 7, 'outputs = { y = "..." }'),
]


@pytest.mark.parametrize(("text", "code", "line", "hint"), CASES)
def test_one_fault(text: str, code: str, line: int, hint: str | None, problems: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems(ENTRY + text)
    assert (problem.code, problem.line, problem.hint, problem.severity) == (code, line, hint, "error")


def test_pipelines_may_be_steps_but_not_in_a_ring(problems: Callable[..., tuple[Problem, ...]]) -> None:
    inner, outer = ("[[pipelines]]\nid = '{}'\nsteps = [{{ model = '{}' }}]\n".format(*names) for names in (("inner", "a"), ("outer", "inner")))
    assert not problems(ENTRY + outer + inner)
    found = problems(ENTRY + outer + inner.replace("'a'", "'outer'"))
    assert [(problem.code, problem.line) for problem in found] == [("cycle", 6), ("cycle", 9)]


def test_a_model_with_another_mistake_is_no_unknown_model(problems: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems(ENTRY.replace("a.onnx", "b.onnx") + "[[pipelines]]\nid = 'p'\nsteps = [{ model = 'a' }]")
    assert problem.code == "missing-file"


def test_json_means_the_same(problems: Callable[..., tuple[Problem, ...]]) -> None:
    models = '"models": [{"id": "a", "path": "a.onnx"}]'
    (problem,) = problems(f'{{{models},\n"pipelines": [{{"id": "p", "steps": [\n{{"model": "b"}}]}}]}}', name="c.json")
    assert (problem.code, problem.line) == ("unknown-model", 3)


def test_the_example_of_the_page_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    (example,) = [block.partition("```")[0] for block in page.split("```toml\n") if "[[pipelines]]" in block.partition("```")[0]]
    names = ("tokenize", "encoder", "classifier")
    for name in names:
        (tmp_path / f"{name}.onnx").touch()
    models = "".join(f'[[models]]\nid = "{name}"\npath = "{name}.onnx"\n' for name in names)
    (pipeline,) = read(tmp_path, models + example).pipelines
    assert [step.model for step in pipeline.steps] == list(names)
