"""The certificate that the controller makes is one that an agent accepts, under the controller's names and no others."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from wakeful.cluster.controller import tls


@pytest.mark.parametrize(
    ("name", "accepted"), [("wakeful-controller", True), ("wakeful-controller.ml.svc", True), ("127.0.0.1", True), ("stranger", False)]
)
def test_the_names_of_the_certificate(tmp_path: Path, name: str, accepted: bool) -> None:
    pem = tls.make(tls.names_of("wakeful-controller", "ml"), datetime.now(UTC))
    for part, text in pem._asdict().items():
        (tmp_path / part).write_bytes(text)
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(tmp_path / "authority"))
    server_side.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=name)
    error: ssl.SSLError | None = None
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as failed:
                error = error or failed
    assert (error is None) == accepted
    assert (pem.expires() - datetime.now(UTC)).days > 3640


def test_another_pair_is_shown_to_who_connects_after_it_has_come() -> None:
    """A leader may stay longer than its certificate. What is no pair is told of, and not shown."""
    asyncio.run(_another_comes())


async def _another_comes() -> None:
    first, second = (tls.make(tls.names_of("wakeful-controller", "ml"), datetime.now(UTC)) for _ in range(2))
    at_hand, complaints = [first], asyncio.Queue[str]()

    async def load() -> tls.Pem:
        return at_hand[0]

    shown = tls.Shown(load, complaints.put_nowait, look=0.01)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", await shown.credentials())
    await server.start()
    looking = asyncio.create_task(shown.run())
    try:
        await _connect(port, first)
        at_hand[0] = first._replace(key=second.key)
        assert "another certificate's" in await asyncio.wait_for(complaints.get(), 10)
        await _connect(port, first)
        at_hand[0] = second
        await _connect(port, second)
    finally:
        looking.cancel()
        await server.stop(0)


async def _connect(port: int, pem: tls.Pem) -> None:
    """Until somebody who trusts this one's authority alone comes through."""
    options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(pem.authority), options) as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
