"""What is done to the daemon while it serves, one after the other in an order that the seed decides."""

import os
import random
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests import onnx_models
from tests.daemon import Daemon
from tests.faults.channels import borrowed
from tests.faults.disks import fill
from wakeful.runtime.messages import Done, Hello, Refused, encode

BYSTANDER = "bystander"
VICTIMS = ("victim-1", "victim-2", "large")


@dataclass
class Stage:
    """The daemon and its files. Nobody touches the bystander, whose process is `spared`."""

    daemon: Daemon
    directory: Path
    spared: set[int]
    rng: random.Random
    disk: Path | None = None
    """The cache's, if it is a small one of its own."""

    def victims(self) -> list[int]:
        return [pid for pid in self.daemon.replicas() if pid not in self.spared]

    def signal_one(self, number: int) -> str:
        """Send a signal to a replica of a victim."""
        if not (pids := self.victims()):
            return "nobody was there"
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(pids), number)
        return ""

    def tell(self, method: str, path: str) -> None:
        """An administrator's call, that may take as long as a model needs to finish; nobody waits for it here."""
        threading.Thread(target=self._tell, args=(method, path), daemon=True).start()

    def _tell(self, method: str, path: str) -> None:
        with suppress(OSError, ValueError):
            self.daemon.call(method, path, {} if "/v2/" in path else None)


NONSENSE = (b"\xc1", encode(Hello(1)), encode(Done(10**9, 0.0, ())), encode(Refused("unavailable", "no")))

Fault = Callable[[Stage], str]
"""Returns why it could not be done; empty if it was."""


def kill(stage: Stage) -> str:
    return stage.signal_one(signal.SIGKILL)


def segfault(stage: Stage) -> str:
    return stage.signal_one(signal.SIGSEGV)


def freeze(stage: Stage) -> str:
    """For good: the daemon has to find out."""
    return stage.signal_one(signal.SIGSTOP)


def hiccup(stage: Stage) -> str:
    """For half a second."""
    if not (pids := stage.victims()):
        return "nobody was there"
    pid = stage.rng.choice(pids)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
    return ""


def kill_all_at_once(stage: Stage) -> str:
    for pid in stage.victims():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return ""


def kill_nursery(stage: Stage) -> str:
    for pid, role in stage.daemon.children().items():
        if role == "nursery":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return ""


def freeze_nursery(stage: Stage) -> str:
    """For good, as with `freeze`."""
    for pid, role in stage.daemon.children().items():
        if role == "nursery":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    return ""


def talk_nonsense(stage: Stage) -> str:
    """Say in the name of a replica what it would never say."""
    if not (pids := stage.victims()):
        return "nobody was there"
    try:
        with borrowed(stage.rng.choice(pids)) as channel:
            channel.send(stage.rng.choice(NONSENSE))
    except PermissionError as error:
        return str(error)
    except (OSError, IndexError):
        return "it was gone"
    return ""


def squeeze_descriptors(stage: Stage) -> str:
    """For half a second, there are hardly any more."""
    pid = stage.daemon.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + stage.rng.randrange(8), before[1]))
    time.sleep(0.5)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    return ""


def fill_disk(stage: Stage) -> str:
    """The cache's, for a moment."""
    if stage.disk is None:
        return "there was no disk to fill"
    ballast = fill(stage.disk)
    time.sleep(stage.rng.random())
    ballast.unlink(missing_ok=True)
    return ""


def unload(stage: Stage) -> str:
    stage.tell("POST", f"/v2/repository/models/{stage.rng.choice(VICTIMS)}/unload")
    return ""


def load(stage: Stage) -> str:
    stage.tell("POST", f"/v2/repository/models/{stage.rng.choice(VICTIMS)}/load")
    return ""


def replace_file(stage: Stage) -> str:
    """As people should: written beside it, then renamed."""
    path = stage.directory / "victim-1.onnx"
    onnx_models.slow(path.with_suffix(".new"), stage.rng.choice((100, 200, 300)))
    path.with_suffix(".new").rename(path)
    stage.tell("POST", "/v1/models/refresh")
    return ""


def break_file(stage: Stage) -> str:
    """As people should not: half of it is there for a while, and then it is mended."""
    path = stage.directory / "victim-2.onnx"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    stage.tell("POST", "/v1/models/refresh")
    time.sleep(stage.rng.random())
    path.write_bytes(whole)
    stage.tell("POST", "/v1/models/refresh")
    return ""


def remove_file(stage: Stage) -> str:
    path = stage.directory / "large.onnx"
    path.rename(path.with_suffix(".away"))
    time.sleep(stage.rng.random())
    path.with_suffix(".away").rename(path)
    return ""


def wipe_cache(stage: Stage) -> str:
    """Prepared copies and what was learnt are gone, some of them while they are mapped."""
    shutil.rmtree(stage.daemon.directory / "cache", ignore_errors=True)
    return ""


def reload(stage: Stage) -> str:
    write_configuration(stage.directory, stage.rng.choice((2, 8, 64)))
    stage.daemon.process.send_signal(signal.SIGHUP)
    return ""


def reload_nonsense(stage: Stage) -> str:
    path = stage.directory / "models.toml"
    whole = path.read_bytes()
    path.write_text("[[models]]\nid = ")
    stage.daemon.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    path.write_bytes(whole)
    return ""


FAULTS: tuple[Fault, ...] = (
    kill, segfault, freeze, hiccup, kill_all_at_once, kill_nursery, freeze_nursery, talk_nonsense, squeeze_descriptors, fill_disk, unload, load,
    replace_file, break_file, remove_file, wipe_cache, reload, reload_nonsense,
)

_CONFIGURATION = """
[server]
shutdown_grace_secs = 20

[defaults]
idle_timeout_secs = 2
min_residency_secs = 0.5
request_timeout_ms = 10000
load_timeout_secs = 20
memory_limit = "2GB"

[[models]]
id = "bystander"
path = "bystander.onnx"
replicas = 1
pinned = true

[[models]]
id = "victim-1"
path = "victim-1.onnx"
max_replicas = 3
max_batch_size = {most}

[[models]]
id = "victim-2"
path = "victim-2.onnx"
max_replicas = 2

[[models]]
id = "large"
path = "large.onnx"
"""


def write_configuration(directory: Path, most: int) -> Path:
    new = directory / "models.toml.new"
    new.write_text(_CONFIGURATION.format(most=most))
    return new.rename(directory / "models.toml")


def make_models(directory: Path) -> None:
    onnx_models.slow(directory / "bystander.onnx", 50)
    onnx_models.slow(directory / "victim-1.onnx", 200)
    onnx_models.ident(directory / "victim-2.onnx")
    onnx_models.weighty(directory / "large.onnx", 32)
