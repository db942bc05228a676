"""`wakeful __models`: names for completion, one a line. Whatever goes wrong, it is quick and says nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wakeful.cli.client import PREFIX, Failure, client_of
from wakeful.cli.status import DONE

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 0.15
"""Somebody has pressed a key and waits."""
VERB = "__models"


class _Options:
    url: str | None = None
    key_file: "Path | None" = None
    timeout: float = SECONDS


def main(arguments: Sequence[str]) -> int:
    """`--awake`: only those that could be put to sleep. `--url URL`: what stands on the line that is completed."""
    options = _Options()
    if "--url" in arguments[:-1]:
        options.url = arguments[arguments.index("--url") + 1]
    try:
        models = client_of(options).get(f"{PREFIX}/state")["models"]
    except (Failure, KeyError, TypeError):
        return DONE
    asleep = ("asleep", "failed") if "--awake" in arguments else ()
    names = {model["key"]: None for model in models if model["state"] not in asleep and model["key"].isprintable() and " " not in model["key"]}
    print(*names, sep="\n", end="\n" if names else "")
    return DONE
