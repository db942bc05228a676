"""A server for all tests of a file, and a client of it."""

from collections.abc import Iterator

import pytest

from tests.frontends.http.stage import Client, Stage, serving


@pytest.fixture(scope="module")
def shared_stage() -> Iterator[Stage]:
    with serving() as stage:
        yield stage


@pytest.fixture
def stage(shared_stage: Stage) -> Iterator[Stage]:
    """Every test ends with nothing left behind."""
    yield shared_stage
    shared_stage.wait_empty()
    shared_stage.held.clear()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    client = stage.connect()
    yield client
    client.close()
