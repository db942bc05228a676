"""Models are found however they lie on disk, and what is no model, or not yet, keeps nobody else from being found."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful.config.layouts import chosen, model_at, models_called, models_in
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.settings import Settings, VersionPolicy

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes empty files, with the directories that they lie in."""
    def make(*names: str) -> Path:
        for name in names:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return tmp_path

    return make


def found_in(directory: Path) -> dict[str, dict[str | None, str]]:
    """By name, the files by version."""
    look = models_in(directory, [])
    return {found.id: {version: str(file.relative_to(directory)) for version, file in found.files.items()} for found in look.found}


def test_files_and_directories(make: Make) -> None:
    there = make("a.onnx", "b/model.onnx", "b/weights.bin", "c/1/model.onnx", "c/3/net.onnx", "c/10/model.onnx", "notes.txt", "d/readme.md")
    assert found_in(there) == {
        "a": {None: "a.onnx"},
        "b": {None: "b/model.onnx"},
        "c": {"1": "c/1/model.onnx", "3": "c/3/net.onnx", "10": "c/10/model.onnx"},
    }
    assert found_in(there / "c") == {"1": {None: "1/model.onnx"}, "10": {None: "10/model.onnx"}}


def test_a_directory_with_python_code_is_a_model_as_a_whole(make: Make) -> None:
    there = make("a/wakeful_model.py", "a/1/weights.bin", "a/net.onnx", "b/snooze_model.json", "c/2/snooze_model.py", "c/2/net.onnx", "d/model.py")
    assert found_in(there) == {"a": {None: "a"}, "b": {None: "b"}, "c": {"2": "c/2"}}
    assert {found.backend for found in models_in(there, []).found} == {"python"}


def test_what_is_no_version(make: Make) -> None:
    """Triton, too, passes over directories that are no number or begin with zero, and empty ones."""
    there = make("m/2/model.onnx", "m/01/model.onnx", "m/0/model.onnx", "m/v3/model.onnx", "m/4/readme.md", "m/.5/model.onnx", "m/model.onnx")
    assert found_in(there) == {"m": {"2": "m/2/model.onnx"}}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["m/a.onnx"], "it holds a.onnx"),
        (["m/1/a.onnx", "m/1/b.onnx"], "it holds a.onnx, b.onnx"),
        (["upload.tmp/1/model.onnx"], "not finished"),
        (["m.onnx.part"], "not finished"),
        (["m.pt"], "export it to ONNX"),
    ],
)
def test_what_looks_like_a_model_is_told(make: Make, names: list[str], words: str) -> None:
    report: list[Problem] = []
    look = models_in(make(*names, "good.onnx"), report)
    assert [found.id for found in look.found] == ["good"]
    (problem,) = report
    assert words in problem.message
    assert problem.severity == "warning"


def test_what_has_been_converted_is_not_told(make: Make) -> None:
    report: list[Problem] = []
    look = models_in(make("a.joblib", "a.onnx", "b.pt", "b.onnx"), report)
    assert [found.id for found in look.found] == ["a", "b"]
    assert report == []


def test_links_are_followed(make: Make, tmp_path: Path) -> None:
    """Kubernetes mounts files and directories as links; one that leads nowhere is told."""
    there = make("..data/m/1/model.onnx", "..data/a.onnx")
    for link, target in {"m": "..data/m", "a.onnx": "..data/a.onnx", "gone.onnx": "nowhere", "circle": "circle"}.items():
        (there / link).symlink_to(target)
    report: list[Problem] = []
    assert [found.id for found in models_in(there, report).found] == ["a", "m"]
    assert ["gone.onnx" in problem.message and "leads nowhere" in problem.message for problem in report] == [True]


def test_what_cannot_be_read_is_told_and_no_other_one_suffers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    there = make("a.onnx", "closed/1/model.onnx", "open/1/model.onnx")
    iterdir = Path.iterdir

    def refusing(self: Path) -> object:
        if self.name == "closed":
            raise PermissionError(13, "Permission denied")
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", refusing)
    report: list[Problem] = []
    look = models_in(there, report)
    assert [found.id for found in look.found] == ["a", "open"]
    assert look.unread == {there / "closed"}
    assert "Permission denied" in report[0].message
    settings = load(Options(models_dir=there), {})
    assert settings.unread == {there / "closed"}


def test_one_name_alone(make: Make) -> None:
    there = make("a.onnx", "a.b.onnx", "ab/model.onnx", "c/2/model.onnx")
    for name in ("a", "a.b", "ab", "c"):
        assert [found.id for found in models_called(there, name, []).found] == [name]
    assert not models_called(there, "b", []).found
    assert not models_called(there, "../a", []).found


def test_a_look_at_one_name_tells_nothing_of_others(make: Make) -> None:
    there = make("a.onnx", "b.joblib", "c/model.joblib")
    settings = {"name": "iris", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "model.joblib"}}
    (there / "c" / "model-settings.json").write_text(json.dumps(settings), encoding="utf-8")
    for name, words in (("a", []), ("b", ["b.joblib is passed over"])):
        report: list[Problem] = []
        models_called(there, name, report)
        assert len(report) == len(words)
        assert all(word in problem.message for word, problem in zip(words, report, strict=True))


@pytest.mark.parametrize(
    ("policy", "served"), [(1, "11"), (2, "3 11"), (9, "1 3 11"), ("all", "1 3 11"), ((1, 3), "1 3"), ((3, 8), "3"), ((8,), "")],
)
def test_which_versions_are_served(policy: VersionPolicy, served: str) -> None:
    assert chosen(policy, {"3", "1", "11"}) == served.split()


def test_a_single_file_has_any_name(make: Make) -> None:
    there = make("x.onnx")
    assert model_at(there / "x.onnx", []) is not None
    assert model_at(there, []) is None


# ── in a configuration ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(directory: Path, lines: str) -> Settings:
    config = directory / "c.toml"
    config.write_text(f'[[models]]\nid = "m"\n{lines}\n')
    return load(Options(config=config), {})


@pytest.mark.parametrize(
    ("versions", "keys"),
    [
        ("", ["m:3"]), ('versions = "latest"', ["m:3"]), ("versions = 2", ["m:2", "m:3"]), ('versions = "all"', ["m:1", "m:2", "m:3"]),
        ("versions = [2, 1]", ["m:1", "m:2"]),
    ],
)
def test_versions_of_a_named_model(make: Make, versions: str, keys: list[str]) -> None:
    there = make("dir/1/model.onnx", "dir/2/model.onnx", "dir/3/model.onnx")
    settings = read(there, f'path = "dir"\n{versions}')
    assert [model.key for model in settings.models] == keys
    assert [model.path for model in settings.models] == [there / "dir" / key[2:] / "model.onnx" for key in keys]


def test_versions_that_are_not_there(make: Make) -> None:
    there = make("dir/1/model.onnx")
    settings = read(there, 'path = "dir"\nversions = [1, 4]')
    assert [model.key for model in settings.models] == ["m:1"]
    assert "has no version 4, only 1" in settings.warnings[0].message
    with pytest.raises(ConfigError, match="none of the versions"):
        read(there, 'path = "dir"\nversions = [4]')


def test_a_directory_without_a_model(make: Make) -> None:
    there = make("dir/1/readme.md")
    with pytest.raises(ConfigError, match=r"dir is a directory without a model: it has neither model.onnx nor wakeful_model.py nor 1/model.onnx"):
        read(there, 'path = "dir"')


@pytest.mark.parametrize("versions", ['"newest"', "0", "[]", "[1, 0]", "true", '["1"]', "1.5"])
def test_versions_that_are_none(make: Make, versions: str) -> None:
    there = make("dir/1/model.onnx")
    with pytest.raises(ConfigError, match=r'`versions` must be "latest", "all", how many of the newest, or an array of numbers from 1 on'):
        read(there, f'path = "dir"\nversions = {versions}')


def test_a_named_directory_is_not_found_once_more(make: Make) -> None:
    there = make("dir/1/model.onnx", "other/model.onnx")
    (there / "models.toml").write_text('[[models]]\nid = "m"\npath = "dir"\n')
    assert [model.key for model in load(Options(models_dir=there), {}).models] == ["m:1", "other"]
