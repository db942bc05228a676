"""Message classes of the .proto files that lie beside, in a descriptor pool of their own.

The default pool belongs to the whole process, and who imports tritonclient's or the SDK's messages has files of the same packages in it.
`messages.binpb` is what protoc makes of the .proto files: `python -m wakeful.frontends.grpc.messages` writes it anew, which takes grpcio-tools.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from wakeful.errors import InvalidInput

HERE = Path(__file__).parent
COMPILED = HERE / "messages.binpb"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(COMPILED.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def message(name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def parse(kind: Any, encoded: bytes) -> Any:
    """The message of a class. Raises InvalidInput for what is none."""
    try:
        return kind.FromString(encoded)
    except DecodeError:
        raise InvalidInput(f"the message is no {kind.DESCRIPTOR.full_name}") from None


def compiled() -> bytes:
    """What protoc makes of the .proto files."""
    import tempfile  # noqa: PLC0415 - for the workshop only

    from grpc_tools import protoc  # type: ignore[import-untyped]  # noqa: PLC0415 - has no types; for the workshop only

    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "set"
        files = sorted(path.name for path in (HERE / "protos").glob("*.proto"))
        if protoc.main(["protoc", f"--proto_path={HERE / 'protos'}", f"--descriptor_set_out={made}", *files]):
            raise SystemExit("protoc has failed")
        return made.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compiled())
