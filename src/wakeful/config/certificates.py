"""A certificate and its key, from files."""

import ssl
from pathlib import Path

REASONS = {
    "key values mismatch": "the key does not belong to the certificate",
    "no start line": "one of them has no certificate or key in PEM",
    "PEM lib": "one of them has no certificate or key in PEM",
}
"""What OpenSSL says, in its words and in ours."""


def context_of(certificate: Path, key: Path) -> ssl.SSLContext:
    """For servers, TLS 1.2 and newer. Raises OSError, in words, if a file cannot be read or the two are no certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        said = next((ours for theirs, ours in REASONS.items() if theirs in str(error)), str(error))
        raise OSError(f"{certificate} and {key}: {said}") from error
    return context


def _no_password() -> bytes:
    """Without it OpenSSL would ask at the terminal."""
    raise OSError("the key is encrypted; a daemon has nobody to ask for the password")
