"""Keys, tokens and TLS over gRPC: every method asks for the role of the HTTP route that does the same."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from snoozeml import AuthenticationError, PermissionDeniedError, SnoozeClient, create_jwt_token
from tritonclient.utils import InferenceServerException

from tests import onnx_models
from tests.certificates import AUTHORITY, issue
from tests.daemon import Daemon, running, wait_until
from tests.grpc_libraries import without_native
from wakeful.frontends.grpc.methods import table

KEYS = {"read_only": "reader-key-of-some-length", "inference": "caller-key-of-some-length", "admin": "boss-key-of-some-length"}
RANK = {role: rank for rank, role in enumerate(KEYS)}
SECRET = "a secret of at least thirty-two bytes"
CONFIG = f"""
[auth.jwt]
secret = "{SECRET}"

""" + "\n".join(f'[[auth.api_keys]]\nrole = "{role}"\nkey = "{key}"\n' for role, key in KEYS.items())
ROW = np.array([[1, 2, 3, 4]], np.float32)
REFUSALS = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


class Nothing:
    """No handler is called, so there is nothing behind the table."""

    def __getattr__(self, name: str) -> Any:
        return Nothing()

    def append(self, _: object) -> None:
        pass


METHODS = table(Nothing(), lambda _: None)  # type: ignore[arg-type]  # only looked at


@pytest.fixture(scope="module", params=["pygrpc-native", "grpcio"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("grpc")
    onnx_models.ident(directory / "m.onnx")
    (directory / "models.toml").write_text(CONFIG)
    env = without_native(directory) if request.param == "grpcio" else None
    with running(directory / "daemon", "--models-dir", str(directory), env=env) as daemon:
        yield daemon


def call(daemon: Daemon, path: str, kind: str, metadata: list[tuple[str, str]]) -> str:
    """The status of a call with an empty message."""
    with grpc.insecure_channel(daemon.grpc) as channel:
        try:
            if kind == "unary":
                channel.unary_unary(path)(b"", metadata=metadata, timeout=60)
            elif kind == "answers":
                next(channel.unary_stream(path)(b"", metadata=metadata, timeout=60))
            else:
                next(channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=60))
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_every_method_asks_for_its_role(daemon: Daemon, method: Any) -> None:
    """C51"""
    shown = [[("authorization", f"bEARER {key}")] for key in KEYS.values()] + [[("x-api-key", key)] for key in KEYS.values()]
    for metadata, role in zip(shown, [*KEYS, *KEYS], strict=True):
        got = call(daemon, method.path, method.kind, metadata)
        may = method.role is None or RANK[role] >= method.role - 1
        assert (got not in REFUSALS) if may else got == "PERMISSION_DENIED", (role, got)
    for stranger in ([], [("x-api-key", "wrong")], [("authorization", f"Basic {KEYS['admin']}")], [("x-api-key", KEYS["admin"] + "x")]):
        assert call(daemon, method.path, method.kind, stranger) == "UNAUTHENTICATED" or method.role is None


def test_roles_are_those_of_rest(daemon: Daemon) -> None:
    """The same verb, the same role."""
    roles = {method.path.rpartition("/")[2]: method.role.name.lower() if method.role else "anybody" for method in METHODS}
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    same = {
        "ModelInfer": "POST | `/v2/models/{model}[/versions/{version}]/infer`", "Infer": "POST | `/v1/models/{model}/infer`",
        "ServerLive": "GET | `/v2/health/live`", "ServerReady": "GET | `/v2/health/ready`", "ServerMetadata": "GET | `/v2`",
        "ModelReady": "GET | `/v2/models/{model}[/versions/{version}]/ready`", "ModelMetadata": "GET | `/v2/models/{model}[/versions/{version}]`",
        "ModelConfig": "GET | `/v2/models/{model}[/versions/{version}]/config`",
        "ModelStatistics": "GET | `/v2/models/{model}[/versions/{version}]/stats`", "RepositoryIndex": "POST | `/v2/repository/index`",
        "RepositoryModelLoad": "POST | `/v2/repository/models/{model}/load`",
        "RepositoryModelUnload": "POST | `/v2/repository/models/{model}/unload`",
        "Check": "GET | `/health/ready`",
    }
    for name, route in same.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| {route} |")]
        assert line.split(" | ")[2].strip("`") == roles.pop(name), name
    assert roles == {"ModelStreamInfer": "inference", "Watch": "anybody"}


def test_the_sdk_with_keys_and_tokens(daemon: Daemon) -> None:
    def client(*, api_key: str | None = None, token: str | None = None) -> SnoozeClient:
        return SnoozeClient(http_endpoint=daemon.url, grpc_endpoint=daemon.grpc, use_grpc=True, api_key=api_key, token=token)

    with client(api_key=KEYS["inference"]) as caller:
        assert np.array_equal(caller.infer("m", {"x": ROW})["y"], ROW)
    with client(token=create_jwt_token(SECRET)) as caller:
        assert np.array_equal(caller.infer("m", {"x": ROW})["y"], ROW)
    with client(api_key=KEYS["read_only"]) as reader, pytest.raises(PermissionDeniedError, match="this needs role inference"):
        reader.infer("m", {"x": ROW})
    now = int(time.time())
    for wrong in (create_jwt_token("another secret of at least thirty-two bytes"), create_jwt_token(SECRET, exp=now - 90, iat=now - 900), "a.b.c"):
        with client(token=wrong) as stranger, pytest.raises(AuthenticationError):
            stranger.infer("m", {"x": ROW})


def test_a_stranger_is_refused_before_the_model_is_looked_up_and_that_is_an_event(daemon: Daemon) -> None:
    assert call(daemon, "/inference.GRPCInferenceService/ModelMetadata", "unary", []) == "UNAUTHENTICATED"
    assert "a caller: " in daemon.log
    assert not [key for key in [*KEYS.values(), SECRET] if key in daemon.log]


def test_health_is_open(daemon: Daemon) -> None:
    with grpc.insecure_channel(daemon.grpc) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("library", ["pygrpc-native", "grpcio"])
def test_new_keys_count_from_the_next_call_on(tmp_path: Path, library: str) -> None:
    """On a channel that is open: SIGHUP."""
    onnx_models.ident(tmp_path / "m.onnx")
    config = tmp_path / "models.toml"
    config.write_text('[[auth.api_keys]]\nrole = "inference"\nkey = "the-old-key-of-some-length"\n')
    env = without_native(tmp_path) if library == "grpcio" else None
    with running(tmp_path / "daemon", "--models-dir", str(tmp_path), env=env) as daemon, triton.InferenceServerClient(daemon.grpc) as client:
        given = triton.InferInput("x", [1, 4], "FP32")
        given.set_data_from_numpy(ROW)
        old, new = {"x-api-key": "the-old-key-of-some-length"}, {"x-api-key": "the-new-key-of-some-length"}
        client.infer("m", [given], headers=old)
        config.write_text(config.read_text().replace("old", "new"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "other keys or tokens from now on" in daemon.log, "it has heard")
        client.infer("m", [given], headers=new)
        with pytest.raises(InferenceServerException, match="the key is not known"):
            client.infer("m", [given], headers=old)


@pytest.mark.parametrize(("options", "library"), [
    (["--host", "0.0.0.0", "--api-key", f"inference:{KEYS['inference']}"], "grpcio"),
    (["--host", "0.0.0.0", "--insecure"], "pygrpc-native"),
    (["--api-key", f"inference:{KEYS['inference']}"], "pygrpc-native"),
])
def test_strangers_are_refused_a_large_message_before_it_is_in_memory(tmp_path: Path, options: list[str], library: str) -> None:
    """C40, C51: pygrpc-native cannot, so it serves none but callers that are trusted."""
    options = [*options, "--max-body", "64KiB", "--log-format", "json"]
    with running(tmp_path / "daemon", *options) as daemon, grpc.insecure_channel(daemon.grpc) as channel:
        (ready,) = (line for line in map(json.loads, daemon.log.splitlines()) if line["kind"] == "ready")
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(bytes(1 << 20), timeout=60, compression=grpc.Compression.Gzip)
    assert ready["grpc_library"] == library
    without_key = library == "pygrpc-native" and "--insecure" not in options
    assert caught.value.code().name == ("UNAUTHENTICATED" if without_key else "RESOURCE_EXHAUSTED")


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Daemon]:
    issue(tmp_path)
    onnx_models.ident(tmp_path / "m.onnx")
    options = ["--models-dir", str(tmp_path), "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with running(tmp_path / "daemon", *options) as daemon:
        yield daemon


def test_where_there_is_a_certificate_grpc_speaks_tls(secure: Daemon, tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    AUTHORITY.cert_pem.write_to_path(str(authority))
    url = f"https://{secure.host}:{secure.port}"
    with SnoozeClient(http_endpoint=url, grpc_endpoint=secure.grpc, use_grpc=True, tls_ca_cert=authority) as client:
        assert np.array_equal(client.infer("m", {"x": ROW})["y"], ROW)
    with triton.InferenceServerClient(secure.grpc, ssl=True, root_certificates=str(authority)) as client:
        assert client.is_server_ready()
    with triton.InferenceServerClient(secure.grpc) as plain, pytest.raises(InferenceServerException):
        plain.is_server_ready(client_timeout=60)


def test_a_new_certificate_is_shown_to_new_connections(secure: Daemon, tmp_path: Path) -> None:
    def shown() -> bytes:
        import ssl

        host, _, port = secure.grpc.partition(":")
        return ssl.get_server_certificate((host, int(port))).encode()

    with ExitStack() as stack:
        credentials = grpc.ssl_channel_credentials(AUTHORITY.cert_pem.bytes())
        channel = stack.enter_context(grpc.secure_channel(secure.grpc, credentials))
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        live(b"", timeout=60)
        before = shown()
        issue(tmp_path)
        wait_until(lambda: "the certificate was renewed" in secure.log, "it was noticed")
        assert shown() != before
        live(b"", timeout=60)
