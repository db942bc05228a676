"""What the controller takes for a gateway's Envoy: it says what a test has it say, acknowledges as a test tells it to, and routes nothing."""

import queue
import threading
from collections.abc import Iterator
from typing import Any, Self

import grpc
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
CLUSTERS, ENDPOINTS = (
    f"type.googleapis.com/envoy.config.{name}" for name in ("cluster.v3.Cluster", "endpoint.v3.ClusterLoadAssignment")
)


class Puppet:
    """A stream to the controller at the end of `channel`, under a gateway's name and with its token. It may take `seconds` in all."""

    def __init__(self, channel: grpc.Channel, node: str, seconds: float = 60.0, token: str = "") -> None:
        self.node = node
        self._channel = channel
        self._requests: Any = _Queue()
        call = channel.stream_stream(METHOD, DeltaDiscoveryRequest.SerializeToString, DeltaDiscoveryResponse.FromString)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._answers = call(iter(self._requests), timeout=seconds, metadata=metadata)

    def ask(self, url: str, *names: str) -> None:
        request = DeltaDiscoveryRequest(type_url=url, resource_names_subscribe=names)
        request.node.id = self.node
        self._requests.put(request)

    def next(self) -> DeltaDiscoveryResponse:
        answer: DeltaDiscoveryResponse = next(self._answers)
        return answer

    def answer(self, response: DeltaDiscoveryResponse, refusal: str = "") -> None:
        request = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        if refusal:
            request.error_detail.code, request.error_detail.message = 13, refusal
        self._requests.put(request)

    def close(self) -> None:
        self._answers.cancel()
        self._channel.close()


class Follower(threading.Thread):
    """Has a puppet do what an Envoy does: ask for all clusters and for their endpoints, and acknowledge; or refuse, while there is a `refusal`."""

    def __init__(self, puppet: Puppet) -> None:
        super().__init__(name=f"puppet {puppet.node}", daemon=True)
        self.refusal = ""
        self.refused = 0
        """Pushes, so far."""
        self.taken: dict[str, str] = {}
        """Versions of endpoints that it has acknowledged, by cluster."""
        self._puppet = puppet

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._puppet.close()
        self.join(10)

    def run(self) -> None:
        self._puppet.ask(CLUSTERS)
        while True:
            try:
                response = self._puppet.next()
            except (grpc.RpcError, StopIteration):
                return
            refusal = self.refusal
            self._puppet.answer(response, refusal)
            if refusal:
                self.refused += 1
            elif response.type_url == CLUSTERS:
                self._puppet.ask(ENDPOINTS, *(resource.name for resource in response.resources))
            else:
                self.taken |= {resource.name: resource.version for resource in response.resources}


class _Queue:
    """Iterates over what is put in."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._queue.get()
