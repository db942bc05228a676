"""The servers that Wakeful is compared with."""

from bench.peers.peer import Peer
from bench.peers.triton import Triton

PEERS: dict[str, type[Peer]] = {peer.key: peer for peer in (Triton,)}
"""By the name that --peers takes."""
