"""Each peer's own virtual environment, made by pip from its list of pinned packages, once."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.models import cache_directory
from bench.servers import ServerFailed

REQUIREMENTS = Path(__file__).parent
INSTALL_SECONDS = 1200.0
REASON_LINES = 4
"""Last lines of pip that say why it failed."""


class NotInstalled(ServerFailed):
    """A peer is not to be had on this machine. The text has its reason."""


def quiet(line: str) -> None:
    """Say nothing."""


def environment(peer: str, say: Callable[[str], None] = quiet) -> Path:
    """The directory of the peer's environment, which is made if it is not there, not finished, or made from another list or Python.

    Raises NotInstalled.
    """
    requirements = REQUIREMENTS / f"{peer}.txt"
    directory = cache_directory() / "peers" / peer
    # Written last, so that an installation that was interrupted is begun anew.
    marker, wanted = directory / "installed.txt", f"# Python {sys.version}\n{requirements.read_text()}"
    with _alone(directory.with_suffix(".lock")):
        if not marker.exists() or marker.read_text() != wanted:
            say(f"installing {peer} (once)")
            shutil.rmtree(directory, ignore_errors=True)
            _run(peer, [sys.executable, "-m", "venv", str(directory)])
            _run(peer, [
                str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
                "--prefer-binary", "-r", str(requirements),
            ])
            marker.write_text(wanted)
    return directory


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: two benches may want the same peer. The system lets go of the lock however a process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(peer: str, command: list[str]) -> None:
    foreign = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    inherited = {name: value for name, value in os.environ.items() if name not in foreign}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=inherited,
            timeout=INSTALL_SECONDS, check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{peer} could not be installed: not done within {INSTALL_SECONDS:.0f} s") from None
    except OSError as error:
        raise NotInstalled(f"{peer} could not be installed: {error.strerror}") from None
    if done.returncode:
        raise NotInstalled(f"{peer} could not be installed: {reason(done.stdout)}")


def reason(said: str) -> str:
    """What matters of the words of a program that failed: its errors if it names any, else its last lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return " ".join((errors or lines)[-REASON_LINES:]) or "no word on why"
