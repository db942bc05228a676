"""The units for systemd, as far as they can be judged where systemd does not run."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.cli.parser import WRONG_USE
from wakeful.config.load import Options, load

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = ("wakeful.service", "wakeful-user.service")


def service(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(SYSTEMD / name)
    return unit["Service"]


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_no_fault(tmp_path: Path, name: str) -> None:
    command = Path(sys.executable).parent / "wakeful"
    if not command.exists():
        pytest.skip("needs the command in the environment's bin directory")
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={command}", (SYSTEMD / name).read_text(), flags=re.MULTILINE)
    (tmp_path / "wakeful.service").write_text(text)
    manager = ["--user"] if "user" in name else ["--system"]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    done = subprocess.run(
        ["systemd-analyze", *manager, "--man=no", "verify", str(tmp_path / "wakeful.service")],
        capture_output=True, text=True, check=False, timeout=60, env=environment,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "wakeful" in line]
    assert ours == []


@pytest.mark.parametrize("name", UNITS)
def test_one_model_out_of_memory_ends_one_process(name: str) -> None:
    assert service(name)["OOMPolicy"] == "continue"


@pytest.mark.parametrize("name", UNITS)
def test_it_is_told_and_watched(name: str) -> None:
    unit = service(name)
    assert unit["Type"] == "notify"
    assert int(unit["WatchdogSec"]) > 0
    assert "HUP" in unit["ExecReload"]
    assert unit["KillMode"] == "mixed"
    assert unit["RestartPreventExitStatus"] == str(WRONG_USE)
    server = load(Options(), {}).server
    assert int(unit["TimeoutStopSec"]) > 2 * (server.lame_duck + server.grace)


def test_the_example_is_a_configuration_that_the_unit_can_use(tmp_path: Path) -> None:
    """Its directories are those that the unit makes."""
    text = (SYSTEMD / "models.toml").read_text()
    unit = service("wakeful.service")
    assert unit["ExecStart"].split()[-1] == "/etc/wakeful/models.toml"
    for base in ("/var/lib", "/var/cache"):
        text = text.replace(base, str(tmp_path) + base)
    for key, base in (("StateDirectory", "var/lib"), ("CacheDirectory", "var/cache")):
        for directory in unit[key].split():
            (tmp_path / base / directory).mkdir(parents=True, exist_ok=True)
    (tmp_path / "models.toml").write_text(text)
    settings = load(Options(config=tmp_path / "models.toml"), {})
    assert settings.warnings == ()
    assert settings.models_dir is not None
    assert settings.models_dir.is_dir()
    assert settings.cache.directory.is_dir()
