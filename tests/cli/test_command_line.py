"""The command as a person types it: help, options, exit statuses, and what it says when something is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful import __version__
from wakeful.cli.main import VERBS, main
from wakeful.cli.options import add_options, options_of
from wakeful.cli.parser import Parser
from wakeful.config.schema import OverrideTable

HEAVY = ("numpy", "pydantic", "asyncio", "uvloop", "onnxruntime")


def wakeful(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wakeful", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=os.environ | env, stdin=subprocess.DEVNULL)


def test_version() -> None:
    for arguments in (["--version"], ["version"]):
        done = wakeful(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_help_names_every_verb() -> None:
    done = wakeful("--help")
    assert done.returncode == 0
    assert all(f"wakeful {verb} " in done.stdout for verb in VERBS)


def test_help_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["help", "ps"], ["help", "config", "show"]):
        pages = []
        for arguments in (asked, [*asked[1:], "--help"]):
            with pytest.raises(SystemExit) as left:
                main(arguments, 0.0)
            assert left.value.code == 0
            pages.append(capsys.readouterr().out)
        assert pages[0] == pages[1]
        assert pages[0].startswith(f"usage: wakeful {' '.join(asked[1:])} ")
    assert main(["help", "config"], 0.0) == 0
    assert "wakeful config schema" in capsys.readouterr().out
    assert main(["help", "nothing"], 0.0) == 2
    assert "wakeful has no verb nothing" in capsys.readouterr().err


def test_no_verb_is_wrong_use() -> None:
    done = wakeful()
    assert (done.returncode, done.stdout) == (2, "")
    assert "wakeful serve --demo" in done.stderr


def test_unknown_verb_and_option(tmp_path: Path) -> None:
    done = wakeful("server")
    assert done.returncode == 2
    assert "did you mean serve?" in done.stderr
    assert "did you mean ps?" in wakeful("list").stderr
    assert "there are serve, ps" in wakeful("fetch").stderr
    done = wakeful("serve", str(tmp_path))
    assert done.returncode == 2
    assert f"did you mean --models-dir {tmp_path}?" in done.stderr
    (tmp_path / "models.toml").touch()
    assert f"did you mean --config {tmp_path}/models.toml?" in wakeful("serve", str(tmp_path / "models.toml")).stderr
    assert f"did you mean --models-dir {tmp_path}?" in wakeful("check", "--port", "1", "a.toml", str(tmp_path)).stderr
    done = wakeful("serve", "--prot", "1")
    assert done.returncode == 2
    assert "did you mean --port?" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    """Half a second of imports would make every look at the help feel slow."""
    code = f"import sys, wakeful.cli.main as m; m.main(['--help'], 0.0); print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_verbs_help_does_not_import_the_daemon() -> None:
    code = "import sys; from wakeful.cli.main import main\ntry: main(['serve', '--help'], 0.0)\nfinally: print('wakeful.app' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_every_key_of_the_schema_is_an_option_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"], 0.0)
    page = " ".join(capsys.readouterr().out.split())
    for key, field in OverrideTable.model_fields.items():
        assert f"--{key.replace('_', '-')}" in page
        assert (field.description or "?").replace("`", "") in page.replace("`", "")


def test_options_reach_the_configuration() -> None:
    parser = Parser("wakeful serve", "")
    add_options(parser)
    arguments = parser.parse([
        "--host", "::1", "--port", "0", "--models-dir", "m", "--grpc-port", "9", "--no-grpc", "--demo", "--config", "c.toml", "--api-key", "a:b",
        "--api-key", "c:d", "--max-body", "1MiB", "--log-requests", "--keep-alive-secs=2.5",
    ])
    options = options_of(arguments)
    assert (options.host, options.no_grpc, options.demo, options.api_keys, options.config) == ("::1", True, True, ("a:b", "c:d"), Path("c.toml"))
    assert (options.max_body, options.log_requests, options.jwt_secret) == ("1MiB", True, None)


def test_all_mistakes_are_told_at_once_before_anything_listens() -> None:
    done = wakeful("serve", "--port", "x", "--api-key", "boss:a-secret-that-nobody-sees", "--memory-limit", "plenty")
    assert (done.returncode, done.stdout) == (2, "")
    assert "3 errors" in done.stderr
    assert 'the role must be "read_only", "inference" or "admin"' in done.stderr
    assert "nobody-sees" not in done.stderr


def test_check_answers_with_its_status(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[defaults]\nmax_batchsize = 8\n", encoding="utf-8")
    done = wakeful("check", str(file))
    assert done.returncode == 1
    assert "did you mean `max_batch_size`?" in done.stdout
    file.write_text("[defaults]\nmax_batch_size = 8\n", encoding="utf-8")
    done = wakeful("check", str(file), "--demo", WAKEFUL_HSOT="1")
    assert done.returncode == 0
    assert "did you mean WAKEFUL_HOST?" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 models, no error: demo-model, digits"


def test_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["serve"], 0.0) == 2
    assert capsys.readouterr().err.startswith("error: wakeful runs on Linux only, and this is darwin")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m wakeful serve --help | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] in ("0", "141")
    assert "Traceback" not in done.stderr
