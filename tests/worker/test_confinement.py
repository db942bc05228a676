"""What a process gives up, tried in a child of this one."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful.runtime.messages import Confinement
from wakeful.worker.confinement import confine

NOBODY = 65534


def in_child(do: Callable[[], Any]) -> Any:
    """The result of `do` in a forked process, by JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(do()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def network() -> str:
    return str(Path("/proc/self/ns/net").readlink())


def given_up(wanted: Confinement, user: int | None = None) -> tuple[list[str], bool, int]:
    """What was kept; whether the network is another one; how many processes' ids the user has then."""

    def do() -> Any:
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        before = network()
        kept = confine(wanted)
        return kept, network() != before, os.geteuid()

    kept, other, uid = in_child(do)
    return kept, other, uid


@pytest.mark.parametrize("user", [None, NOBODY])
def test_the_network_and_the_user_stays_who_it_was(user: int | None) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    kept, other, uid = given_up(Confinement(), user)
    assert other or any(what.startswith("the network") for what in kept)
    assert uid == (os.geteuid() if user is None else user)


def test_nothing_is_given_up_that_is_allowed() -> None:
    assert given_up(Confinement(network=True, new_privileges=True, core_dumps=True)) == ([], False, os.geteuid())


def test_limits() -> None:
    def do() -> Any:
        confine(Confinement(largest_file=1000, memory=10**10))
        return [resource.getrlimit(which) for which in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA)]

    assert in_child(do) == [[0, 0], [1000, 1000], [10**10, 10**10]]


def test_a_limit_is_never_raised() -> None:
    def do() -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        return confine(Confinement(network=True, largest_file=1000)), resource.getrlimit(resource.RLIMIT_FSIZE)

    assert in_child(do) == [[], [500, 500]]
