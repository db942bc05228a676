"""What requests over HTTP and over gRPC have in common on their way through the helper and back into Envoy."""

from dataclasses import dataclass

from wakeful.cluster.gateway.bootstrap import MODEL_HEADERS
from wakeful.cluster.gateway.catalog import Catalog
from wakeful.cluster.gateway.hold import Room
from wakeful.cluster.gateway.waker import Waker
from wakeful.errors import Unavailable

MODEL_HEADER = MODEL_HEADERS[0]
PASSES = "x-wakeful-passes"
"""How often a request has gone from the helper to Envoy: what comes back was not routed after all."""
MOST_PASSES = 3
LARGEST_BODY = 64 << 20
"""Bytes of a body that is read to find its model's name, and of one message over gRPC."""

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics")
"""Of the Open Inference Protocol, as daemons have them."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What both need."""

    envoy: str
    """HOST:PORT of its listener."""
    waker: Waker
    catalog: Catalog
    room: Room


def unguarded(server: str) -> Unavailable:
    """Nobody can say whether a caller may read."""
    return Unavailable(
        f"the Server {server} asks callers for keys, and none of its models is routed at the moment, so no pod of it can be asked about this caller",
        retry_after=5.0,
    )


def next_pass(model: str, passes: str | None) -> str:
    """For the header. Raises Unavailable for what goes in a circle."""
    count = int(passes) if passes is not None and passes.isdecimal() else 0
    if count >= MOST_PASSES:
        raise Unavailable(f"model {model} is routed, but this gateway has not heard of it; is it cut off from the controller?", retry_after=5.0)
    return str(count + 1)
