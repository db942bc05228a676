"""[[streams]]: what it becomes, what is refused, and that no message gives a password away."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest
from snoozeml.config import SnoozeConfig

from wakeful.config.effective import effective
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError, Problem, masked
from wakeful.config.schema import StreamTable
from wakeful.config.settings import Settings, StreamSettings

DEFAULT = StreamSettings(
    "default-stream", "redis", "redis://127.0.0.1:6379", "snooze.requests", "snooze.responses", "snooze.dlq", "snoozeml-group",
)
KEYS: dict[str, tuple[str, object]] = {
    "name": ('"s"', "s"),
    "endpoint": ('"rediss://elsewhere:1"', "rediss://elsewhere:1"),
    "input_topic": ('"in"', "in"),
    "model_id": ('"a"', "a"),
    "output_topic": ('"out"', "out"),
    "error_topic": ('"err"', "err"),
    "consumer_group": ('"g"', "g"),
    "auto_create_topics": ("false", False),
    "concurrency": ("3", 3),
    "partitions": ("4", 4),
    "format": ('"Protobuf"', "protobuf"),
}


def loaded(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None, name: str = "models.toml") -> Settings:
    (tmp_path / name).write_text(text, "utf-8")
    return load(Options(config=tmp_path / name), environ or {})


def fault(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> Problem:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, environ)
    (problem,) = caught.value.problems
    return problem


def test_all_keys_have_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").streams == ()
    assert loaded(tmp_path, "[[streams]]").streams == (DEFAULT,)


def test_every_key_counts(tmp_path: Path) -> None:
    assert set(KEYS) | {"broker", "endpoint_env"} == set(StreamTable.model_fields)
    for key, (written, expected) in KEYS.items():
        (stream,) = loaded(tmp_path, f"[[streams]]\n{key} = {written}\n").streams
        assert getattr(stream, key) == expected != getattr(DEFAULT, key)


@pytest.mark.parametrize(("broker", "endpoint"), [
    ("Redis", "unix:///run/redis.sock"), ("rabbitmq", "amqps://u:p@there/"), ("kafka", "one:9092,two:9092"),
])
def test_each_broker_has_its_addresses(tmp_path: Path, broker: str, endpoint: str) -> None:
    (stream,) = loaded(tmp_path, f"[[streams]]\nbroker = '{broker}'\nendpoint = '{endpoint}'\n").streams
    assert (stream.broker, stream.endpoint) == (broker.lower(), endpoint)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_file_saved_by_snoozeml_loads(tmp_path: Path, suffix: str) -> None:
    config = SnoozeConfig().add_stream().add_stream(
        name="second", broker="rabbitmq", endpoint="amqp://127.0.0.1", input_topic="in", output_topic=None, error_topic=None,
        consumer_group=None, model_id="a", concurrency=2, partitions=3, auto_create_topics=False, format="protobuf",
    )
    path = tmp_path / f"models.{suffix}"
    config.save(path)
    first, second = load(Options(config=path), {}).streams
    assert first == DEFAULT
    assert second == StreamSettings(
        "second", "rabbitmq", "amqp://127.0.0.1", "in", DEFAULT.output_topic, DEFAULT.error_topic, DEFAULT.consumer_group, "a", False, 2, 3,
        "protobuf",
    )


def test_what_is_shown_gives_the_same_settings(tmp_path: Path) -> None:
    text = "[[streams]]\n" + "".join(f"{key} = {written}\n" for key, (written, _) in KEYS.items())
    settings = loaded(tmp_path, text)
    assert loaded(tmp_path, effective(settings)).streams == settings.streams


@pytest.mark.parametrize(("text", "code", "line", "words"), [
    ("broker = 'mock'", "wrong-value", 2, "a mock is served by the client itself"),
    ("broker = 'nats'", "wrong-value", 2, '"redis", "rabbitmq" or "kafka"'),
    ("brokr = 'redis'", "unknown-key", 2, "`brokr` is not a setting of [[streams]]"),
    ("broker = 'rabbitmq'", "wrong-value", 1, "must begin with amqp:// or amqps://"),
    ("broker = 'kafka'", "wrong-value", 1, "HOST:PORT"),
    ("name = ' '", "wrong-value", 2, "must not be empty"),
    ("concurrency = 0", "out-of-range", 2, "must be above 0"),
    ("partitions = 0", "out-of-range", 2, "must be above 0"),
    ("format = 'xml'", "wrong-value", 2, '"json" or "protobuf"'),
    ("output_topic = 'snooze.requests'", "conflict", 2, "would be read as a request"),
    ("error_topic = 'snooze.requests'", "conflict", 2, "would be read as a request"),
    ("[[streams]]", "duplicate-id", 2, "taken by an earlier stream"),
    ("endpoint_env = 'NO_SUCH_VARIABLE'", "missing-variable", 2, "not set"),
    ("endpoint_env = 'THERE'\nendpoint = 'redis://a'", "conflict", 2, "both given"),
])
def test_one_fault(tmp_path: Path, text: str, code: str, line: int, words: str) -> None:
    problem = fault(tmp_path, f"[[streams]]\n{text}", {"THERE": "redis://b"})
    assert (problem.code, problem.line) == (code, line)
    assert words in problem.message


def test_streams_are_a_list(tmp_path: Path) -> None:
    assert fault(tmp_path, "[streams]\nname = 's'").hint == "each stream begins with [[streams]], in double brackets"


def test_a_model_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    (warning,) = loaded(tmp_path, "[[streams]]\nmodel_id = 'a'").warnings
    assert warning.code == "missing-model"


def test_a_missing_library_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.config.streams.find_spec", lambda name: None if name == "aiokafka" else importlib.util.find_spec(name))
    problem = fault(tmp_path, "[[streams]]\nbroker = 'kafka'\nendpoint = 'h:1'")
    assert (problem.code, problem.hint) == ("missing-library", "pip install 'wakeful[kafka]'")


def test_no_message_shows_a_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "[[streams]]\nbroker = 'kafka'\nendpoint = 'redis://me:hu/sh@there:1/0?password=hush#x'\nnme = 1\n")
    assert "hu/sh" not in str(caught.value)
    assert "hush" not in str(caught.value)
    settings = loaded(tmp_path, "[[streams]]\nendpoint = 'redis://me:hush@there:1/0?password=hush'\n")
    assert "hush" not in effective(settings) + repr(settings)
    assert 'endpoint = "redis://...@there:1/0"' in effective(settings)
    environ = {"BROKER": " redis://:hush@there\n"}
    settings = loaded(tmp_path, "[[streams]]\nendpoint_env = 'BROKER'\n", environ)
    assert settings.streams[0].endpoint == "redis://:hush@there"
    assert 'endpoint_env = "BROKER"' in effective(settings)


def test_addresses_without_secrets_stay_as_they_are() -> None:
    assert masked("at redis://there:1/0, and a@b?c") == "at redis://there:1/0, and a@b?c"
