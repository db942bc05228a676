"""docs/cluster.md, command by command. How it is installed and removed: test_install.py; here controller and gateway run beside the pods."""

from pathlib import Path

from tests.cluster.ground.cluster import Cluster
from tests.cluster.scenarios.reader import Reader
from tests.docs.guide import GUIDE, blocks, section

EXAMPLES = Path(__file__).parents[3] / "examples" / "cluster"
ELSEWHERE = ("Install", "Removing")
"""Sections that another scenario follows."""


def test_every_command_of_the_guide(cluster: Cluster) -> None:
    cluster.controller()
    gateway = cluster.gateway()
    cluster.usage("triton", cpu="10m")
    page = GUIDE.read_text("utf-8")
    followed = {block.line for title in ELSEWHERE for block in section(page, title)}
    reader = Reader(cluster, cluster.namespace, MODELS=f"file://{EXAMPLES}", GATEWAY=gateway.grpc)
    reader.follow(block for block in blocks(page) if block.line not in followed)
