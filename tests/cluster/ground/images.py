"""What the names of images mean here: nothing is pulled, a container is a command of this machine."""

import sys
from collections.abc import Sequence

from tests.cluster.ground.api import Object

WAKEFUL = (sys.executable, "-m", "wakeful")
PROGRAMS = {"wakeful": WAKEFUL, "python": (sys.executable,), "python3": (sys.executable,)}
"""First words of commands that mean what is under test, wherever it lies."""
ENTRYPOINTS = {"wakeful": WAKEFUL, "python": (sys.executable,), "envoy": ("envoy",)}
"""By a part of the image's name, the longest first."""
BREAKS_WITH = "broken"
"""An image with this in its tag fails at once: for rollouts that must not go on."""


def command_of(container: Object) -> list[str]:
    """`command` stands for the image's entry point, as in Kubernetes; `args` for what follows it."""
    image, arguments = container.get("image", ""), list(container.get("args") or ())
    if BREAKS_WITH in image.rpartition(":")[2]:
        return ["sh", "-c", f"echo image {image} does not start; exit 1"]
    if container.get("command"):
        return [*translated(container["command"]), *arguments]
    for part, entry in sorted(ENTRYPOINTS.items(), key=lambda item: -len(item[0])):
        if part in image:
            return [*entry, *arguments]
    raise KeyError(f"no entry point is known for image {image!r}: give the container a command, or add it to {__name__}")


def variables_of(container: Object, ip: str) -> dict[str, str]:
    """What stands in for a network of the pod's own: a daemon that would listen everywhere listens on the pod's address."""
    return {"WAKEFUL_HOST": ip} if "serve" in command_of(container)[:4] else {}


def translated(command: Sequence[str]) -> list[str]:
    return [*PROGRAMS.get(command[0], (command[0],)), *command[1:]]
