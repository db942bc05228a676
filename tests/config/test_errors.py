"""All faults at once, each with its place and what to write instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.config.document import Document, read_document
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.values import parse_limit, parse_size

ENTRY = '[[models]]\nid = "a"\npath = "a.onnx"\n'


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Problem, ...]]:
    """What load finds in a file, warnings included; the directory also holds a.onnx and titles.onnx."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "titles.onnx"):
        Path(name).touch()

    def problems(text: str, environ: dict[str, str] | None = None, *, name: str = "models.toml", **options: Any) -> tuple[Problem, ...]:
        Path(name).write_text(text, encoding="utf-8")
        try:
            return load(Options(config=Path(name), **options), environ or {}).warnings
        except ConfigError as error:
            return error.problems

    return problems


CASES = [
    ("[defaults]\nmax_batchsize = 8", "unknown-key", 2, 1, "did you mean `max_batch_size`?"),
    ("[defaults]\nmaxBatchSize = 8", "unknown-key", 2, 1, "did you mean `max_batch_size`?"),
    ("max_delay_ms = 8", "unknown-key", 1, 1, "`max_delay_ms` belongs to [defaults] or [[models]]"),
    ("[server]\nmax_loaded_models = 8", "unknown-key", 2, 1, "`max_loaded_models` belongs to [defaults]"),
    (ENTRY + "port = 8", "unknown-key", 4, 1, "`port` belongs to [server]"),
    ("[servr]\nport = 8", "unknown-table", 1, 2, "did you mean [server]?"),
    ("[[model]]\nid = 'a'", "unknown-table", 1, 3, "did you mean [[models]]?"),
    ("[models]\nid = 'a'", "wrong-type", 1, 2, "each model begins with [[models]], in double brackets"),
    ("[[server]]\nport = 8", "wrong-type", 1, 3, "write [server], in single brackets"),
    ('[defaults]\nmax_batch_size = "8"', "wrong-type", 2, 1, "write 8 without quotes"),
    ("[defaults]\nmax_batch_size = 8.0", "wrong-type", 2, 1, "write 8"),
    ("[defaults]\nmax_batch_size = true", "wrong-type", 2, 1, None),
    ("[defaults]\nmax_batch_size = -1", "out-of-range", 2, 1, None),
    ("[defaults]\nmax_batch_size = 1000000000", "out-of-range", 2, 1, None),
    ("[defaults]\nmax_batch_size = 0x" + "f" * 5000, "out-of-range", 2, 1, None),
    ("[defaults]\nmax_batch_size = " + "9" * 5000, "syntax", None, None, None),
    ("[defaults]\nmax_batch_delay_ms = nan", "out-of-range", 2, 1, None),
    ("[defaults]\nidle_timeout_secs = inf", "out-of-range", 2, 1, None),
    ("[defaults]\nautoscale_queue_threshold = 0", "out-of-range", 2, 1, None),
    ('[defaults]\npinned = "true"', "wrong-type", 2, 1, "write true without quotes"),
    ('[defaults]\nbatch_policy = "Timer"', "wrong-value", 2, 1, 'did you mean "timer"?'),
    ('[defaults]\ndevice = "cuda:"', "wrong-value", 2, 1, None),
    ('[defaults]\nmemory_limit = "101%"', "wrong-value", 2, 1, None),
    ('[defaults]\nmemory_limit = "4 G"', "wrong-value", 2, 1, None),
    ("[defaults]\nmemory_limit = 0", "wrong-value", 2, 1, None),
    ("[server]\nworker_memory = \"1MB\"", "wrong-value", 2, 1, None),
    ("[server]\nmax_header = \"1MB\"", "wrong-value", 2, 1, None),
    (ENTRY + 'memory_limit = "80%"', "wrong-value", 4, 1, None),
    ("[defaults]\nthreads = 0", "wrong-value", 2, 1, None),
    ("[defaults]\npad = { axis = 0 }", "out-of-range", 2, 9, None),
    ("[defaults]\npad = { axis = 1, buckets = [8, 4] }", "wrong-value", 2, 19, None),
    ("[defaults]\npad = { axis = 1, buckets = [0] }", "out-of-range", 2, 30, None),
    (ENTRY + "[[models.warmup]]\nrows = 0", "out-of-range", 5, 1, None),
    (ENTRY + "[[models.warmup]]\nrow = 1", "unknown-key", 5, 1, "did you mean `rows`?"),
    (ENTRY + "[[models.warmup]]\nsizes = { L = 0 }", "out-of-range", 5, 11, None),
    (ENTRY + "[[models.warmup]]\nshapes = { x = [-1] }", "out-of-range", 5, 17, None),
    (ENTRY + "[[models.warmup]]\ndata = 'ones'", "wrong-value", 5, 1, None),
    (ENTRY + "warmup = 3", "wrong-type", 4, 1, None),
    ("[defaults]\npad = { axis = 1, valu = 2 }", "unknown-key", 2, 19, "did you mean `value`?"),
    ("[defaults]\nmax_delay_ms = 1\nmax_batch_delay_ms = 1", "conflict", 2, 1, None),
    ("[defaults]\nmin_replicas = 4\nmax_replicas = 2", "conflict", 3, 1, None),
    ("[defaults]\nmax_replicas = 2\n" + ENTRY + "min_replicas = 4", "conflict", 6, 1, None),
    ("[defaults]\nreplicas = 2\nmax_replicas = 4", "conflict", 3, 1, None),
    ("[server]\nport = 50051", "conflict", 2, 1, None),
    ("[server]\ngrpc_port = true", "wrong-type", 2, 1, None),
    (ENTRY + ENTRY, "duplicate-id", 5, 1, None),
    (ENTRY + ENTRY.replace('"a"', '"A"'), "duplicate-id", 5, 1, None),
    (ENTRY.replace('"a"', '"a/../b"'), "wrong-value", 2, 1, None),
    (ENTRY.replace('"a"', '"a//b"'), "wrong-value", 2, 1, None),
    (ENTRY.replace('"a"', '"a/ready"'), "wrong-value", 2, 1, None),
    (ENTRY.replace('"a"', f'"{"a" * 129}"'), "wrong-value", 2, 1, None),
    ('[[models]]\npath = "a.onnx"', "missing-key", 1, 3, None),
    (ENTRY.replace("a.onnx", "titels.onnx"), "missing-file", 3, 1, "near: titles.onnx"),
    (ENTRY.replace("a.onnx", "."), "file", 3, 1, None),
    (ENTRY.replace("a.onnx", "\\u0000"), "missing-file", 3, 1, None),
    ("[server]\n[server]", "syntax", 2, 8, "the same table or key stands here a second time; several models are several [[models]]"),
    ("[server\n", "syntax", 1, 8, None),
    ("[auth]", "conflict", 1, 2, "add [[auth.api_keys]] or [auth.jwt], or set enabled = false"),
    ("[auth]\nenabeld = false", "unknown-key", 2, 1, "did you mean `enabled`?"),
    ("auth = 1", "wrong-type", 1, 1, "write [auth], in single brackets"),
    ("[[auth.api_keys]]\nrole = 'user'", "missing-key", 1, 8, None),
    ("[[auth.api_keys]]\nkey = 'a-long-and-secret-key'\nkey_env = 'KEY'", "conflict", 1, 8, None),
    ("[[auth.api_keys]]\nkey_env = 'NO_SUCH_VARIABLE'", "missing-variable", 2, 1, None),
    ("[[auth.api_keys]]\nkey = 'a-long-and-secret-key'\nrole = 'root'", "wrong-value", 3, 1, None),
    ("[auth.api_keys]\nkey = 'a-long-and-secret-key'", "wrong-type", 1, 7, "each key begins with [[auth.api_keys]], in double brackets"),
    ("[auth.jwt]\nalgorithm = 'none'\nsecret = 'a secret of at least thirty-two bytes'", "wrong-value", 2, 1, None),
    ("[server]\nhost = '0.0.0.0'", "open", 2, 1,
     "add [[auth.api_keys]] or --api-key ROLE:KEY, or say --insecure where the network itself keeps strangers out"),
]


@pytest.mark.parametrize(("text", "code", "line", "column", "hint"), CASES)
def test_one_fault(
    text: str, code: str, line: int | None, column: int | None, hint: str | None, problems: Callable[..., tuple[Problem, ...]]
) -> None:
    (problem,) = problems(text)
    assert (problem.code, problem.line, problem.column, problem.hint) == (code, line, column, hint)
    assert problem.severity == "error"
    assert problem.file == "models.toml"


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ('{"defaults": {\n  "max_batchsize": 8}}', "unknown-key", 2, 3), ('{"a": 1, "a": 2}', "duplicate-key", None, None),
        ('{"server": {"lame_duck_secs": NaN}}', "out-of-range", 1, 13), ('{"server": }', "syntax", 1, 12), ("[]", "wrong-type", None, None),
        ('{"models": [{"id": "a", "path": "a.onnx"},\n {"id": "a", "path": "a.onnx"}]}', "duplicate-id", 2, 3),
    ],
)
def test_json(text: str, code: str, line: int | None, column: int | None, problems: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems(text, name="c.json")
    assert (problem.code, problem.line, problem.column) == (code, line, column)


@pytest.mark.parametrize(
    "text",
    [
        "[defaults]\nmax_batch_size = 20\nqueue_limit = 10", "[defaults]\nmax_batch_delay_ms = 100\nrequest_timeout_ms = 50",
        '[defaults]\ntarget_p99_ms = 5\nbatch_policy = "timer"', '[defaults]\nbatching = "off"\npad = { axis = 1 }',
        "[defaults]\nmax_loaded_models = 1\n" + ENTRY + "min_replicas = 2",
    ],
)
def test_warnings_let_the_daemon_start(text: str, problems: Callable[..., tuple[Problem, ...]]) -> None:
    assert [(problem.code, problem.severity) for problem in problems(text)] == [("conflict", "warning")]


def test_a_conflict_of_the_defaults_is_told_once(problems: Callable[..., tuple[Problem, ...]]) -> None:
    assert len(problems("[defaults]\nmin_replicas = 4\nmax_replicas = 2\n" + ENTRY)) == 1


def test_what_is_switched_off_is_accepted(problems: Callable[..., tuple[Problem, ...]]) -> None:
    assert problems("streams = []\n[auth]\nenabled = false\n[[auth.api_keys]]\nkey = 'a-key-of-some-length'") == ()
    assert problems('{"defaults": {}, "models": [], "streams": []}', name="c.json") == ()
    assert problems("") == problems("\ufeff") == problems("", name="c.json") == ()


def test_keys_on_the_command_line_are_not_repeated(problems: Callable[..., tuple[Problem, ...]]) -> None:
    for options in ({"api_keys": ("admin:hush",)}, {"jwt_secret": "hush"}):
        (problem,) = problems("", **options)
        assert (problem.code, problem.severity) == ("weak-secret", "warning")
        assert "hush" not in problem.render()


def test_environment(problems: Callable[..., tuple[Problem, ...]]) -> None:
    (wrong,) = problems("", {"WAKEFUL_PORT": "eighty"})
    assert (wrong.code, wrong.file) == ("wrong-type", "environment variable WAKEFUL_PORT")
    (link,) = problems("", {"WAKEFUL_PORT": "tcp://10.0.0.1:8080"})
    assert (link.code, link.severity) == ("ignored", "warning")
    (typo,) = problems("", {"WAKEFUL_MEMRY_LIMIT": "1"})
    assert typo.hint == "did you mean WAKEFUL_MEMORY_LIMIT?"
    (open_daemon,) = problems("", {"WAKEFUL_API_KEY": "hush"})
    assert "hush" not in open_daemon.render()


def test_files_that_cannot_be_read(tmp_path: Path, problems: Callable[..., tuple[Problem, ...]]) -> None:
    (tmp_path / "models.toml").touch()
    for config, code, hint in (
        (tmp_path, "file", "for a directory of models: --models-dir"),
        (tmp_path / "model.toml", "missing-file", "near: models.toml"),
    ):
        with pytest.raises(ConfigError) as raised:
            load(Options(config=config), {})
        assert [(problem.code, problem.hint) for problem in raised.value.problems] == [(code, hint)]
    with pytest.raises(ConfigError, match="does not exist"):
        load(Options(models_dir=tmp_path / "gone"), {})
    (tmp_path / "utf16.toml").write_text("[server]", encoding="utf-16")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(Options(config=tmp_path / "utf16.toml"), {})


def test_everything_at_once_as_people_see_it(problems: Callable[..., tuple[Problem, ...]]) -> None:
    text = '[defaults]\n# rows\nmax_batchsize = 8\n\n[[models]]\nid = "a"\n\tpath = "titels.onnx"\nqueue_limit = 4\nthreads = -1\n'
    with pytest.raises(ConfigError) as raised:
        raise ConfigError(problems(text, {"WAKEFUL_PORT": "x"}))
    assert str(raised.value).replace(str(Path.cwd()), "DIR") == """\
error[wrong-type]: `port` must be a whole number, got "x"
  --> environment variable WAKEFUL_PORT
error[unknown-key]: `max_batchsize` is not a setting of [defaults]
  --> models.toml:3:1
3 | max_batchsize = 8
  | ^^^^^^^^^^^^^
  hint: did you mean `max_batch_size`?
error[missing-file]: DIR/titels.onnx does not exist
  --> models.toml:7:2
7 | \tpath = "titels.onnx"
  | \t^^^^
  hint: near: titles.onnx
error[wrong-value]: `threads` must be a whole number from 1 to 1024, or "auto", got -1
  --> models.toml:9:1
9 | threads = -1
  | ^^^^^^^
warning[conflict]: max_batch_size 64 is above queue_limit 4: requests of one row can never fill a batch
  --> models.toml:8:1
8 | queue_limit = 4
  | ^^^^^^^^^^^
4 errors, 1 warning
"""[:-1]
    assert [problem.key for problem in raised.value.problems] == ["port", "defaults.max_batchsize", "models[0].path", "models[0].threads",
                                                                  "models[0].queue_limit"]


def test_a_quoted_line_gives_away_no_secret_and_no_escape(problems: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems('[auth.jwt]\nsecret = "hush\n')
    assert "hush" not in problem.render()
    (problem,) = problems('x = "\x1b[31m"')
    assert "\x1b" not in problem.render()


@given(st.text(max_size=200))
def test_any_text_gives_a_document_or_a_problem(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read_document(path)
    assert isinstance(found, Document) or found.render()


@given(st.text(max_size=12) | st.integers() | st.floats() | st.booleans() | st.none())
def test_sizes_are_in_range_or_refused(value: object) -> None:
    for parse in (parse_size, parse_limit):
        try:
            assert 0 <= parse(value) <= 2**60
        except ValueError as error:
            assert "must be" in str(error)  # noqa: PT017 -- refusing is one of the two right ends
