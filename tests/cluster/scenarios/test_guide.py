"""docs/cluster.md, command by command. What an installation starts are processes of the ground here; its manifests have a test of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import TOKEN
from tests.docs.guide import GUIDE, blocks, missing

EXAMPLES = Path(__file__).parents[3] / "examples" / "cluster"
FIRST = "A Server"
"""Section with which the commands begin that are run."""
BLOCK_SECONDS = 300


def test_every_command_of_the_guide(cluster: Cluster) -> None:
    cluster.controller()
    gateway = cluster.gateway()
    cluster.usage("triton", cpu="10m")
    environment = os.environ | {
        "PATH": f"{_programs(cluster)}:{os.environ['PATH']}", "MODELS": f"file://{EXAMPLES}", "GATEWAY": gateway.grpc,
        "KUBECONFIG": str(cluster.plane.kubeconfig(TOKEN, cluster.directory / "guide.kubeconfig", cluster.namespace)),
    }
    page = GUIDE.read_text("utf-8")
    beginning = page.count("\n", 0, page.index(f"\n## {FIRST}\n"))
    for block in [block for block in blocks(page) if block.line > beginning]:
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", block.commands], capture_output=True, text=True, check=False, timeout=BLOCK_SECONDS,
            env=environment, cwd=cluster.directory,
        )
        where = f"docs/cluster.md, line {block.line}:\n{block.commands}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, where
        line = missing(block.expected, done.stdout)
        assert line is None, f"{line!r} was not printed by {where}"


def _programs(cluster: Cluster) -> Path:
    """What the reader has on his path."""
    directory = cluster.directory / "programs"
    directory.mkdir()
    commands = {"kubectl": cluster.plane.programs / "kubectl", "python3": sys.executable, "wakeful": f"{sys.executable} -m wakeful"}
    for name, command in commands.items():
        (directory / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (directory / name).chmod(0o755)
    return directory
