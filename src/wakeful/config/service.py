"""What a service manager such as systemd tells a process in its environment: where it wants to hear of it, and how often."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

SERVICE_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Whom to tell what becomes of the daemon."""

    address: str | None = None
    """A datagram socket: a path, or an abstract name after "@". None: nobody wants to know."""
    watchdog: float | None = None
    """Seconds without a sign of life after which the process is ended; None: no sign is wanted of it."""


def service_settings(environ: Mapping[str, str], pid: int | None = None) -> ServiceSettings:
    """As sd_notify(3) and sd_watchdog_enabled(3) have it. What is meant for another process counts as absent. `pid`: our own if not given."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")) or len(address) < 2:
        return ServiceSettings()
    period, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    ours = not whose or whose == str(os.getpid() if pid is None else pid)
    wanted = ours and period.isdecimal() and int(period) > 0
    return ServiceSettings(address, int(period) / 1e6 if wanted else None)
