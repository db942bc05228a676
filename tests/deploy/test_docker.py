"""The image and its compose file. No image is built here: what can be read of them is held against the program."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import running
from wakeful.cli.main import VERBS
from wakeful.config.load import Options, load
from wakeful.config.schema import OverrideTable

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
STAGE = DOCKERFILE.rpartition("\nFROM ")[2]
"""The last one, which is the image."""


def words(instruction: str) -> list[str]:
    """Arguments in JSON of an instruction of the image."""
    match = re.search(rf"^{instruction}.*?(\[.*\])$", STAGE, re.MULTILINE)
    assert match, instruction
    found: list[str] = json.loads(match[1])
    return found


def test_the_linter_finds_nothing() -> None:
    linter = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("needs hadolint")
    done = subprocess.run([linter, str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_it_runs_are_verbs() -> None:
    assert words("ENTRYPOINT") == ["wakeful"]
    assert words("CMD")[0] in VERBS


def test_a_daemon_that_takes_requests_is_healthy(tmp_path: Path) -> None:
    program, *arguments = words("HEALTHCHECK")
    assert program == "wakeful"
    command = [sys.executable, "-m", "wakeful", *arguments]
    with running(tmp_path, "--no-grpc") as daemon:
        assert subprocess.run(command, env=os.environ | {"WAKEFUL_URL": daemon.url}, check=False, timeout=60).returncode == 0
    with socket.socket() as taken:  # nobody listens on it, and nobody else can
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert subprocess.run(command, env=os.environ | {"WAKEFUL_URL": url}, check=False, timeout=60).returncode != 0


def test_its_variables_are_settings() -> None:
    names = set(re.findall(r"^\s*(?:ENV )?(WAKEFUL_\w+)=", STAGE, re.MULTILINE))
    assert names >= {"WAKEFUL_HOST", "WAKEFUL_MODELS_DIR", "WAKEFUL_CACHE_DIR"}
    assert {name.removeprefix("WAKEFUL_").lower() for name in names} <= set(OverrideTable.model_fields)


def test_nobody_is_root_in_it() -> None:
    assert re.search(r"^USER 10001:10001$", STAGE, re.MULTILINE)
    assert all(directory in STAGE for directory in words("VOLUME"))


def test_its_ports_are_the_daemons() -> None:
    server = load(Options(), {}).server
    assert f"EXPOSE {server.port} {server.grpc_port}\n" in STAGE


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def test_all_that_compose_names_is_there(compose: dict[str, Any]) -> None:
    build = compose["services"]["wakeful"]["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = re.sub(r"^\$\{\w+:-(.*?)\}", r"\1", volume).partition(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), source
            else:
                assert source in compose["volumes"]


def test_only_this_machine_reaches_what_compose_starts(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_monitoring_is_wanted_by_name(compose: dict[str, Any]) -> None:
    assert {name for name, service in compose["services"].items() if "profiles" not in service} == {"wakeful"}


def test_composes_daemon_has_the_time_and_the_settings_that_it_needs(compose: dict[str, Any], tmp_path: Path) -> None:
    wakeful = compose["services"]["wakeful"]
    variables = re.findall(r"(WAKEFUL_\w+)=(\S+)", STAGE) + list(wakeful["environment"].items())
    environ = {name: str(value) for name, value in variables} | {"WAKEFUL_MODELS_DIR": str(DOCKER / "models"), "HOME": str(tmp_path)}
    settings = load(Options(demo="--demo" in wakeful["command"]), environ)
    assert settings.warnings == ()
    assert {model.id for model in settings.models} >= {"digits"}
    assert int(wakeful["stop_grace_period"].rstrip("s")) > 2 * (settings.server.lame_duck + settings.server.grace)
    assert wakeful["read_only"]
    assert os.path.commonpath([str(settings.cache.directory), "/var/cache/wakeful"]) == "/var/cache/wakeful"
