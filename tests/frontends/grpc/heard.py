"""A call whose caller is the test."""

from collections.abc import Callable

from wakeful.config.settings import Role
from wakeful.frontends.grpc.call import Call, Method
from wakeful.frontends.grpc.errors import Code, Metadata


class Heard(Call):
    """A call that keeps what becomes of it."""

    def __init__(self, handler: Callable[[Call, bytes], None], role: Role | None = Role.INFERENCE) -> None:
        super().__init__(Method("/m", role, "oip", handler, ""), [], None)
        self.answers: list[bytes] = []
        self.ended: tuple[Code, str, Metadata] | None = None

    def respond(self, message: bytes) -> None:
        self.answers.append(message)

    send = respond

    def end(self, code: Code, text: str, metadata: Metadata) -> None:
        self.ended = code, text, metadata
