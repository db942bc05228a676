"""The servers that Wakeful is compared with."""

from collections.abc import Callable, Iterable

from bench.peers.bentoml import BentoML
from bench.peers.install import NotInstalled, environment, quiet
from bench.peers.litserve import LitServe
from bench.peers.mlserver import MLServer
from bench.peers.peer import Peer
from bench.peers.ray import RayServe, RayServeBehindHAProxy
from bench.peers.triton import Triton

PEERS: dict[str, type[Peer]] = {peer.key: peer for peer in (Triton, MLServer, LitServe, BentoML, RayServe, RayServeBehindHAProxy)}
"""By the name that --peers takes."""


def install_all(peers: Iterable[str], say: Callable[[str], None] = quiet) -> dict[str, str]:
    """Install all of them, before anything is measured. Those that cannot be had, with the reason."""
    reasons = {}
    for peer in peers:
        try:
            environment(PEERS[peer].packages or peer, say)
        except NotInstalled as error:
            reasons[peer] = str(error)
    return reasons
