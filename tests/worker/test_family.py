"""Processes that a process has started, and those that they have."""

import subprocess
import sys

from wakeful.worker import family

NESTED = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"


def test_descendants_are_found_at_any_depth_and_children_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", NESTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        try:
            assert {child.pid, grandchild} <= set(family.descendants())
            assert child.pid in family.children()
            assert grandchild not in family.children()
        finally:
            subprocess.run(["kill", str(grandchild)], check=True)
            child.kill()


def test_without_children_nobody_is_looked_at() -> None:
    code = "from wakeful.worker import family; family._parents = None; print(family.descendants(), family.children())"
    assert subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True).stdout == "[] []\n"
