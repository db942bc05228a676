"""gRPC's standard health service. To ask for health is no use of a model, and takes no key."""

from wakeful.engine import Condition
from wakeful.errors import NotFound
from wakeful.frontends.grpc.call import Call
from wakeful.frontends.grpc.messages import message, parse

Request, Response = message("grpc.health.v1.HealthCheckRequest"), message("grpc.health.v1.HealthCheckResponse")

SERVICES = ("", "inference.GRPCInferenceService", "snoozeml.v1.InferenceService")


class Health:
    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._watching: set[Call] = set()
        condition.listeners.append(self._tell)

    def check(self, call: Call, encoded: bytes) -> None:
        service = _service(encoded)
        if service not in SERVICES:
            raise NotFound(f"there is no service {service!r}")
        call.respond(self._status())

    def watch(self, call: Call, encoded: bytes) -> None:
        """The status now, and whenever it changes. A service that is not known may come, says the standard, so its watcher is left waiting."""
        if _service(encoded) not in SERVICES:
            call.send(Response(status="SERVICE_UNKNOWN").SerializeToString())
            return
        self._watching.add(call)
        call.on_leaving = lambda: self._watching.discard(call)
        call.send(self._status())

    def _tell(self) -> None:
        for call in self._watching:
            call.send(self._status())

    def _status(self) -> bytes:
        encoded: bytes = Response(status="SERVING" if self._condition.ready else "NOT_SERVING").SerializeToString()
        return encoded


def _service(encoded: bytes) -> str:
    service: str = parse(Request, encoded).service
    return service
