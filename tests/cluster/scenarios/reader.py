"""Somebody who follows docs/cluster.md with kubectl, wakeful and what else the page names."""

import os
import subprocess
import sys
from collections.abc import Iterable

from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import TOKEN
from tests.docs.guide import Block, missing

BLOCK_SECONDS = 300


class Reader:
    def __init__(self, cluster: Cluster, namespace: str, **environment: str) -> None:
        """`namespace`: of the kubeconfig, until a command changes it. `environment`: variables that the page names."""
        programs = cluster.directory / "programs"
        programs.mkdir()
        commands = {"kubectl": cluster.plane.programs / "kubectl", "python3": sys.executable, "wakeful": f"{sys.executable} -m wakeful"}
        for name, command in commands.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        kubeconfig = cluster.plane.kubeconfig(TOKEN, cluster.directory / "guide.kubeconfig", namespace)
        self._place = cluster.directory
        self.environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)} | environment

    def follow(self, blocks: Iterable[Block]) -> None:
        """Each must end well and print what the page says."""
        for block in blocks:
            done = subprocess.run(
                ["bash", "-e", "-u", "-o", "pipefail", "-c", block.commands], capture_output=True, text=True, check=False, timeout=BLOCK_SECONDS,
                env=self.environment, cwd=self._place,
            )
            where = f"docs/cluster.md, line {block.line}:\n{block.commands}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, where
            line = missing(block.expected, done.stdout)
            assert line is None, f"{line!r} was not printed by {where}"
