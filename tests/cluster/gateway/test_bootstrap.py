"""Envoy takes the file, whatever the settings."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from tests.cluster.ground.envoy import binary
from wakeful.cluster.gateway.bootstrap import HELPER_ALIVE, Address, Gateway, bootstrap, render

PLAIN = Gateway("gw-0", (Address("controller.models.svc", 9100),))


def verdict(gateway: Gateway, directory: Path) -> str:
    """What Envoy says of the file."""
    file = directory / "envoy.json"
    file.write_text(render(gateway))
    done = subprocess.run([binary(), "--mode", "validate", "-c", str(file), "-l", "warn"], capture_output=True, text=True, timeout=60, check=False)
    return f"{done.stdout}{done.stderr}".replace(str(file), "FILE")


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


@pytest.mark.parametrize("change", [
    {}, {"controllers": (Address("127.0.0.1", 9100), Address("127.0.0.2", 9100))}, {"stats": None}, {"ca": "CA"},
    {"ca": "CA", "controller_name": "wakeful-controller"}, {"ca": "CA", "controllers": (Address("127.0.0.1", 9100),)},
])
def test_envoy_takes_the_file_and_warns_of_nothing(change: dict[str, object], tmp_path: Path, ca: Path) -> None:
    change = {key: ca if value == "CA" else value for key, value in change.items()}
    assert verdict(replace(PLAIN, **change), tmp_path) == "configuration 'FILE' OK\n"  # type: ignore[arg-type]  # each is of its field's type


def test_what_is_admin_stays_on_loopback() -> None:
    made = bootstrap(PLAIN)
    assert made["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
    [_, stats] = made["static_resources"]["listeners"]
    [host] = stats["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    assert [route["match"] for route in host["routes"]] == [{"path": "/ready"}, {"path": "/stats/prometheus"}, {"path": HELPER_ALIVE}]


def test_nothing_is_logged_of_requests() -> None:
    assert "access_log" not in render(PLAIN)
