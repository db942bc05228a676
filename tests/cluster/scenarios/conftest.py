"""One control plane for a worker of pytest, one namespace for a scenario."""

import re
import shutil
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.control_plane.build import Missing, missing
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.control_plane import ControlPlane
from tests.cluster.ground.processes import missing_tools
from wakeful.cluster.crds import crds

KEPT = Path("test-cluster-logs")
"""Where the logs of scenarios that failed are kept."""
FAILED = pytest.StashKey[bool]()


@cache
def _hindrance() -> str | None:
    return missing_tools() or missing()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """All scenarios are skipped from one place, so that the summary has one line."""
    if why := _hindrance():
        pytest.skip(why)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    try:
        plane = ControlPlane(crds())
    except Missing as why:
        pytest.skip(str(why))
    yield plane
    plane.close()


@pytest.fixture(scope="module")
def seldon_kinds(control_plane: ControlPlane) -> Iterator[None]:
    """Seldon's kinds, for the scenarios of a file: beside them a bare `server` means Seldon's to kubectl."""
    with control_plane.kinds(crds(("seldon",))):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A namespace with one node."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")[:40]
    one = Cluster(control_plane, f"{name}-{control_plane.scenarios}", tmp_path / "cluster")
    one.node("a")
    yield one
    failed = request.node.stash.get(FAILED, False)
    if failed:
        print(one.summary(), one.logs(), sep="\n")
    one.close()
    if failed:
        for log in one.directory.rglob("*.log"):
            kept = KEPT / name / log.relative_to(one.directory)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, kept)
