"""The messages are those of the clients, number by number, and no other program's are in the way."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_health.v1 import health_pb2
from snoozeml._proto.snoozeml.v1 import inference_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from wakeful.frontends.grpc.messages import COMPILED, compiled, message

OURS = FileDescriptorSet.FromString(COMPILED.read_bytes())
THEIRS = {"inference": (service_pb2, model_config_pb2), "snoozeml.v1": (inference_pb2,), "grpc.health.v1": (health_pb2,)}
NAMES = [(file.package, one.name) for file in OURS.file for one in file.message_type]


def test_what_is_shipped_is_what_protoc_makes_of_the_files() -> None:
    assert FileDescriptorSet.FromString(compiled()) == OURS


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_fields_have_the_numbers_and_types_of_the_clients(package: str, name: str) -> None:
    [theirs] = [module.DESCRIPTOR.message_types_by_name[name] for module in THEIRS[package] if name in module.DESCRIPTOR.message_types_by_name]
    same(message(f"{package}.{name}").DESCRIPTOR, theirs)


def same(ours: object, theirs: object) -> None:
    fields = theirs.fields_by_name  # type: ignore[attr-defined]  # a descriptor
    for field in ours.fields:  # type: ignore[attr-defined]  # likewise
        their = fields[field.name]
        assert (field.number, field.type, field.is_repeated, field.has_presence) == (their.number, their.type, their.is_repeated, their.has_presence)
    for nested in ours.nested_types:  # type: ignore[attr-defined]  # likewise
        same(nested, theirs.nested_types_by_name[nested.name])  # type: ignore[attr-defined]  # likewise


def test_their_pool_has_nothing_of_ours() -> None:
    assert message("inference.ModelInferRequest").DESCRIPTOR.file.pool is not service_pb2.ModelInferRequest.DESCRIPTOR.file.pool
