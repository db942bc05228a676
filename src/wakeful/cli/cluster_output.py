"""Manifests on stdout, and what has to be said of them on stderr."""

from collections.abc import Iterable
from typing import Any

from wakeful.cli.cluster_extra import complain_of_missing


def printed(objects: Iterable[dict[str, Any]]) -> bool:
    """False, and a complaint, where the library for it is missing."""
    try:
        from wakeful.cluster.documents import written  # noqa: PLC0415 - an extra, and help does without
    except ImportError as error:
        complain_of_missing("what writes manifests", error)
        return False
    print(written(objects), end="")
    return True
