"""One pod's life on a node: volumes, init containers, containers with probes and restarts, and an end with PreStop, SIGTERM and grace."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.ground import images, probes
from tests.cluster.ground.api import OFFLINE, Api, ApiError, Object, condition_of, now
from tests.cluster.ground.processes import LIFELINE
from tests.cluster.ground.volumes import NODE_IP, TMP, Files, NotYet, expanded, inherited, mounting

TICK = 0.05
RETRY_SECONDS = 0.5
OVERRUN_SECONDS = 2.0
"""What a kubelet gives a container whose PreStop took all of the grace."""
BACKOFF_SECONDS = (0.5, 8.0)
"""First and longest wait before a container that ended is started again; a real kubelet waits 10 s to 5 min."""


@dataclass(frozen=True)
class Node:
    """Where pods run."""

    api: Api
    name: str
    directory: Path
    claims: Path
    hosts: Path | None = None
    """Mounted over /etc/hosts."""
    env: dict[str, str] = field(default_factory=dict)
    """For each container, below what its manifest says."""


class Container:
    """A container's process, and what its probes say."""

    def __init__(self, node: Node, pod: "Pod", spec: Object) -> None:
        self.spec, self.name = spec, spec["name"]
        self._node, self._pod = node, pod
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = -1
        self.started_at = ""
        self.ended: Object | None = None
        """How its last life ended, as in a status."""
        self.probes: dict[str, probes.Probe] = {}
        self.restart_due = 0.0
        self._begun = 0.0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        return self.running and self.started and ("readinessProbe" not in self.probes or self.probes["readinessProbe"].good)

    @property
    def started(self) -> bool:
        return self.running and ("startupProbe" not in self.probes or self.probes["startupProbe"].good)

    def start(self, places: dict[str, Path], files: Files) -> None:
        env = self._node.env | files.variables(self.spec) | images.variables_of(self.spec, self._pod.network)
        command = [expanded(word, env) for word in images.command_of(self.spec, self._pod.network)]
        mounts = [(places[each["name"]] / each.get("subPath", ""), each["mountPath"]) for each in self.spec.get("volumeMounts") or ()]
        if temporary := [source for source, place in mounts if place == TMP]:
            env["TMPDIR"] = str(temporary[0])
            mounts.remove((temporary[0], TMP))
        if self._node.hosts:
            mounts.append((self._node.hosts, "/etc/hosts"))
        scratch = self._pod.directory / "scratch" / self.name
        with self._pod.log_path(self.name).open("ab") as log:
            self._process = subprocess.Popen(
                [*LIFELINE, *mounting(mounts, scratch), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=inherited() | {"HOSTNAME": self._pod.name} | env, cwd=self.spec.get("workingDir"),
            )
        self._pod.pid_path(self.name).write_text(str(self._process.pid))
        self._env = inherited() | env
        self.restarts += 1
        self.started_at, self._begun = now(), time.monotonic()
        self.probes = {kind: probes.Probe(self.spec[kind], ready=kind == "livenessProbe")
                       for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in self.spec}
        for probe in self.probes.values():
            probe.begin(self._begun)

    def look(self, *, leaving: bool) -> None:
        """Ask the probes that are due; a container that is not alive, or never came up, is ended."""
        for kind, probe in self.probes.items():
            wanted = not probe.good if kind == "startupProbe" else self.started and (kind == "readinessProbe" or not leaving)
            if not (wanted and self.running and probe.due(time.monotonic())):
                continue
            probe.answered(probe.ask(self.spec, self._pod.ip, self.inside), time.monotonic())
            if kind != "readinessProbe" and probe.said and not probe.good and not leaving:
                usual = self._pod.manifest["spec"].get("terminationGracePeriodSeconds", 30)
                self.end(grace=float(self.spec[kind].get("terminationGracePeriodSeconds", usual)))

    def inside(self, command: Sequence[str], seconds: float) -> bool:
        """Run a command where the container's mounts and variables are."""
        if not self.running:
            return False
        assert self._process is not None
        variables = [f"{name}={value}" for name, value in self._env.items()]
        entered = ["nsenter", "--mount", f"--target={self._process.pid}", "--", "env", "-i", *variables]
        return probes.run([*entered, *images.translated([expanded(word, self._env) for word in command], self._pod.network)], seconds)

    def end(self, grace: float) -> None:
        """PreStop, SIGTERM, and SIGKILL when the grace is over, which a forced delete may bring forward. Waits for it."""
        deadline = time.monotonic() + grace
        hook = (self.spec.get("lifecycle") or {}).get("preStop") if self.running else None
        if hook:
            hooked = threading.Thread(target=probes.act, args=(hook, self.spec, self._pod.ip, self.inside, grace), daemon=True)
            hooked.start()
            while hooked.is_alive() and self.running and time.monotonic() < self._pod.deadline(deadline):
                hooked.join(TICK)
        self._signal(signal.SIGTERM)
        if grace:
            deadline = max(deadline, time.monotonic() + OVERRUN_SECONDS)
        while self.running and time.monotonic() < self._pod.deadline(deadline):
            time.sleep(TICK)
        self.kill()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self.running:
            assert self._process is not None
            with suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(self._process.pid, number)
                else:
                    os.kill(self._process.pid, number)

    def reap(self) -> None:
        """Note how it ended, once, and when it may be started again."""
        if self._process is None or self._process.poll() is None:
            return
        code = self._process.returncode
        self.ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error",
                      "startedAt": self.started_at, "finishedAt": now()}
        self._process = None
        first, most = BACKOFF_SECONDS
        self.restart_due = time.monotonic() + min(first * 2**self.restarts, most)

    def status(self) -> Object:
        waiting = {"waiting": {"reason": "CrashLoopBackOff" if self.ended else "ContainerCreating"}}
        final = self._pod.over and self.ended is not None
        state: Object = {"running": {"startedAt": self.started_at}} if self.running else {"terminated": self.ended} if final else waiting
        last: Object = {"terminated": self.ended} if self.ended and not final else {}
        return {
            "name": self.name, "image": self.spec.get("image", ""), "imageID": "", "ready": self.ready, "started": self.started,
            "restartCount": max(self.restarts, 0), "state": state, "lastState": last,
        }


class Pod(threading.Thread):
    """A thread for each pod in each life."""

    def __init__(self, node: Node, manifest: Object, ip: str) -> None:
        metadata = manifest["metadata"]
        super().__init__(name=f"pod {metadata['name']}", daemon=True)
        self.manifest, self.ip = manifest, ip
        self.network = images.Network.of(ip)
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.directory = node.directory / self.uid
        self._node = node
        self._files = Files(node.api, manifest, self.directory, node.claims, ip)
        self.containers = [Container(node, self, spec) for spec in manifest["spec"]["containers"]]
        self.sidecars: list[Container] = []
        """Init containers that go on: started in their turn, ended after the others, the last one first."""
        self._leaving = threading.Event()
        self._deadline: float | None = None
        self._published: Any = None
        self._message = ""
        self.over = False

    def log_path(self, container: str) -> Path:
        return self._node.directory / f"{self.name}.{container}.log"

    def pid_path(self, container: str) -> Path:
        """A file with the process of the container's present life."""
        return self._node.directory / f"{self.name}.{container}.pid"

    def leave(self, grace: float) -> None:
        """It is being deleted; a second call may only shorten the time."""
        deadline = time.monotonic() + grace
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        self._leaving.set()

    def look_at(self, manifest: Object) -> None:
        """What others wrote into its status, as when its node was taken for lost, is written over."""
        published = self._published
        if published is not None and condition_of(manifest, "Ready")["status"] != str(_all_ready([*published[1], *published[2]])):
            self._published = None

    def deadline(self, own: float) -> float:
        """The earlier one of a container's own and, where it is leaving, the pod's with the 2 s that a PreStop may have overrun."""
        return own if self._deadline is None else min(own, self._deadline + OVERRUN_SECONDS)

    def run(self) -> None:
        try:
            self._live()
        finally:
            for container in (*self.containers, *self.sidecars):
                container.kill()
                container.reap()
            self.over = True
            self._publish("Succeeded")
            self._forget()

    def _live(self) -> None:
        places = self._prepared()
        if places is None:
            return
        while not self._leaving.is_set():
            for container in (*self.sidecars, *self.containers):
                self._keep(container, places)
            self._publish("Running")
            self._leaving.wait(TICK)
        for group in (self.containers, *([one] for one in reversed(self.sidecars))):
            grace = max((self._deadline or 0.0) - time.monotonic(), 0.0)
            ends = [threading.Thread(target=container.end, args=(grace,), daemon=True) for container in group]
            for end in ends:
                end.start()
            while any(end.is_alive() for end in ends):
                for container in (*self.sidecars, *self.containers):
                    container.look(leaving=True)
                self._publish("Running")
                time.sleep(TICK)

    def _keep(self, container: Container, places: dict[str, Path]) -> None:
        container.reap()
        if not container.running and time.monotonic() >= container.restart_due:
            self._start(container, places)
        container.look(leaving=False)

    def _prepared(self) -> dict[str, Path] | None:
        """Volumes and init containers; None: it is to leave before all that is done."""
        while not self._leaving.is_set():
            try:
                places = self._files.make()
                done = all(self._begun(spec, places) for spec in self.manifest["spec"].get("initContainers") or ())
                return places if done else None
            except (NotYet, ApiError, *OFFLINE) as error:
                self._say(f"waits: {error}")
                self._publish("Pending")
                self._leaving.wait(RETRY_SECONDS)
        return None

    def _begun(self, spec: Object, places: dict[str, Path]) -> bool:
        """An init container has ended well, or is a sidecar that has started; False: the pod is to leave before that."""
        container = Container(self._node, self, spec)
        stays = spec.get("restartPolicy") == "Always"
        if stays:
            self.sidecars.append(container)
        while not self._leaving.is_set():
            self._keep(container, places)
            if container.started if stays else (container.ended or {}).get("exitCode") == 0:
                return True
            self._leaving.wait(TICK)
        container.kill()
        return False

    def _start(self, container: Container, places: dict[str, Path]) -> None:
        try:
            container.start(places, self._files)
            self._say(f"{container.name} started on {self.ip}, restarts {container.restarts}")
        except (NotYet, KeyError, ApiError, *OFFLINE) as error:
            container.restart_due = time.monotonic() + RETRY_SECONDS
            self._say(f"{container.name} is not started: {error}")

    def _publish(self, phase: str) -> None:
        """Write the status if it has changed. What fails is written the next time."""
        statuses, beside = ([container.status() for container in group] for group in (self.containers, self.sidecars))
        ready = _all_ready([*statuses, *beside])
        if (phase, statuses, beside) == self._published:
            return
        said = {"PodScheduled": True, "Initialized": phase != "Pending", "ContainersReady": ready, "Ready": ready}
        conditions = [{"type": kind, "status": str(holds), "lastTransitionTime": now()} for kind, holds in said.items()]
        status = {
            "phase": phase, "podIP": self.ip, "podIPs": [{"ip": self.ip}], "hostIP": NODE_IP, "conditions": conditions, "containerStatuses": statuses,
            "initContainerStatuses": beside, "startTime": self.manifest["metadata"]["creationTimestamp"],
        }
        try:
            path = self._node.api.path_of(self.manifest | {"apiVersion": "v1", "kind": "Pod"}, "status")
            patch = {"metadata": {"uid": self.uid}, "status": status}
            self._node.api.call("PATCH", path, patch, "application/strategic-merge-patch+json")
        except ApiError as error:
            if error.code not in (404, 409):
                self._say(f"status refused: {error}")
        except OFFLINE:
            return
        self._published = (phase, statuses, beside)

    def _forget(self) -> None:
        """The pod's object goes last, whenever the API server can be told."""
        path = self._node.api.path_of(self.manifest | {"apiVersion": "v1", "kind": "Pod"})
        while True:
            try:
                self._node.api.delete(path, gracePeriodSeconds=0, preconditions={"uid": self.uid})
            except (ApiError, *OFFLINE):
                time.sleep(RETRY_SECONDS)
            else:
                self._say("gone")
                return

    def _say(self, text: str) -> None:
        if text != self._message:
            print(f"{time.time():.2f} {self.name}: {text}", flush=True)
            self._message = text


def _all_ready(statuses: Sequence[Object]) -> bool:
    return all(status["ready"] for status in statuses)
