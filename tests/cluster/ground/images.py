"""What the names of images mean here: nothing is pulled, a container is a command of this machine."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.brokers import free_port
from tests.cluster.ground.api import Object
from tests.cluster.ground.envoy import binary

WAKEFUL = (sys.executable, "-m", "wakeful")
PROGRAMS = {"wakeful": WAKEFUL, "python": (sys.executable,), "python3": (sys.executable,), "envoy": (binary(),)}
"""First words of commands that mean what is under test, wherever it lies."""
ENTRYPOINTS = {"wakeful": "wakeful", "python": "python", "envoy": "envoy"}
"""By a part of the image's name, the longest first."""
BREAKS_WITH = "broken"
"""An image with this in its tag fails at once: for rollouts that must not go on."""


class Network(NamedTuple):
    """What stands in for a network of the pod's own: an address, and ports for those that it has on its own loopback."""

    ip: str
    admin: int
    helper: int
    helper_grpc: int

    @classmethod
    def of(cls, ip: str) -> "Network":
        return cls(ip, free_port(), free_port(), free_port())

    def arguments(self, command: Sequence[str]) -> list[str]:
        """That make what would listen everywhere, or on loopback, listen there."""
        match command:
            case ["wakeful", "cluster", "controller", *_]:
                return ["--host", self.ip]
            case ["wakeful", "cluster", "gateway" | "bootstrap", *_]:
                ports = ("admin-port", self.admin), ("helper-port", self.helper), ("helper-grpc-port", self.helper_grpc)
                return ["--host", self.ip, *(word for option, port in ports for word in (f"--{option}", str(port)))]
            case ["wakeful", "cluster", "leave", *_]:
                return ["--admin-port", str(self.admin), "--helper-port", str(self.helper)]
            case ["envoy", *_]:
                return ["--use-dynamic-base-id"]
        return []


def command_of(container: Object, network: Network) -> list[str]:
    """`command` stands for the image's entry point, as in Kubernetes; `args` for what follows it."""
    image, arguments = container.get("image", ""), list(container.get("args") or ())
    if BREAKS_WITH in image.rpartition(":")[2]:
        return ["sh", "-c", f"echo image {image} does not start; exit 1"]
    if container.get("command"):
        return translated([*container["command"], *arguments], network)
    for part, entry in sorted(ENTRYPOINTS.items(), key=lambda item: -len(item[0])):
        if part in image:
            return translated([entry, *arguments], network)
    raise KeyError(f"no entry point is known for image {image!r}: give the container a command, or add it to {__name__}")


def variables_of(container: Object, network: Network) -> dict[str, str]:
    """As `Network.arguments`, for a daemon."""
    return {"WAKEFUL_HOST": network.ip} if "serve" in command_of(container, network)[:4] else {}


def translated(command: Sequence[str], network: Network | None = None) -> list[str]:
    """Without a network: of a command that has nothing to do with it."""
    return [*PROGRAMS.get(command[0], (command[0],)), *command[1:], *(network.arguments(command) if network else ())]
