"""Objects as a test reads them: each look asks the API server anew."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.ground.api import Api, Object, condition_of
from tests.cluster.ground.images import translated
from tests.daemon import alive, frozen, processes_below, sample
from wakeful.cluster.manifests import HTTP_PORT


class View:
    """An object that may be there or not."""

    def __init__(self, api: Api, path: str, title: str) -> None:
        self.api, self.path, self.name = api, path, title

    @property
    def object(self) -> Object | None:
        return self.api.get(self.path)

    @property
    def exists(self) -> bool:
        return self.object is not None

    @property
    def spec(self) -> Object:
        return dict((self.object or {}).get("spec") or {})

    @property
    def status(self) -> Object:
        return dict((self.object or {}).get("status") or {})

    def condition(self, kind: str) -> Object:
        """With `status` (True, False, Unknown), `reason` and `message`."""
        return condition_of(self.object, kind)

    def holds(self, kind: str) -> bool:
        return bool(self.condition(kind)["status"] == "True")

    @property
    def ready(self) -> bool:
        return self.holds("Ready")

    @property
    def target(self) -> int | None:
        """The count that was decided, as `status.scaling` has it."""
        found: int | None = (self.status.get("scaling") or {}).get("target")
        return found

    @property
    def desired(self) -> int:
        return int(self.status.get("desiredReplicas") or 0)

    @property
    def owner(self) -> str:
        """Who decides the count: HPA, Scheduler or User."""
        return str((self.status.get("scaling") or {}).get("owner", ""))

    @property
    def available(self) -> int:
        return int(self.status.get("availableReplicas") or 0)

    @property
    def placements(self) -> dict[str, str]:
        """State by pod."""
        return {placed["replica"]: placed["state"] for placed in self.status.get("placements") or ()}

    def __repr__(self) -> str:
        return f"{self.name}: {self.object}"


class PodView(View):
    """A pod, with its processes."""

    def __init__(self, api: Api, path: str, name: str, nodes: Path) -> None:
        super().__init__(api, path, name)
        self._nodes = nodes

    @property
    def uid(self) -> str:
        return str((self.object or {}).get("metadata", {}).get("uid", ""))

    @property
    def ip(self) -> str:
        return str(self.status.get("podIP", ""))

    @property
    def leaving(self) -> bool:
        return "deletionTimestamp" in (self.object or {}).get("metadata", {})

    @property
    def restarts(self) -> int:
        return sum(int(each["restartCount"]) for each in self.status.get("containerStatuses") or ())

    def pid(self, container: str = "wakeful") -> int:
        """Of the container's present process."""
        return int(self._file(container, "pid").read_text())

    def log(self, container: str = "wakeful") -> str:
        """Of all lives of a pod with this name."""
        return self._file(container, "log").read_text("utf-8", "replace")

    def models(self) -> set[str]:
        """Names of what its daemon has, by its own word."""
        asked = urllib.request.Request(f"http://{self.ip}:{HTTP_PORT}/v2/repository/index", b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return {one["name"] for one in json.load(answer)}

    def kill(self, container: str = "wakeful", number: int = signal.SIGKILL) -> None:
        """As when the kernel ends a process: the kubelet starts the container again, and the pod stays."""
        os.kill(self.pid(container), number)

    def run(self, *command: str, container: str = "wakeful", seconds: float = 60.0) -> str:
        """`kubectl exec`: what the command prints; it must end well."""
        pid = self.pid(container)
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        entered = ["nsenter", "--mount", f"--target={pid}", "--", "env", "-i", *filter(None, environment), *translated(command)]
        done = subprocess.run(entered, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, done
        return done.stdout

    def workers(self) -> list[int]:
        """Pids of the daemon's processes that have models."""
        return [pid for pid, role in processes_below(self.pid()).items() if role == "replica"]

    def told(self, kind: str, model: str = "") -> list[Object]:
        """Events of the daemon itself: the last few thousand."""
        with urllib.request.urlopen(f"http://{self.ip}:{HTTP_PORT}/v1/events?kind={kind}", timeout=10) as answer:
            events: list[Object] = json.load(answer)["events"]
        return [event for event in events if model in ("", event["model"].partition(":")[0])]

    @contextmanager
    def frozen(self, container: str = "wakeful") -> Iterator[None]:
        """Its process stands still for the time of a block."""
        with frozen(self.pid(container)):
            yield

    def metric(self, name: str, **labels: str) -> float:
        """A sample of its daemon's /metrics; 0 when there is none."""
        with urllib.request.urlopen(f"http://{self.ip}:{HTTP_PORT}/metrics", timeout=10) as answer:
            return sample(answer.read().decode(), name, **labels)

    @property
    def alive(self) -> bool:
        """Does a process of it run?"""
        return any(alive(int(path.read_text())) for path in self._nodes.glob(f"*/{self.name}.*.pid"))

    @property
    def line(self) -> str:
        thing = self.object
        if thing is None:
            return "gone"
        where = thing["spec"].get("nodeName", "on no node")
        return f"{self.ip} {where} {'ready' if self.ready else 'not ready'}{', leaving' if self.leaving else ''}, restarts {self.restarts}"

    def _file(self, container: str, kind: str) -> Path:
        """Of the last node that had it."""
        found: list[Path] = sorted(self._nodes.glob(f"*/{self.name}.{container}.{kind}"), key=lambda path: path.stat().st_mtime)
        assert found, f"container {container} of {self.name} was never started"
        return found[-1]
