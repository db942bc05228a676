"""The certificate that the controller makes is one that an agent accepts, under the controller's names and no others."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

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


def test_another_pair_is_found_once_it_is_one() -> None:
    """A leader may stay longer than its certificate. Files are written one after the other, and for a moment are no pair."""
    first, second = (tls.make(tls.names_of("wakeful-controller", "ml"), datetime.now(UTC)) for _ in range(2))
    seen: list[tls.Pem | OSError] = [first, first._replace(key=second.key), OSError("no such file"), first, second]
    complaints: list[str] = []

    async def load() -> tls.Pem:
        now = seen.pop(0)
        if isinstance(now, OSError):
            raise now
        return now

    assert asyncio.run(tls.another(first, load, complaints.append, look=0.0)) == second
    assert [text.rpartition(": ")[2] for text in complaints] == ["the key is another certificate's", "no such file"]
