"""One daemon for all tests that only ask, with a models directory of small peculiar models."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.grpc_libraries import without_native

MAX_BODY = 8_000_000

TYPES = [datatype for datatype in onnx_models.ELEMENT_TYPES if datatype != "BYTES"]
"""Served as `types/FP32` and so on: [N,2] of one datatype."""

LIBRARIES = {"pygrpc-native": "daemon", "grpcio": "grpcio_daemon"}

CONFIG = f"""
[server]
max_body = {MAX_BODY}

[[models]]
id = "org/ident"
path = "named.onnx"
description = "a name with a slash"

[[models]]
id = "merging"
path = "two_outputs.onnx"
batch_policy = "timer"
max_batch_delay_ms = 50

[[models]]
id = "narrow"
path = "narrow_queue.onnx"
batching = "off"
max_replicas = 1
queue_limit = 2
max_batch_size = 2

[[models]]
id = "limited"
path = "ten_at_most.onnx"
max_replicas = 1
queue_limit = 10
max_batch_size = 2

[[models]]
id = "hasty"
path = "hasty_limit.onnx"
request_timeout_ms = 1
max_batch_delay_ms = 0
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("contract") / "models"
    models.mkdir()
    for make in (
        onnx_models.all_types, onnx_models.constout, onnx_models.fixed1, onnx_models.gather10, onnx_models.hungry, onnx_models.ident,
        onnx_models.identdyn, onnx_models.log, onnx_models.optional_input, onnx_models.quotient, onnx_models.scalar, onnx_models.strid,
        onnx_models.two_inputs, onnx_models.two_outputs,
    ):
        make(models / f"{make.__name__}.onnx")
    for datatype in TYPES:
        onnx_models.typed(models / f"{datatype}.onnx", datatype)
    onnx_models.heavy(models / "external.onnx", 2, external=True)
    onnx_models.ident(models / "named.onnx")
    onnx_models.slow(models / "narrow_queue.onnx", 5000)
    onnx_models.slow(models / "ten_at_most.onnx", 5000)
    onnx_models.slow(models / "hasty_limit.onnx", 5000)
    onnx_models.ident(models / "asleep.onnx")  # nobody may load it
    (models / "broken.onnx").write_bytes((models / "ident.onnx").read_bytes()[:40])
    types = "".join(f'\n[[models]]\nid = "types/{datatype}"\npath = "{datatype}.onnx"\n' for datatype in TYPES)
    (models / "models.toml").write_text(CONFIG + types)
    return models


@pytest.fixture(scope="session")
def daemon(models: Path) -> Iterator[Daemon]:
    with running(models.parent / "daemon", "--models-dir", str(models)) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def grpcio_daemon(models: Path) -> Iterator[Daemon]:
    """The same where pygrpc-native is not installed."""
    with running(models.parent / "grpcio", "--models-dir", str(models), env=without_native(models.parent)) as daemon:
        yield daemon


@pytest.fixture(scope="session", params=LIBRARIES)
def served(request: pytest.FixtureRequest) -> Daemon:
    """A daemon for each library that serves gRPC."""
    daemon: Daemon = request.getfixturevalue(LIBRARIES[request.param])
    assert f'"grpc_library": "{request.param}"' in json.dumps(daemon.events(kind="ready"))
    return daemon
