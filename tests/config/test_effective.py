"""C44: the settings that count can be read, and what is read gives the same settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import issue
from tests.config.test_load import BUDGET, MODEL, SERVER, TUNING
from wakeful.config.effective import effective
from wakeful.config.load import Options, load
from wakeful.config.schema import DefaultsTable, ModelTable, ServerTable
from wakeful.config.settings import ModelSettings, Settings

ENTRY = '[[models]]\nid = "a"\npath = "a.onnx"\n'
TEXTS = [
    "", ENTRY, *(f"[server]\n{key} = {row[0]}\n" for key, row in SERVER.items()),
    *(f"[defaults]\n{key} = {row[0]}\n" for key, row in BUDGET.items()),
    *(f"{ENTRY}{key} = {row[0]}\n" for key, row in (TUNING | MODEL).items()),
    '[defaults]\nmemory_limit = "72.5%"\nmax_batch_delay_ms = 0.1\n' + ENTRY,
    ENTRY + 'description = "a \\"quoted\\" \\\\ text, über\\ntwo lines"\n',
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "words.json").touch()
    return tmp_path / "c.toml"


def read(config: Path, text: str) -> Settings:
    """Without what says where it came from."""
    config.write_text(text, "utf-8")
    settings = load(Options(config=config), {"HOME": "/nowhere"})
    models = tuple(replace(model, scanned=False) for model in settings.models)
    return replace(settings, files=(), warnings=(), defaults=ModelSettings("", Path()), models=models)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_shown_gives_the_same_settings(config: Path, text: str) -> None:
    settings = read(config, text)
    assert read(config, effective(settings)) == settings


def test_a_certificate_too(config: Path) -> None:
    issue(config.parent)
    settings = read(config, '[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n')
    assert read(config, effective(settings)) == settings


def test_every_key_is_shown_and_no_secret(config: Path) -> None:
    text = ENTRY + '[[auth.api_keys]]\nkey = "hush-hush-hush-hush"\nname = "shop"\n[auth.jwt]\nsecret = "hush-hush-hush-hush-hush-hush-hush"\n'
    shown = effective(read(config, text)) + effective(read(config, ENTRY + "replicas = 2\n"))
    words = shown.replace("#", " ").split()
    assert {*ServerTable.model_fields, *ModelTable.model_fields, *(set(DefaultsTable.model_fields) & set(BUDGET))} <= set(words)
    assert "hush" not in shown
    assert "1 keys, not shown: inference (shop)" in shown
