"""The systemd unit that we run in, if any, and what it says about memory."""

import subprocess
from typing import NamedTuple

ANSWER_SECONDS = 2.0


class Unit(NamedTuple):
    """A service of the system's manager, or of one user's."""

    name: str
    """With its suffix: "wakeful.service"."""
    user: bool


def unit_of(path: str) -> Unit | None:
    """The service that a path of a control group stands for; None for any other group."""
    above, _, name = path.rpartition("/")
    return Unit(name, "/user@" in above) if name.endswith(".service") else None


def oom_policy(unit: Unit, command: str = "systemctl") -> str | None:
    """OOMPolicy of a unit that runs: continue, stop or kill. None where systemd cannot be asked. Blocks, for two seconds at most."""
    manager = ["--user"] if unit.user else []
    try:
        done = subprocess.run(
            [command, *manager, "show", "--property=OOMPolicy", "--value", unit.name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
