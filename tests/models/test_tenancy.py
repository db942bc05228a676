"""What a model's first replica is taken to need: what was measured, else what was declared, else what its file says."""

from types import SimpleNamespace
from typing import Any

import pytest

from wakeful.config.settings import BackendSettings
from wakeful.memory.supervisor import Tenant
from wakeful.models.tenancy import Tenancy
from wakeful.prepared.knowledge import Known


@pytest.mark.parametrize(("measured", "declared", "wanted"), [
    (0, None, (2_016, 1_000)),
    (0, 500_000, (500_000, 1_000)),
    (0, 700, (1_000, 1_000)),  # less than the file has is no word to rely on
    (9_000, 500_000, (9_000, 9_000)),
])
def test_measured_then_declared_then_guessed(measured: int, declared: int | None, wanted: tuple[int, int]) -> None:
    asked: list[Tenant] = []
    known = Known(first_bytes=measured)
    file = SimpleNamespace(known=lambda: known, estimate=lambda: 2_016, size=lambda: 1_000)
    settings = SimpleNamespace(runtime=BackendSettings(), backend="onnx", declared=declared)
    replica: Any = SimpleNamespace(number=1, index=0)
    owner: Any = SimpleNamespace(key="m", settings=settings, file=file, group=SimpleNamespace(replicas=[replica]))
    supervisor: Any = SimpleNamespace(admit=asked.append)
    Tenancy(owner, supervisor).admit(replica, lambda: None, lambda error: None)
    [tenant] = asked
    assert (tenant.bytes, tenant.least) == wanted
