"""Processes of the ground: each logs into a file, dies with whoever started it, and is signalled by its pid alone."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.daemon import freeze

LIFELINE = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command: the kernel ends it when the thread that started it ends, however that happens."""
STOP_SECONDS = 15.0
TAIL = 60
"""Lines of a log that a failed test shows."""


def missing_tools() -> str | None:
    """Why nothing here can run on this machine; None: it can."""
    absent = [tool for tool in ("setpriv", "unshare", "nsenter", "mount") if shutil.which(tool) is None]
    if absent:
        return f"no {', no '.join(absent)} (util-linux)"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "mount namespaces are not permitted here (root, or CAP_SYS_ADMIN): the volumes of pods cannot be mounted"
    return None


class Process:
    """A command that may be started again after it has ended, in the same place with the same log."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log_path = log
        self._command, self._env = (*LIFELINE, *command), os.environ | (env or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        assert not self.running, f"{self.name} runs already"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True)
        return self

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it in its own way, and by force where it does not. Returns the exit status."""
        process = self._process
        assert process is not None, f"{self.name} was never started"
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def freeze(self) -> None:
        """It stands still until `thaw`: its connections stay open, and nothing is answered."""
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        """As `tests.daemon.wait_until`, and at once an error if the process ends."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.running, f"{self.name} ended before {what}:\n{self.tail()}"
            assert time.monotonic() < end, f"waited {seconds:g} s in vain until {what}:\n{self.tail()}"
            time.sleep(0.02)

    def tail(self, lines: int = TAIL) -> str:
        return tail_of(self.log_path, lines)


def tail_of(path: Path, lines: int = TAIL) -> str:
    """The last lines of a log, which may not be there yet."""
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:]) if path.exists() else ""
