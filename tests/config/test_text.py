"""Which models take texts, and what is read from the files around them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful.config.load import Options, load
from wakeful.config.models import look_again, scan
from wakeful.config.problems import ConfigError
from wakeful.config.settings import ModelSettings, Settings, TextSettings
from wakeful.config.text import with_tokenizers


@pytest.fixture
def lay(tmp_path: Path) -> Callable[..., Path]:
    """Puts files into a directory of models: their contents, or nothing."""

    def lay(*names: str, **contents: Any) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        for name, content in contents.items():
            (tmp_path / "m" / name.replace("__", "/")).with_suffix(".json").write_text(json.dumps(content))
        return tmp_path

    return lay


def found(directory: Path, config: str = "") -> dict[str, ModelSettings]:
    return {model.id: model for model in settings_of(directory, config).models}


def settings_of(directory: Path, config: str = "") -> Settings:
    (directory / "models.toml").write_text(config)
    return load(Options(models_dir=directory), {"HOME": "/nowhere"})


def text(directory: Path, model: str = "m", config: str = "") -> TextSettings:
    settings = found(directory, config)[model].text
    assert settings is not None
    return settings


EXPORT = ("m/model.onnx", "m/tokenizer.json")


@pytest.mark.parametrize(
    ("files", "tokenizers"),
    [
        (["m.onnx", "m-tokenizer.json"], {"m": "m-tokenizer.json"}),
        (["m.onnx", "m.tokenizer.json", "n.onnx"], {"m": "m.tokenizer.json", "n": None}),
        (["m.onnx", "tokenizer.json"], {"m": "tokenizer.json"}),
        (["m.onnx", "n.onnx", "tokenizer.json"], {"m": None, "n": None}),
        (["m/model.onnx", "m/tokenizer.json"], {"m": "m/tokenizer.json"}),
        (["m/onnx/model.onnx", "m/onnx/model_int8.onnx", "m/tokenizer.json"], {"m": "m/tokenizer.json"}),
        (["m/2/model.onnx", "m/2/tokenizer.json"], {"m": "m/2/tokenizer.json"}),
        (["m/model.onnx", "m.onnx"], {"m": None}),
    ],
)
def test_a_tokenizer_is_found_where_it_can_be_no_other_models(
    files: list[str], tokenizers: dict[str, str | None], lay: Callable[..., Path]
) -> None:
    directory = lay(*files)
    models = {model.id: model for model in found(directory).values() if model.backend == "onnx"}
    assert {name: model.text and str(model.text.tokenizer.relative_to(directory)) for name, model in models.items()} == tokenizers


def test_a_tokenizer_is_one_more_model(lay: Callable[..., Path]) -> None:
    directory = lay(*EXPORT)
    models = found(directory, "[defaults]\npinned = true\nidle_timeout_secs = 7\n")
    assert models["m"].text is not None
    name = models["m"].text.tokenizer_model
    assert name.startswith("tokenizers/m-")
    tokenizer = models[name]
    assert (tokenizer.backend, tokenizer.path) == ("tokenizer", directory / "m" / "tokenizer.json")
    assert (tokenizer.life.pinned, tokenizer.life.idle_timeout, tokenizer.life.min_residency) == (True, 7, 0)
    assert tokenizer.replicas.fixed == 1


def test_a_refresh_finds_the_same(lay: Callable[..., Path]) -> None:
    directory = lay(*EXPORT)
    settings = settings_of(directory)
    assert with_tokenizers(scan(directory, settings)[0]) == list(settings.models)


def test_models_share_a_tokenizer(lay: Callable[..., Path]) -> None:
    entry = '[[models]]\nid = "{}"\npath = "{}.onnx"\n[models.text]\ntokenizer = "t.json"\n'
    models = found(lay("a.onnx", "b.onnx", "t.json"), entry.format("a", "a") + entry.format("b", "b"))
    assert len(models) == 3
    assert len({model.text.tokenizer_model for model in models.values() if model.text}) == 1


def test_a_version_has_the_tokenizer_beside_it(lay: Callable[..., Path]) -> None:
    directory = lay("m/1/model.onnx", "m/1/t.json", "m/tokenizer.json")
    entry = '[[models]]\nid = "m"\npath = "m"\nversions = "all"\ntext = { truncate = "left" }\n'
    assert text(directory, config=entry).tokenizer == directory / "m" / "tokenizer.json"
    first = found(directory, entry.replace("{ ", '{ tokenizer = "t.json", '))["m"]
    lay("m/2/model.onnx", "m/2/t.json")
    versions = [model.text for model in look_again(first, [])]
    assert [settings and (settings.tokenizer.parent.name, settings.truncate) for settings in versions] == [("1", "left"), ("2", "left")]


def test_without_more_files_there_are_defaults(lay: Callable[..., Path]) -> None:
    assert text(lay(*EXPORT)) == TextSettings(lay() / "m" / "tokenizer.json")


@pytest.mark.parametrize(
    ("contents", "key", "value"),
    [
        ({"config": {"pad_token_id": 1}}, "pad_id", 1),
        ({"tokenizer": {"padding": {"pad_id": 5}}}, "pad_id", 5),
        ({"config": {"vocab_size": 30}}, "vocabulary", 30),
        ({"config": {"max_position_embeddings": 300}}, "max_tokens", 300),
        ({"config": {"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}}, "max_tokens", 512),
        ({"config": {"max_position_embeddings": 514}, "tokenizer_config": {"model_max_length": 256}}, "max_tokens", 256),
        ({"tokenizer_config": {"model_max_length": 1e30}}, "max_tokens", 512),
        ({"config": {"max_position_embeddings": 512}, "sentence_bert_config": {"max_seq_length": 77}}, "max_tokens", 77),
        ({"tokenizer": {"truncation": {"max_length": 128}}}, "max_tokens", 128),
        ({"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}, "usual_pooling", "cls"),
        ({"1_Pooling__config": {"pooling_mode_lasttoken": True}}, "usual_pooling", "last"),
        ({"1_Pooling__config": {"pooling_mode_max_tokens": True}}, "usual_pooling", "max"),
        ({"1_Pooling__config": {"pooling_mode_mean_tokens": True}}, "usual_pooling", "mean"),
        ({"config": {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}}, "activation", "none"),
        ({"config": {"max_position_embeddings": "many"}}, "max_tokens", 512),
    ],
)
def test_what_an_export_says_counts(contents: dict[str, Any], key: str, value: object, lay: Callable[..., Path]) -> None:
    lay(*EXPORT, "m/1_Pooling/config.json")
    directory = lay(**contents)
    assert getattr(text(directory), key) == value


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("pooling", '"last"', "last"), ("normalize", "false", False), ("max_tokens", "9", 9), ("truncate", '"refuse"', "refuse"),
        ("max_batch_tokens", "99", 99), ("activation", '"none"', "none"),
    ],
)
def test_a_table_goes_before_the_files(key: str, written: str, value: object, lay: Callable[..., Path]) -> None:
    directory = lay(*EXPORT, config={"max_position_embeddings": 300})
    entry = '[[models]]\nid = "m"\npath = "m"\n'
    assert getattr(text(directory, config=entry), key) != value
    assert getattr(text(directory, config=f"{entry}[models.text]\n{key} = {written}\n"), key) == value


def test_a_part_that_is_not_applied_is_told(lay: Callable[..., Path]) -> None:
    lay(*EXPORT)
    modules = [{"type": f"sentence_transformers.models.{name}", "path": f"{place}_{name}"} for place, name in enumerate(("Pooling", "Dense"))]
    (warning,) = settings_of(lay(modules=modules)).warnings
    assert warning.message == 'model "m": 1_Dense is not applied to its embeddings, unless its file does that itself'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("text = {}", "no tokenizer.json lies beside"), ('text = { tokenizer = "none.json" }', "none.json is no file"),
        ("text = { pooling = 3 }", '`pooling` must be "auto"'), ("text = { poolin = 3 }", "`poolin` is not a setting of [models.text]"),
        ("text = { max_tokens = 0 }", "`max_tokens` must be 1 or more"), ("text = 3", "`text` must be a table"),
    ],
)
def test_what_is_wrong_is_told(table: str, message: str, lay: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(lay("a.onnx", "b.onnx"), f'[[models]]\nid = "a"\npath = "a.onnx"\n{table}\n')
    (problem,) = caught.value.problems
    assert message in problem.message
