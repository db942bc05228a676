"""The controller's certificate: made once by whoever leads first, kept in a Secret, and vouched for by a ConfigMap that agents and gateways mount.

The authority that signs it is made for this one certificate and its key thrown away: nobody can make a second one. Another pair is made when the
Secret is deleted, or less than a month is left. Whoever has certificates of his own (cert-manager) gives files instead. Both are looked at again as
long as the process leads: files are replaced every few weeks.
"""

import asyncio
import base64
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wakeful.cluster.controller.api import CONFIG_MAP, CONFLICT, SECRET, Api, Refusal
from wakeful.cluster.install import TLS_SECRET
from wakeful.cluster.manifests import MANAGED_BY

LASTS = timedelta(days=3650)
RENEW = timedelta(days=30)
LOOK = 300.0
"""Seconds between two looks at whether there is another pair."""
CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""Keys of the Secret, as Kubernetes and cert-manager call them."""


class Pem(NamedTuple):
    certificate: bytes
    key: bytes
    authority: bytes

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self.key, self.certificate)])

    def expires(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def check(self) -> None:
        """Raises ValueError if it is no pair: a file was read while the other one was not yet written."""
        of_certificate = x509.load_pem_x509_certificate(self.certificate).public_key()
        if serialization.load_pem_private_key(self.key, None).public_key() != of_certificate:
            raise ValueError("the key is another certificate's")


async def another(shown: Pem, load: Callable[[], Awaitable[Pem]], complain: Callable[[str], None], look: float = LOOK) -> Pem:
    """The pair that takes the place of `shown`, once there is one. `load` may raise Refusal, OSError or ValueError: that is told, and tried again."""
    while True:
        await asyncio.sleep(look)
        try:
            pem = await load()
            pem.check()
        except (Refusal, OSError, ValueError) as error:
            complain(f"the certificate could not be looked at again, and stays: {error}")
        else:
            if pem != shown:
                return pem


def names_of(service: str, namespace: str) -> tuple[str, ...]:
    """Under which agents and gateways reach the controller."""
    full = f"{service}.{namespace}.svc"
    return service, f"{service}.{namespace}", full, f"{full}.cluster.local", "localhost", "127.0.0.1", "::1"


def make(names: Sequence[str], now: datetime) -> Pem:
    """A new authority and the one certificate that it signs."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Wakeful controller's authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    usage = {
        "content_commitment": False, "key_encipherment": False, "data_encipherment": False, "key_agreement": False, "encipher_only": False,
        "decipher_only": False,
    }
    authority = (
        _begun(issuer, issuer, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _begun(subject, issuer, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = serialization.Encoding.PEM
    return Pem(certificate.public_bytes(pem), private, authority.public_bytes(pem))


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    begins = now - timedelta(hours=1)  # clocks differ
    return x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begins, now + LASTS)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


async def ensure(api: Api, authority_name: str, names: Sequence[str], now: datetime) -> Pem:
    """The pair from the Secret, or a new one put there; and its authority put into the ConfigMap. Raises Refusal."""
    secret = await api.get(SECRET, TLS_SECRET)
    pem = None if secret is None else _read(secret)
    if pem is None or pem.expires() - now < RENEW:
        pem = await asyncio.to_thread(make, names, now)
        data = {CERTIFICATE: pem.certificate, KEY: pem.key, AUTHORITY: pem.authority}
        body = {"type": "kubernetes.io/tls", "data": {name: base64.b64encode(text).decode() for name, text in data.items()}}
        if secret is None:
            try:
                await api.create(SECRET, {"metadata": {"name": TLS_SECRET, "labels": MANAGED_BY}, **body})
            except Refusal as error:
                if error.code != CONFLICT:
                    raise
                return await ensure(api, authority_name, names, now)
        else:
            await api.patch(SECRET, TLS_SECRET, {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}, "data": body["data"]})
    await api.apply({
        "apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": {"name": authority_name, "labels": MANAGED_BY},
        "data": {AUTHORITY: pem.authority.decode()},
    })
    return pem


def _read(secret: dict[str, dict[str, str]]) -> Pem | None:
    data = secret.get("data") or {}
    try:
        pem = Pem(*(base64.b64decode(data[name]) for name in (CERTIFICATE, KEY, AUTHORITY)))
        pem.expires()
    except (KeyError, ValueError):
        return None
    return pem
