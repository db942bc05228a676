"""What the program leaves with: docs/cli.md lists it."""

from typing import Final

DONE: Final = 0
NO: Final = 1
"""The answer is no: a check that fails, a daemon that is not ready, a load that failed."""
WRONG_USE: Final = 2
"""The command line or the configuration is wrong."""
NOT_REACHABLE: Final = 3
"""There is no daemon, or it cannot be reached."""
NO_MODEL: Final = 4
NOT_ALLOWED: Final = 5
"""A key is missing, or may not do that."""
UNAVAILABLE: Final = 6
"""Unavailable for now, full, or timed out."""
INTERRUPTED: Final = 130
