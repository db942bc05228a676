"""The servers that Wakeful is compared with."""

from bench.peers.bentoml import BentoML
from bench.peers.litserve import LitServe
from bench.peers.mlserver import MLServer
from bench.peers.peer import Peer
from bench.peers.ray import RayServe
from bench.peers.triton import Triton

PEERS: dict[str, type[Peer]] = {peer.key: peer for peer in (Triton, MLServer, LitServe, BentoML, RayServe)}
"""By the name that --peers takes."""
