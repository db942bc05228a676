"""A headless Chromium, a daemon for the tests of a file, and pages that keep account of what went wrong on them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.ui.visit import Visit

CHROMIUM = shutil.which("chromium")
LIMIT = 60_000
"""Milliseconds that end a test which would hang."""

MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0

[[models]]
id = "ident"
path = "ident.onnx"
max_batch_size = 8

[[models]]
id = "titles"
path = "titles.onnx"
description = "Heavier than it looks"

[[models]]
id = "broken"
path = "broken.onnx"
"""

Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Closed with the tests of its file: while it is open, a loop runs in this thread."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed, and the dashboard is tested in it")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, and drives Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("ui")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.heavy(directory / "titles.onnx", 8)
    (directory / "broken.onnx").write_bytes(b"no model")
    (directory / "models.toml").write_text(MODELS)
    with running(directory / "d", "--config", str(directory / "models.toml"), "--no-grpc", "--memory-limit", "400MiB") as daemon:
        yield daemon


@pytest.fixture
def visit(chromium: Any) -> Iterator[Open]:
    """Opens the dashboard of a daemon in a browser of its own; afterwards nothing may have gone wrong on any of its pages."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def open_page(daemon: Daemon, route: str = "#/", *, alone: bool = False, key: str = "", **more: Any) -> Visit:
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **more})
            stack.callback(context.close)
            context.set_default_timeout(LIMIT)
            visits.append(Visit(context, daemon.url, route, alone=alone, key=key))
            return visits[-1]

        yield open_page
        for one in visits:
            one.check()
