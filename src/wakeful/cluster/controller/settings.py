"""What one controller process is told when it starts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from wakeful.cluster.controller.lease import LeaseConfig
from wakeful.cluster.manifests import CONTROLLER, CONTROLLER_HTTP, CONTROLLER_PORT, Install
from wakeful.cluster.planning.limits import Limits


class Certificate(NamedTuple):
    """Files of who has certificates of his own."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Settings:
    install: Install
    name: str
    """Of this process in the Lease; another one each time it starts."""
    kubeconfig: str | None = None
    host: str = "0.0.0.0"  # noqa: S104 - in a pod, whom a network policy guards
    port: int = CONTROLLER_PORT
    http_port: int = CONTROLLER_HTTP
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    limits: Limits = field(default_factory=Limits)
    address: str = ""
    """Where the other controllers reach this one; empty: nowhere."""
    service: str = CONTROLLER
    """Name under which agents and gateways find it."""
    insecure: bool = False
    """Without TLS: on loopback, for tests."""
    certificate: Certificate | None = None
    log_format: Literal["text", "json"] = "text"
