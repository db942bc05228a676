"""What makes a model one of texts: the tokenizer beside its file, and what an export from Hugging Face says of itself in the files around it.

A tokenizer is served by a process of its own, like a model (decision 28), so each adds one to the models that there are.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from wakeful.config.kinds import KINDS
from wakeful.config.layouts import TOKENIZER
from wakeful.config.problems import Problem
from wakeful.config.schema import TextTable
from wakeful.config.settings import BackendSettings, BatchingSettings, ModelSettings, ReplicaSettings, TextSettings

BEYOND = 1_000_000
"""Tokens: what exporters write where there is no limit is more."""
_OFFSET_BY_PAD = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta"})
"""Architectures that number positions from behind the id of the padding, so that they have fewer."""

T = TypeVar("T")


class _SentenceTransformers(msgspec.Struct):
    activation_fn: str | None = None


class _Config(msgspec.Struct):
    model_type: str | None = None
    max_position_embeddings: int | None = None
    pad_token_id: int | None = None
    vocab_size: int | None = None
    sentence_transformers: _SentenceTransformers | None = None


class _TokenizerConfig(msgspec.Struct):
    model_max_length: float | None = None


class _SentenceBert(msgspec.Struct):
    max_seq_length: int | None = None


class _Pooling(msgspec.Struct):
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_lasttoken: bool = False


class _Module(msgspec.Struct):
    type: str
    path: str = ""


class _Truncation(msgspec.Struct):
    max_length: int | None = None


class _Padding(msgspec.Struct):
    pad_id: int = 0


class _Tokenizer(msgspec.Struct):
    truncation: _Truncation | None = None
    padding: _Padding | None = None


def with_text(model: ModelSettings, before: ModelSettings, table: TextTable | None, report: list[Problem]) -> ModelSettings:
    """With what is known of its texts, if it takes any: its [models.text] goes before what lies beside its file. `before`: the same model as another
    version of it was found, whose table is not at hand any more."""
    if before.text is not None:
        return replace(model, text=_moved(before.text, before.path.parent, model.path.parent))
    tokenizer = _tokenizer_of(model) if model.backend == "onnx" else None  # what else lies in a directory of code is the code's
    if table is not None and table.tokenizer is not None:
        tokenizer = (model.path.parent / Path(table.tokenizer).expanduser()).absolute()
    if tokenizer is None or not tokenizer.is_file():
        if table is not None:
            what = f"{tokenizer} is no file" if tokenizer is not None else f"no {TOKENIZER} lies beside {model.path}"
            hint = f'name it: [models.text] tokenizer = "{TOKENIZER}"'
            report.append(Problem("missing-file", f'model "{model.id}" has [models.text], but {what}', hint=hint))
        return model
    found = _found(model, tokenizer, report)
    given = table.given() if table is not None else {}
    written = {key: value for key, value in given.items() if value is not None and key != "tokenizer"}
    return replace(model, text=TextSettings(tokenizer, **{**found, **written}))


def with_tokenizers(models: Iterable[ModelSettings]) -> list[ModelSettings]:
    """These models, and one for each tokenizer that they use, whether it is among them already or not."""
    served = [model for model in models if not KINDS[model.backend].serves_models]
    tokenizers = {model.text.tokenizer: _tokenizer(model.text, model) for model in reversed(served) if model.text is not None}
    return [*served, *tokenizers.values()]


def _tokenizer(text: TextSettings, model: ModelSettings) -> ModelSettings:
    """One process is enough for many replicas of its model: it takes a hundredth of the time. It may be evicted at any moment, being quick to
    load."""
    return ModelSettings(
        text.tokenizer_model, text.tokenizer, f"the tokenizer of {model.id}", "tokenizer", BatchingSettings(merge="on"), ReplicaSettings(fixed=1),
        replace(model.life, min_residency=0.0), model.admission, BackendSettings("cpu", 1, "off"), scanned=model.scanned,
    )


def _tokenizer_of(model: ModelSettings) -> Path | None:
    """`X-tokenizer.json` or `X.tokenizer.json` for `X.onnx`, else the `tokenizer.json` of its directory, where it cannot be another model's."""
    file = model.path
    stem, directory = file.stem, str(file.parent)
    for name in (f"{stem}-{TOKENIZER}", f"{stem}.{TOKENIZER}"):
        if os.path.exists(beside := os.path.join(directory, name)):  # noqa: PTH110, PTH118 - asked for each of thousands of models
            return Path(beside)
    own = [place / TOKENIZER for place in (file.parent, model.home) if place is not None]
    found = next((place for place in own if place.is_file()), None)
    alone = found is not None and (model.home is not None or len(list(file.parent.glob(f"*{file.suffix}"))) == 1)
    return found if alone else None


def _moved(text: TextSettings, before: Path, now: Path) -> TextSettings:
    """A tokenizer that lay beside one version lies beside the other too, if it is the version's own."""
    moved = now / text.tokenizer.name
    return replace(text, tokenizer=moved) if text.tokenizer.parent == before and moved.is_file() else text


def _found(model: ModelSettings, tokenizer: Path, report: list[Problem]) -> dict[str, Any]:
    """What the files of an export say, which lie beside its tokenizer, by the names of TextSettings."""
    home = tokenizer.parent
    config = _read(home / "config.json", _Config) or _Config()
    of_tokenizer = _read(tokenizer, _Tokenizer) or _Tokenizer()
    pad_id = config.pad_token_id if config.pad_token_id is not None else of_tokenizer.padding.pad_id if of_tokenizer.padding else 0
    found: dict[str, Any] = {"pad_id": max(pad_id, 0), "vocabulary": config.vocab_size, "max_tokens": _max_tokens(home, config, of_tokenizer, pad_id)}
    activation = config.sentence_transformers and config.sentence_transformers.activation_fn
    if activation and activation.endswith("Identity"):
        found["activation"] = "none"
    if pooling := _pooling(home):
        found["usual_pooling"] = pooling
    for module in _read(home / "modules.json", list[_Module]) or ():
        if module.type.rpartition(".")[2] not in ("Transformer", "Pooling", "Normalize"):
            text = f'model "{model.id}": {module.path or module.type} is not applied to its embeddings, unless its file does that itself'
            report.append(Problem("ignored", text, severity="warning"))
    return found


def _max_tokens(home: Path, config: _Config, tokenizer: _Tokenizer, pad_id: int) -> int:
    sentence = _read(home / "sentence_bert_config.json", _SentenceBert)
    if sentence is not None and sentence.max_seq_length:
        return sentence.max_seq_length
    positions = config.max_position_embeddings
    if positions and config.model_type in _OFFSET_BY_PAD:
        positions -= pad_id + 1
    longest = (_read(home / "tokenizer_config.json", _TokenizerConfig) or _TokenizerConfig()).model_max_length
    limits = [int(limit) for limit in (positions, longest) if limit is not None and 0 < limit < BEYOND]
    if not limits and tokenizer.truncation is not None and tokenizer.truncation.max_length:
        limits = [tokenizer.truncation.max_length]
    return min(limits, default=512)


def _pooling(home: Path) -> Literal["cls", "mean", "max", "last"] | None:
    modules: Sequence[_Module] = _read(home / "modules.json", list[_Module]) or ()
    place = next((module.path for module in modules if module.type.endswith("Pooling")), "1_Pooling")
    modes = _read(home / place / "config.json", _Pooling) or _Pooling()
    if modes.pooling_mode_cls_token:
        return "cls"
    if modes.pooling_mode_lasttoken:
        return "last"
    if modes.pooling_mode_max_tokens:
        return "max"
    return "mean" if modes.pooling_mode_mean_tokens else None


def _read(file: Path, form: type[T]) -> T | None:
    """What a file says, as far as it concerns us; None where it is not there, or is of another form. A tokenizer that is broken says so itself."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=form)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
