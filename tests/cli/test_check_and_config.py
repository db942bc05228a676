"""`wakeful check` in its formats, `wakeful config show` and `wakeful config schema`."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.cli.test_client_verbs import wakeful
from wakeful.cli.check import annotation
from wakeful.config.json_schema import json_schema
from wakeful.config.problems import Place, Problem
from wakeful.config.reference import EXAMPLE
from wakeful.config.schema import TABLES

WRONG = '[defaults]\nmax_batchsize = 8\n\n[[models]]\nid = "a"\npath = "nowhere.onnx"\n'
KEY = "a-key-that-nobody-may-see"


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    (tmp_path / "models.toml").write_text(WRONG, encoding="utf-8")
    return str(tmp_path / "models.toml")


def test_text_quotes_lines(wrong: str) -> None:
    done = wakeful("check", wrong)
    assert done.returncode == 1
    assert f"  --> {wrong}:2:1\n2 | max_batchsize = 8\n  | ^^^^^^^^^^^^^\n  hint: did you mean `max_batch_size`?\n" in done.stdout
    assert "nowhere.onnx does not exist" in done.stdout


@pytest.mark.parametrize("options", [["--format", "json"], ["--json"]])
def test_json(wrong: str, options: list[str]) -> None:
    done = wakeful("check", wrong, *options)
    assert done.returncode == 1
    data = json.loads(done.stdout)["data"]
    assert (data["errors"], data["models"]) == (len(data["problems"]), None)
    first = data["problems"][0]
    assert (first["code"], first["line"], first["column"], first["width"], first["key"]) == ("unknown-key", 2, 1, 13, "defaults.max_batchsize")
    right = json.loads(wakeful("check", "--demo", *options).stdout)["data"]
    assert (right["errors"], right["models"], right["pipelines"]) == (0, ["demo-model", "digits"], [])


def test_annotations(wrong: str) -> None:
    done = wakeful("check", wrong, "--format", "github")
    assert done.returncode == 1
    hint = "`max_batchsize` is not a setting of [defaults] (hint: did you mean `max_batch_size`?)"
    assert done.stdout.splitlines()[0] == f"::error file={wrong},line=2,col=1,title=unknown-key::{hint}"
    assert wakeful("check", "--demo", "--format", "github").stdout == ""
    odd = Problem("odd", "50%\nof it", Place("a,b:c", 1, 2), severity="warning")
    assert annotation(odd) == "::warning file=a%2Cb%3Ac,line=1,col=2,title=odd::50%25%0Aof it"
    assert annotation(Problem("odd", "x", Place("option --port"))) == "::error title=odd::option --port: x"


def test_settings_and_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(f'[server]\nport = 1234\n[[auth.api_keys]]\nrole = "admin"\nkey = "{KEY}"\n', encoding="utf-8")
    done = wakeful("config", "show", "--config", str(file), "--grpc-port", "0", WAKEFUL_MAX_BODY="1MiB")
    assert done.returncode == 0
    assert KEY not in done.stdout
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert rows["KEY"] == ["VALUE", "SOURCE"]
    assert rows["server.port"] == ["1234", f"{file}:2"]
    assert rows["server.grpc_port"] == ["0", "option --grpc-port"]
    assert rows["server.max_body"] == ["1048576", "environment WAKEFUL_MAX_BODY"]
    assert rows["server.host"] == ['"127.0.0.1"', "default"]
    one = wakeful("config", "show", "server.port", "--config", str(file), "--json")
    assert json.loads(one.stdout)["data"]["settings"] == [{"key": "server.port", "value": 1234, "source": f"{file}:2"}]
    assert wakeful("config", "--config", str(file), "--grpc-port", "0", WAKEFUL_MAX_BODY="1MiB").stdout == done.stdout
    assert wakeful("config", "show", "defaults", "--changed").stdout == "KEY  VALUE  SOURCE\n"
    unknown = wakeful("config", "show", "server.prot")
    assert (unknown.returncode, unknown.stderr) == (2, "error: there is no setting server.prot\n  hint: did you mean server.port?\n")


def test_all_settings_of_a_model() -> None:
    """A list of everything has of a model what is its own; asked for the model, it has all."""
    few = wakeful("config", "show", "--demo").stdout
    assert "models.digits.path " in few
    assert "models.digits.queue_limit" not in few
    done = wakeful("config", "show", "models.digits", "--demo", "--json")
    settings = {one["key"]: one["source"] for one in json.loads(done.stdout)["data"]["settings"]}
    assert settings["models.digits.queue_limit"] == "default"
    assert settings["models.digits.path"] == "the model's file"


def test_the_schema_takes_what_the_daemon_takes() -> None:
    schema = json.loads(wakeful("config", "schema").stdout)
    assert schema == json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    right: list[dict[str, Any]] = [
        tomllib.loads(EXAMPLE), {},
        {"server": {"grpc_port": 0, "max_body": "1MiB", "port": 1}, "defaults": {"memory_limit": 4096, "threads": "auto"}},
        {"auth": {"api_keys": [{"role": "read_only", "key": KEY}], "jwt": {"secret": KEY}}},
        {"models": [{"id": "a", "path": "a.onnx", "max_delay_ms": 2, "versions": "all", "warmup": [{"rows": 3}]}]},
    ]
    for document in right:
        assert list(validator.iter_errors(document)) == []
    wrong: list[dict[str, Any]] = [
        {"sever": {}}, {"defaults": {"max_batchsize": 8}}, {"defaults": {"max_batch_size": "8"}}, {"server": {"port": 70000}},
        {"server": {"max_body": "80%"}}, {"defaults": {"memory_limit": "plenty"}}, {"models": [{"id": "a", "path": "a.onnx", "versions": "some"}]},
        {"models": [{"id": "a"}]},
        {"auth": {"api_keys": [{"role": "boss"}]}},
    ]
    for document in wrong:
        assert list(validator.iter_errors(document)), document


def test_the_schema_has_every_key() -> None:
    text = json.dumps(json_schema())
    for table in TABLES.values():
        for key in table.model_fields:
            assert f'"{key}": ' in text


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "none.onnx").touch()
    done = wakeful("check", "--models-dir", str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.startswith(f"warning[empty-file]: {tmp_path}/none.onnx is empty, so that none cannot be loaded\n")
    problems = json.loads(wakeful("check", "--models-dir", str(tmp_path), "--json").stdout)["data"]["problems"]
    assert [one["code"] for one in problems] == ["empty-file"]
