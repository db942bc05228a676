"""Where settings come from."""

from pathlib import Path

import pytest

from tests import onnx_models
from wakeful.config.load import Options, load
from wakeful.config.sources import DEFAULT, SECRET, Sourced, of_daemon, of_model

FILE = """\
[server]
max_body = "1MiB"
port = 9000

[defaults]
max_delay_ms = 3
idle_timeout_secs = 60

[[auth.api_keys]]
role = "admin"
key = "geheim"
name = "boss"

[[models]]
id = "named"
path = "named.onnx"
pinned = true

[[streams]]
name = "orders"
broker = "redis"
endpoint = "redis://me:geheim@127.0.0.1:1"
input_topic = "in"
model_id = "named"
"""


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Sourced]:
    """All settings of a daemon and its models, by key."""
    for name in ("named", "scanned", "beside"):
        onnx_models.ident(tmp_path / f"{name}.onnx")
    (tmp_path / "beside.onnx.toml").write_text("max_batch_size = 7\n")
    (tmp_path / "models.toml").write_text(FILE)
    options = Options(models_dir=tmp_path, port=9001, cache_dir=tmp_path / "cache")
    settings = load(options, {"HOME": str(tmp_path), "WAKEFUL_MEMORY_LIMIT": "1GiB", "WAKEFUL_PORT": "9002"})
    shown = {one.key: one for one in of_daemon(settings)}
    for model in settings.models:
        shown |= {f"{model.id}.{one.key}": one for one in of_model(model, settings)}
    return shown


def test_a_line_an_option_a_variable_or_the_default(found: dict[str, Sourced], tmp_path: Path) -> None:
    def said(key: str) -> tuple[object, str]:
        one = found[key]
        return one.value, one.source.replace(f"{tmp_path}/", "")

    assert said("server.max_body") == (1 << 20, "models.toml:2")
    assert said("server.port") == (9001, "option --port")
    assert said("defaults.memory_limit") == (1 << 30, "environment WAKEFUL_MEMORY_LIMIT")
    assert said("server.host") == ("127.0.0.1", DEFAULT)
    assert said("defaults.max_batch_delay_ms") == (3.0, "models.toml:6")
    assert said("named.pinned") == (True, "models.toml:17")
    assert said("named.idle_timeout_secs") == (60.0, "models.toml:7")
    assert said("named.max_batch_size")[1] == DEFAULT
    assert said("scanned.idle_timeout_secs") == (60.0, "models.toml:7")
    assert said("scanned.path") == (str(tmp_path / "scanned.onnx"), "the model's file")
    assert said("beside.max_batch_size") == (7, "beside.onnx.toml")
    assert said("streams.orders.input_topic") == ("in", "models.toml:23")


def test_no_secret_is_shown(found: dict[str, Sourced]) -> None:
    assert found["auth.api_keys.boss"].value == {"role": "admin", "key": SECRET}
    assert not [one for one in found.values() if "geheim" in repr(one)]
