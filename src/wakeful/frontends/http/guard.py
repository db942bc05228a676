"""Which requests of browsers are taken. A page of another site can make its visitor's browser ask this server, by its address or by a name that the
site has pointed here (DNS rebinding); what the browser says then in Host and Origin gives it away. See docs/decisions/46-dashboard.md.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from wakeful.errors import Forbidden

_OURS = ("/ui", "/wakeful/")
"""Paths that are for people, or show what is inside."""


class Guard:
    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """`allowed`: names by which this server is reached, besides those that no site on the internet can have."""
        self._allowed = frozenset(name.lower().rstrip(".") for name in allowed)

    def check(self, path: str, headers: Mapping[str, str], *, changes: bool) -> None:
        """Raises Forbidden. `changes`: the route tells the daemon to do something. Not for callers who have shown a key: pages have none."""
        host, origin = headers.get("host"), headers.get("origin")
        if host is None and origin is None:  # no browser
            return
        if (changes or origin is not None or path.startswith(_OURS)) and not self._knows(name_of(host or "")):
            raise Forbidden(f"this server is not known as {host!r}: add that to allowed_hosts if it is one of its names")
        if changes and origin is not None and urlsplit(origin).netloc.lower() != (host or "").lower():
            raise Forbidden(f"pages of {origin!r} may not change anything here")

    def _knows(self, name: str) -> bool:
        """An address, a name of this machine or network, or one of those allowed: exactly it."""
        if name in self._allowed or name == "localhost" or name.endswith((".localhost", ".local")):
            return True
        try:
            ip_address(name)
        except ValueError:
            return "." not in name and name.replace("-", "").replace("_", "").isalnum()  # such as a service's, which no DNS outside knows
        return True


def name_of(host: str) -> str:
    """Of a Host field, without the port; empty where it is none."""
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return address if bracket and (not port or (port[0] == ":" and port[1:].isdigit())) else ""
    name, _, port = host.partition(":")
    return name.lower().rstrip(".") if port.isdigit() or not port else ""
