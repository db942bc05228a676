"""Completion: the scripts know every verb and option, shells can read them, and names come from the daemon."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_client_verbs import UTF8, wakeful
from tests.daemon import Daemon, running, wait_until
from wakeful.cli.completion import SHELLS, line_of
from wakeful.cli.main import VERBS


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("completion")
    (directory / "wakeful").write_text(f'#!/bin/sh\nexec {sys.executable} -m wakeful "$@"\n', encoding="utf-8")
    (directory / "wakeful").chmod(0o755)
    for shell in SHELLS:
        done = wakeful("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        (directory / shell).write_text(done.stdout, encoding="utf-8")
    return {shell: directory / shell for shell in SHELLS}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("completion-daemon"), "--demo", "--no-grpc") as daemon:
        yield daemon


def run(scripts: dict[str, Path], *command: str, **env: str) -> str:
    path = f"{scripts['bash'].parent}:{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ | UTF8 | {"PATH": path} | env)
    assert done.stderr == ""
    return done.stdout


def in_bash(scripts: dict[str, Path], *words: str, **env: str) -> set[str]:
    """What is offered for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    code = f"source {scripts['bash']}; COMP_WORDS=(wakeful {line}); COMP_CWORD={len(words)}; _wakeful; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return set(run(scripts, "bash", "--norc", "-c", code, **env).split())


def test_every_verb_and_option_is_there(scripts: dict[str, Path]) -> None:
    for shell, script in scripts.items():
        text = script.read_text("utf-8")
        for verb, entry in VERBS.items():
            assert verb in text
            for option in line_of(verb, entry).options:
                assert all((flag.lstrip("-") if shell == "fish" else flag) in text for flag in option.flags), (shell, verb, option)


def test_bash_offers_verbs_options_values_and_nothing_else(scripts: dict[str, Path]) -> None:
    assert in_bash(scripts, "un") == {"unload", "unpin"}
    assert set(VERBS) <= in_bash(scripts, "")
    assert in_bash(scripts, "ps", "--s") == {"--sort"}
    assert in_bash(scripts, "ps", "--sort", "") == {"name", "state", "queue", "rate", "p99", "memory", "used"}
    assert in_bash(scripts, "serve", "--log-format", "") == {"text", "json"}
    assert in_bash(scripts, "completion", "") == set(SHELLS)
    assert in_bash(scripts, "cluster", "crd") == {"crds"}
    assert in_bash(scripts, "ps", "--timeout", "") == set()


def test_names_of_models(scripts: dict[str, Path], daemon: Daemon) -> None:
    """A daemon that does not answer at once is not waited for: on a busy machine the key is pressed again."""
    there = {"WAKEFUL_URL": daemon.url}
    daemon.call("POST", "/v1/models/digits/load")
    wait_until(lambda: in_bash(scripts, "explain", "d", **there) == {"demo-model", "digits"}, "both names are offered", 60)
    wait_until(lambda: in_bash(scripts, "unload", "", **there) == {"digits"}, "the one that is awake is offered", 60)
    assert in_bash(scripts, "load", "--dry", **there) == {"--dry-run"}
    done = wakeful("__models", "--url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_reads_it(scripts: dict[str, Path]) -> None:
    code = f"autoload -U compinit; compinit -D -u; source {scripts['zsh']}; print $_comps[wakeful]"
    assert run(scripts, "zsh", "-f", "-c", code) == "_wakeful\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_offers_the_same(scripts: dict[str, Path], daemon: Daemon, tmp_path: Path) -> None:
    def offered(line: str) -> set[str]:
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "WAKEFUL_URL": daemon.url}
        text = run(scripts, "fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C '{line}'", **home)
        return {one.split("\t")[0] for one in text.splitlines()}

    assert offered("wakeful un") == {"unload", "unpin"}
    assert offered("wakeful ps --sort m") == {"memory"}
    wait_until(lambda: {"demo-model", "digits"} <= offered("wakeful explain d"), "both names are offered", 60)
