"""How many files this process may hold open: a connection takes one."""

import resource
from contextlib import suppress

DESCRIPTORS = 1 << 20
"""More open files than this are never asked for."""


def allow_descriptors() -> None:
    """What shells allow by default is soon used up, and may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
