"""Probes and hooks of a container, done as a kubelet does them."""

import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

from tests.cluster.ground.api import Object

Inside = Callable[[Sequence[str], float], bool]
"""Runs a command in the container for at most so many seconds: did it end well?"""

EAGER_SECONDS = 0.2
"""Between two readiness or startup probes of a container that is not ready: kubelets are allowed to ask more often than `periodSeconds` then."""


class Probe:
    """One probe of one container: when it is due, and what the last ones said."""

    def __init__(self, wanted: Object, ready: bool) -> None:
        self._wanted = wanted
        self.good = ready
        """What counts, by the thresholds."""
        self.said = False
        """It has had an answer that counts."""
        self._row = 0
        self._last = ready
        self._due = 0.0

    def begin(self, now: float) -> None:
        self._due = now + float(self._wanted.get("initialDelaySeconds", 0))

    def due(self, now: float) -> bool:
        return now >= self._due

    def answered(self, good: bool, now: float) -> None:
        self._row = self._row + 1 if good == self._last else 1
        self._last = good
        threshold = int(self._wanted.get("successThreshold", 1)) if good else int(self._wanted.get("failureThreshold", 3))
        if self._row >= threshold:
            self.good, self.said = good, True
        period = float(self._wanted.get("periodSeconds", 10))
        self._due = now + (period if self.good else min(period, EAGER_SECONDS))

    def ask(self, container: Object, ip: str, inside: Inside) -> bool:
        return act(self._wanted, container, ip, inside, float(self._wanted.get("timeoutSeconds", 1)))


def act(wanted: Object, container: Object, ip: str, inside: Inside, seconds: float) -> bool:
    """An httpGet, tcpSocket, grpc, sleep or exec: did it go well within these seconds?"""
    if "exec" in wanted:
        return inside(wanted["exec"]["command"], seconds)
    if "sleep" in wanted:
        return inside(["sleep", str(wanted["sleep"]["seconds"])], seconds)
    if "httpGet" in wanted:
        get = wanted["httpGet"]
        scheme, host = get.get("scheme", "HTTP").lower(), get.get("host") or ip
        return _get(f"{scheme}://{host}:{port_of(container, get['port'])}{get.get('path', '/')}", get.get("httpHeaders") or (), seconds)
    socketed = wanted.get("tcpSocket") or wanted.get("grpc") or {}
    try:
        socket.create_connection((ip, port_of(container, socketed["port"])), seconds).close()
    except OSError:
        return False
    return True


def port_of(container: Object, port: int | str) -> int:
    """Ports may be named."""
    if isinstance(port, int):
        return port
    return int(next((each["containerPort"] for each in container.get("ports") or () if each.get("name") == port), port))


def _get(url: str, headers: Sequence[Object], seconds: float) -> bool:
    request = urllib.request.Request(url, headers={each["name"]: each["value"] for each in headers})
    context = ssl._create_unverified_context() if url.startswith("https") else None  # as kubelets do: probes check no certificate
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
            return bool(answer.status < 400)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def run(command: Sequence[str], seconds: float) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=max(seconds, 0.01), check=False).returncode == 0
    except (subprocess.TimeoutExpired, OSError):
        return False
