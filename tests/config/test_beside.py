"""Settings that lie beside a model's file."""

from pathlib import Path

import pytest

from wakeful.config.beside import text_of
from wakeful.config.effective import model_keys
from wakeful.config.load import Options, load
from wakeful.config.models import scan
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.settings import ModelSettings, Settings

DEFAULTS = '[defaults]\nmax_batch_size = 5\nmax_replicas = 3\npad = { axis = 1, mask = "m", buckets = [4] }\n'


@pytest.fixture
def models(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    (models / "a.onnx").touch()
    (models / "b.onnx").touch()
    return models


def read(models: Path, config: str = DEFAULTS) -> Settings:
    (models / "models.toml").write_text(config)
    return load(Options(models_dir=models), {})


def found(settings: Settings, name: str) -> ModelSettings:
    (model,) = [model for model in settings.models if model.id == name]
    return model


def test_they_go_before_the_defaults_for_this_model_alone(models: Path) -> None:
    (models / "a.onnx.toml").write_text('description = "words"\nmax_batch_size = 7\nreplicas = 2\n')
    settings = read(models)
    a, b = model_keys(found(settings, "a")), model_keys(found(settings, "b"))
    assert (a.pop("description"), a.pop("max_batch_size"), a.pop("replicas")) == ("words", 7, 2)
    assert (b.pop("description"), b.pop("max_batch_size"), b.pop("max_replicas"), b.pop("min_replicas")) == (None, 5, 3, 0)
    assert {key for key in a if a[key] != b[key]} == {"id", "path"}
    assert found(settings, "a").scanned


@pytest.mark.parametrize(("text", "message", "line"), [
    ("max_batch_size = 0", "must be 1 or more", 1), ("\nmax_batch_sizes = 1", "is not a setting", 2), ("id = 'c'", "follows from the file", 1),
    ("backend = 'xgboost'", "follows from the file's name", 1),
    ("replicas = 2\nmin_replicas = 3", "fixes the count", 2), ("= 1", "", 1),
])
def test_a_mistake_is_told_with_its_place_and_nothing_starts(models: Path, text: str, message: str, line: int) -> None:
    (models / "a.onnx.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(models)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert (problem.file, problem.line) == (str(models / "a.onnx.toml"), line)


def test_an_entry_of_models_has_its_own_settings_and_that_is_told(models: Path) -> None:
    (models / "a.onnx.toml").write_text("max_batch_size = 7")
    settings = read(models, '[[models]]\nid = "other"\npath = "a.onnx"\n')
    assert found(settings, "other").batching.max_rows == 64
    assert [problem.code for problem in settings.warnings] == ["ignored"]


def test_a_look_reads_them_again(models: Path) -> None:
    settings = read(models)
    report: list[Problem] = []
    (models / "a.onnx.toml").write_text("max_batch_size = 7")
    (models / "b.onnx.toml").write_text("max_batch_size = 0")
    (a,), unread = scan(models, settings, report=report)
    assert (a.batching.max_rows, unread) == (7, {models / "b.onnx"})
    assert [problem.file for problem in report] == [str(models / "b.onnx.toml")]


def test_what_is_written_reads_the_same(models: Path) -> None:
    keys = {
        "description": 'quoted " \\ \n \x7f ü 😀', "max_batch_size": 3, "max_batch_delay_ms": 2.5, "pinned": True, "routing_strategy": "round_robin",
        "pad": {"axis": 1, "value": 0.5, "mask": None, "buckets": [1, 2]}, "memory_limit": 10**9,
    }
    (models / "a.onnx.toml").write_text(text_of(keys))
    shown = model_keys(found(read(models), "a"))
    assert {key: shown[key] for key in keys} == keys
