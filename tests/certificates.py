"""Certificates for this machine, from an authority that the tests trust."""

from pathlib import Path

import trustme

AUTHORITY = trustme.CA()


def issue(directory: Path) -> None:
    """A new one, into cert.pem and key.pem."""
    issued = AUTHORITY.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    directory.joinpath("cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
