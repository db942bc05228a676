"""What becomes of a machine without a control plane. No test builds one: that takes minutes, and `make test-cluster` does it where it is needed."""

import stat
from pathlib import Path

import pytest

from tests.cluster.control_plane import build


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _go(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program named go, and nothing else but a shell's own."""
    directory.mkdir()
    program = directory / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_without_go_it_says_so_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.Missing, match=r"^Go is not installed, and no built control plane lies in \S+$"):
        build.binaries()


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _go(tmp_path / "bin", monkeypatch, "echo go: downloading x >&2; echo module lookup disabled >&2; exit 1")
    with pytest.raises(build.Missing, match=r"^the control plane cannot be built: module lookup disabled$"):
        build.binaries()
    assert [path.name for path in build.cache().iterdir()] == ["lock"]


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = tmp_path / "called"
    _go(tmp_path / "bin", monkeypatch, f'echo "$@" >> {called}')
    built = build.binaries()
    assert built == build.binaries() == build.cache() / build.key()
    [arguments] = called.read_text().splitlines()
    assert "-mod=readonly" in arguments
    assert arguments.endswith(" ".join(build.PACKAGES))


def test_other_sources_are_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.key()
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((build.SOURCES / name).read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build.key() != before
