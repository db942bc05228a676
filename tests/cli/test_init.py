"""`wakeful init` writes a file that changes nothing until somebody edits it, and never writes over one."""

import re
from pathlib import Path

import pytest

from tests import onnx_models
from wakeful.cli.main import main
from wakeful.config.load import Options, load


@pytest.fixture
def models(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    (directory / "versions" / "1").mkdir(parents=True)
    onnx_models.ident(directory / "fraud.onnx")
    onnx_models.ident(directory / "versions" / "1" / "model.onnx")
    (directory / "old.pkl").write_bytes(b"")
    return directory


def test_what_is_written_serves_what_would_be_served_without_it(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = load(Options(models_dir=models), {})
    assert main(["init", str(models)], 0.0) == 0
    told = capsys.readouterr()
    assert f"{models}/models.toml written: 2 models found (fraud, versions), 1 skipped" in told.out
    assert "old.pkl is passed over" in told.out
    assert told.err == f"next: wakeful serve --models-dir {models}\n"
    after = load(Options(models_dir=models), {})
    assert {one.key: (one.path, one.life, one.batching) for one in after.models} == {
        one.key: (one.path, one.life, one.batching) for one in before.models}
    assert after.memory == before.memory


def test_every_key_in_a_comment_is_one(models: Path) -> None:
    assert main(["init", str(models)], 0.0) == 0
    path = models / "models.toml"
    text, keys = re.subn(r"^# (\w+ = )", r"\1", path.read_text("utf-8"), flags=re.MULTILINE)
    assert keys == 8 + 2
    path.write_text(text, "utf-8")
    settings = load(Options(models_dir=models), {})
    assert all(model.life.pinned for model in settings.models)
    assert settings.memory.limit == 0.8


def test_a_file_that_is_there_stays(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "models.json").write_text("{}")
    assert main(["init", str(models)], 0.0) == 1
    assert "models.json is there already, and stays as it is" in capsys.readouterr().err
    assert not (models / "models.toml").exists()
    assert main(["init", str(models), "--print"], 0.0) == 0
    assert 'id = "fraud"' in capsys.readouterr().out


def test_where_nothing_can_be_written(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "models.toml").symlink_to(models / "nowhere" / "models.toml")
    assert main(["init", str(models)], 0.0) == 1
    assert capsys.readouterr().err == (
        f"error: {models}/models.toml cannot be written: File exists\n  hint: --print shows what would be written\n"
    )


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "nowhere")], 0.0) == 2
    assert "nowhere is no directory" in capsys.readouterr().err
    (tmp_path / "a.onnx").touch()
    assert main(["init", str(tmp_path / "a.onnx")], 0.0) == 2
    assert f"name the one that it lies in: wakeful init {tmp_path}" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["init", str(tmp_path / "empty")], 0.0) == 0
    assert "0 models found\n" in capsys.readouterr().out
