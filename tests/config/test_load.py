"""Every key changes something, and the order of precedence holds."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from snoozeml.config import SnoozeConfig

import wakeful
from tests.certificates import issue
from wakeful.config.load import Options, load
from wakeful.config.models import scan
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.schema import BudgetTable, DefaultsTable, ModelTable, OverrideTable, ServerTable, TuningTable
from wakeful.config.settings import MemorySettings, ModelSettings, Padding, ServerSettings, Settings, TlsSettings, WarmupSettings

Reading = Callable[[Any], object]

TUNING: dict[str, tuple[str, object, Reading]] = {
    "max_batch_size": ("7", 7, lambda model: model.batching.max_rows),
    "max_batch_delay_ms": ("2.5", 0.0025, lambda model: model.batching.max_delay),
    "batch_policy": ('"timer"', "timer", lambda model: model.batching.policy),
    "batching": ('"off"', "off", lambda model: model.batching.merge),
    "target_p99_ms": ("50", 0.05, lambda model: model.batching.target_p99),
    "pad": ('{ axis = 1, value = 2, mask = "m", buckets = [4, 16] }', Padding(1, 2, "m", (4, 16)), lambda model: model.batching.pad),
    "routing_strategy": ('"round_robin"', "round-robin", lambda model: model.replicas.routing),
    "autoscale_queue_threshold": ("3", 3, lambda model: model.replicas.queue_threshold),
    "max_replicas": ("4", 4, lambda model: model.replicas.max_replicas),
    "min_replicas": ("2", 2, lambda model: model.replicas.min_replicas),
    "replicas": ("3", 3, lambda model: model.replicas.fixed),
    "idle_timeout_secs": ("0", 0, lambda model: model.life.idle_timeout),
    "min_residency_secs": ("0.5", 0.5, lambda model: model.life.min_residency),
    "pinned": ("true", True, lambda model: model.life.pinned),
    "load_timeout_secs": ("9", 9, lambda model: model.life.load_timeout),
    "queue_limit": ("99", 99, lambda model: model.admission.queue_limit),
    "request_timeout_ms": ("1500", 1.5, lambda model: model.admission.request_timeout),
    "device": ('"cuda:1"', "cuda:1", lambda model: model.runtime.device),
    "threads": ("2", 2, lambda model: model.runtime.threads),
    "prepare": ('"off"', "off", lambda model: model.runtime.prepare),
}
BUDGET: dict[str, tuple[str, object, Reading]] = {
    "memory_limit": ('"4GiB"', 4 * 1024**3, lambda settings: settings.memory.limit),
    "max_loaded_models": ("5", 5, lambda settings: settings.memory.max_loaded_models),
}
MODEL: dict[str, tuple[str, object, Reading]] = {
    "backend": ('"xgboost"', "xgboost", lambda model: model.backend),
    "description": ('"words"', "words", lambda model: model.description),
    "versions": ("[3, 1]", (1, 3), lambda model: model.versions),
    "memory_limit": ('"512MB"', 512_000_000, lambda model: model.runtime.memory_limit),
    "text": ('{ tokenizer = "words.json" }', "words.json", lambda model: model.text and model.text.tokenizer.name),
    "warmup": (
        '[{ data = "random", rows = 2, sizes = { L = 4 }, shapes = { x = [1, 2] }, count = 3 }, { file = "/a.npz" }]',
        (WarmupSettings("random", 2, {"L": 4}, {"x": (1, 2)}, None, 3), WarmupSettings(file=Path("/a.npz"))),
        lambda model: model.warmup,
    ),
}
SERVER: dict[str, tuple[str, object, Reading]] = {
    "host": ('"127.0.0.2"', "127.0.0.2", lambda settings: settings.server.host),
    "insecure": ("true", True, lambda settings: settings.server.insecure),
    "port": ("9000", 9000, lambda settings: settings.server.port),
    "grpc_port": ("false", None, lambda settings: settings.server.grpc_port),
    "max_body": ('"1MiB"', 1024**2, lambda settings: settings.server.max_body),
    "max_upload": ('"1GiB"', 1024**3, lambda settings: settings.server.max_upload),
    "max_header": ('"4KiB"', 4096, lambda settings: settings.server.max_header),
    "max_connections": ("7", 7, lambda settings: settings.server.max_connections),
    "allowed_hosts": ('"a.example"', ("a.example",), lambda settings: settings.server.allowed_hosts),
    "client_timeout_secs": ("5", 5, lambda settings: settings.server.client_timeout),
    "lame_duck_secs": ("3", 3, lambda settings: settings.server.lame_duck),
    "shutdown_grace_secs": ("0.5", 0.5, lambda settings: settings.server.grace),
    "keep_alive_secs": ("5", 5, lambda settings: settings.server.keep_alive),
    "log_format": ('"json"', "json", lambda settings: settings.server.log_format),
    "log_requests": ("true", True, lambda settings: settings.server.log_requests),
    "cache_dir": ('"c"', "c", lambda settings: settings.cache.directory.name),
    "cache_limit": ("0", 0, lambda settings: settings.cache.limit),
    "worker_network": ("true", True, lambda settings: settings.server.workers.network),
    "worker_new_privileges": ("true", True, lambda settings: settings.server.workers.new_privileges),
    "worker_core_dumps": ("true", True, lambda settings: settings.server.workers.core_dumps),
    "worker_largest_file": ('"1GB"', 10**9, lambda settings: settings.server.workers.largest_file),
    "worker_memory": ('"1GB"', 10**9, lambda settings: settings.server.workers.memory),
    "models_dir": ('"."', True, lambda settings: settings.models_dir is not None),
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Settings]:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "words.json").touch()

    def read(text: str, environ: dict[str, str] | None = None, **options: Any) -> Settings:
        (tmp_path / "c.toml").write_text(text, encoding="utf-8")
        return load(Options(config=tmp_path / "c.toml", **options), environ or {})

    return read


def test_the_lists_above_are_complete() -> None:
    assert set(TUNING) == set(TuningTable.model_fields)
    assert set(SERVER) | {"tls_cert", "tls_key"} == set(ServerTable.model_fields)
    assert set(BUDGET) == set(BudgetTable.model_fields)
    assert set(MODEL) | set(TUNING) | {"id", "path"} == set(ModelTable.model_fields)
    assert set(TUNING) | set(BUDGET) == set(DefaultsTable.model_fields)
    assert set(OverrideTable.model_fields) <= {field.name for field in fields(Options)}


ENTRY = '[[models]]\nid = "a"\npath = "a.onnx"\n'


@pytest.mark.parametrize("key", TUNING)
def test_a_default_reaches_every_model(key: str, read: Callable[..., Settings]) -> None:
    written, expected, reading = TUNING[key]
    before, after = read(ENTRY), read(f"[defaults]\n{key} = {written}\n{ENTRY}")
    assert reading(after.models[0]) == reading(after.defaults) == expected
    assert reading(before.models[0]) != expected


@pytest.mark.parametrize("key", [*TUNING, *MODEL])
def test_a_model_goes_before_the_defaults(key: str, read: Callable[..., Settings]) -> None:
    written, expected, reading = (TUNING | MODEL)[key]
    settings = read(f"{ENTRY}{key} = {written}\n")
    assert reading(settings.models[0]) == expected
    assert reading(settings.defaults) != expected


@pytest.mark.parametrize("key", [*SERVER, *BUDGET])
def test_the_daemon_obeys_file_environment_and_option(key: str, read: Callable[..., Settings]) -> None:
    written, expected, reading = (SERVER | BUDGET)[key]
    table = "server" if key in SERVER else "defaults"
    plain = written.strip('"')
    option: Any = {"1": 1}.get(plain, plain)
    assert reading(read("")) != expected
    assert reading(read(f"[{table}]\n{key} = {written}\n")) == expected
    assert reading(read("", {f"WAKEFUL_{key.upper()}": plain})) == expected
    assert reading(read("", **{key: option})) == expected


def test_a_certificate_and_its_key_come_from_file_environment_and_options(tmp_path: Path, read: Callable[..., Settings]) -> None:
    files = TlsSettings(tmp_path / "cert.pem", tmp_path / "key.pem")
    issue(tmp_path)
    assert read("").server.tls is None
    assert read('[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"').server.tls == files
    assert read('[server]\ntls_cert = "cert.pem"', {"WAKEFUL_TLS_KEY": str(files.key)}).server.tls == files
    assert read("", tls_cert=str(files.certificate), tls_key=str(files.key)).server.tls == files


def test_option_before_environment_before_file(read: Callable[..., Settings]) -> None:
    file, environ = "[server]\nport = 1\n", {"WAKEFUL_PORT": "2"}
    assert read(file).server.port == 1
    assert read(file, environ).server.port == 2
    assert read(file, environ, port=3).server.port == 3
    assert read(file, {"WAKEFUL_PORT": ""}).server.port == 1


def test_defaults_of_schema_and_settings_agree(read: Callable[..., Settings]) -> None:
    settings = read("")
    assert settings.server == ServerSettings()
    assert settings.memory == MemorySettings()
    assert settings.defaults == ModelSettings("", Path())
    assert settings.models == ()
    assert read("\ufeff[server]\r\nport = 1\r\n").server.port == 1


def test_no_grpc_goes_before_grpc_port(read: Callable[..., Settings]) -> None:
    assert read("", grpc_port=50051, no_grpc=True).server.grpc_port is None


def test_fixed_count_and_bounds_of_the_other_table(read: Callable[..., Settings]) -> None:
    fixed = read(f"[defaults]\nmin_replicas = 2\nmax_replicas = 4\n{ENTRY}replicas = 3\n").models[0].replicas
    assert (fixed.fixed, fixed.min_replicas, fixed.max_replicas) == (3, 0, 0)
    by_load = read(f"[defaults]\nreplicas = 3\n{ENTRY}max_replicas = 2\n").models[0].replicas
    assert (by_load.fixed, by_load.max_replicas) == (None, 2)


@pytest.mark.parametrize(
    ("written", "size"),
    [("100000", 100_000), ('"80%"', 0.8), ('"1.5 GiB"', 3 * 2**29), ('"2Gi"', 2**31), ('"100 kB"', 100_000), ('"70000"', 70_000), ('"12.5%"', 0.125)],
)
def test_memory_limit(written: str, size: float, read: Callable[..., Settings]) -> None:
    assert read(f"[defaults]\nmemory_limit = {written}\n").memory.limit == size


@pytest.mark.parametrize("written", ["80", '"80"', '"1 kB"'])
def test_a_limit_without_its_unit_is_refused(written: str, read: Callable[..., Settings]) -> None:
    with pytest.raises(ConfigError, match="must be at least 65536 bytes"):
        read(f"[defaults]\nmemory_limit = {written}\n")


def test_synonyms_of_the_seeds(read: Callable[..., Settings]) -> None:
    settings = read(f'[defaults]\nmax_delay_ms = 3\nrouting_strategy = "least_queue"\n{ENTRY}max_delay_ms = 4\n')
    assert settings.defaults.batching.max_delay == 0.003
    assert settings.models[0].batching.max_delay == 0.004
    assert settings.models[0].replicas.routing == "least-queue"


def test_cache_directory(tmp_path: Path) -> None:
    assert load(Options(), {"HOME": "/h"}).cache.directory == Path("/h/.cache/wakeful")
    assert load(Options(), {"HOME": "/h", "XDG_CACHE_HOME": "/x"}).cache.directory == Path("/x/wakeful")
    assert load(Options(), {"HOME": "/h", "XDG_CACHE_HOME": "x"}).cache.directory == Path("/h/.cache/wakeful")
    assert load(Options(), {"HOME": "/h", "WAKEFUL_CACHE_DIR": "~/mine"}).cache.directory == Path("/h/mine")


def test_models_directory(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "named.onnx", ".hidden.onnx", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "below.onnx").mkdir()
    (tmp_path / "models.toml").write_text('[defaults]\nqueue_limit = 100\n[[models]]\nid = "x"\npath = "./named.onnx"\n', encoding="utf-8")
    settings = load(Options(models_dir=tmp_path), {})
    assert [(model.id, model.path.name, model.scanned) for model in settings.models] == [
        ("x", "named.onnx", False), ("a", "a.onnx", True), ("b", "b.onnx", True),
    ]
    assert all(model.path.is_absolute() and model.admission.queue_limit == 100 for model in settings.models)
    assert settings.files == (tmp_path / "models.toml",)
    assert settings.models_dir == tmp_path
    assert load(Options(), {"WAKEFUL_MODELS_DIR": str(tmp_path)}).models == settings.models


def test_scan_again(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    settings = load(Options(models_dir=tmp_path), {})
    assert scan(tmp_path, settings) == (list(settings.models), set())
    (tmp_path / "a.onnx").rename(tmp_path / "c.onnx")
    assert [model.id for model in scan(tmp_path, settings)[0]] == ["c"]
    with pytest.raises(FileNotFoundError):
        scan(tmp_path / "gone", settings)
    (tmp_path / "C.onnx").touch()
    report: list[Problem] = []
    assert [model.id for model in scan(tmp_path, settings, {tmp_path / "c.onnx"}, report)[0]] == ["c"]  # it is served under this id
    assert [problem.code for problem in report] == ["duplicate-id"]


def test_files_whose_name_cannot_be_an_id_are_passed_over(tmp_path: Path) -> None:
    for name in ("my model.onnx", "Same.onnx", "same.onnx"):
        (tmp_path / name).touch()
    settings = load(Options(models_dir=tmp_path), {})
    assert [model.id for model in settings.models] == ["Same"]
    assert [problem.code for problem in settings.warnings] == ["file", "duplicate-id"]


def test_path_is_looked_for_in_the_models_directory_first(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("a.onnx", "m/a.onnx", "only-here.onnx"):
        (tmp_path / name).touch()
    text = '[[models]]\nid = "a"\npath = "a.onnx"\n[[models]]\nid = "o"\npath = "only-here.onnx"\n'
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    settings = load(Options(config=tmp_path / "c.toml", models_dir=tmp_path / "m"), {})
    assert [model.path for model in settings.models] == [tmp_path / "m" / "a.onnx", tmp_path / "only-here.onnx"]


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_what_the_sdk_writes(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a.onnx").touch()
    config = SnoozeConfig()
    config.add_model("a", "a.onnx", description="café \U0001f600", max_batch_size=8, routing_strategy="round-robin", pinned=True)
    config.save(tmp_path / f"models.{suffix}")
    settings = load(Options(models_dir=tmp_path, grpc_port=50051, no_grpc=True), {})
    (model,) = settings.models
    assert (model.id, model.description, model.batching.max_rows) == ("a", "café \U0001f600", 8)
    assert model.life.pinned
    assert model.replicas.routing == "round-robin"


def test_json_and_toml_mean_the_same(tmp_path: Path, read: Callable[..., Settings]) -> None:
    document = {"server": {"port": 1}, "defaults": {"max_replicas": None}, "models": [{"id": "a", "path": "a.onnx", "threads": "auto"}]}
    from_toml = read(f'[server]\nport = 1\n{ENTRY}threads = "auto"\n')
    (tmp_path / "c.json").write_text(json.dumps(document), encoding="utf-8")
    from_json = load(Options(config=tmp_path / "c.json"), {})
    assert from_json.models == from_toml.models
    assert from_json.server == from_toml.server


def test_demonstration_models_give_way_to_configured_ones(tmp_path: Path) -> None:
    present = sorted(file.stem for file in (Path(wakeful.__file__).parent / "demo").glob("*.onnx"))
    assert [model.id for model in load(Options(demo=True), {}).models] == present
    for name in present:
        (tmp_path / f"{name}.onnx").touch()
    assert all(model.scanned for model in load(Options(demo=True, models_dir=tmp_path), {}).models)


def test_a_file_of_a_known_kind_is_opened_by_its_library(tmp_path: Path) -> None:
    names = {
        "a.xgb.json": "xgboost", "b.xgb.ubj": "xgboost", "c.ubj": "xgboost", "d.lgb.txt": "lightgbm", "e.lightgbm.txt": "lightgbm",
        "f.cbm": "catboost", "g.onnx": "onnx",
    }
    for name in (*names, "models.json", "notes.txt", ".ubj"):
        (tmp_path / name).write_text("{}")
    settings = load(Options(models_dir=tmp_path), {})
    assert {model.path.name: model.backend for model in settings.models} == names
    assert [model.id for model in settings.models] == list("abcdefg")


def test_a_pickle_is_never_a_model(tmp_path: Path) -> None:
    for name in ("a.pkl", "b.pickle", "c.joblib"):
        (tmp_path / name).touch()
        (tmp_path / "models.toml").write_text(f'[[models]]\nid = "x"\npath = "{name}"\nbackend = "xgboost"\n')
        with pytest.raises(ConfigError, match=f"wakeful convert {name} -o {name[0]}.onnx"):
            load(Options(config=tmp_path / "models.toml"), {})
    (tmp_path / "models.toml").unlink()
    settings = load(Options(models_dir=tmp_path), {})
    assert settings.models == ()
    assert [(problem.code, problem.severity) for problem in settings.warnings] == [("pickle", "warning")] * 3
    assert "wakeful convert a.pkl -o a.onnx" in settings.warnings[0].message


def test_a_file_that_does_not_say_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "fraud.json").touch()
    entry = '[[models]]\nid = "x"\npath = "fraud.json"\n'
    (tmp_path / "c.toml").write_text(entry)
    settings = load(Options(config=tmp_path / "c.toml"), {})
    assert [model.backend for model in settings.models] == ["onnx"]
    assert [problem.code for problem in settings.warnings] == ["unknown-kind"]
    (tmp_path / "c.toml").write_text(entry + 'backend = "xgboost"\n')
    settings = load(Options(config=tmp_path / "c.toml"), {})
    assert [model.backend for model in settings.models] == ["xgboost"]
    assert not settings.warnings
    (tmp_path / "c.toml").write_text(entry + 'backend = "caffe"\n')
    with pytest.raises(ConfigError, match='must be one of "auto", "onnx"'):
        load(Options(config=tmp_path / "c.toml"), {})


def test_a_file_without_end() -> None:
    with pytest.raises(ConfigError, match="/dev/zero cannot be read: it has more than 64 MiB"):
        load(Options(config=Path("/dev/zero")), {})
