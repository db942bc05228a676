"""What a caller shows of itself."""

from collections.abc import Iterator, Mapping


def credentials(headers: Mapping[str, str]) -> Iterator[str]:
    """Keys or tokens; empty ones count for nothing."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield value.strip()
    yield headers.get("x-api-key", "")
