"""The dashboard's files, as they lie in the package. Read once, at first use, and named by a digest of all of them: a browser may keep them for ever,
and after an upgrade asks for others.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from wakeful.errors import NotFound
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.head import Head
from wakeful.tensors import Buffer

DIRECTORY = Path(__file__).parents[2] / "ui"
INDEX = "index.html"
VERSION = "{VERSION}"
"""In the index, the directory in which the other files are."""

KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
"""What is served; the rest of the directory is for people: licences, and where files are from."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
SAFE = [
    ("content-security-policy", POLICY), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"), ("cross-origin-resource-policy", "same-origin"),
]


class Site(NamedTuple):
    version: str
    page: bytes
    files: dict[str, tuple[bytes, str]]
    """Content and its type, by path below the version."""


@cache
def site(directory: Path = DIRECTORY) -> Site:
    """Raises OSError where the package is not whole."""
    found = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.suffix in KINDS and path.is_file()}
    contents = {name: path.read_bytes() for name, path in found.items()}
    whole = sha256()
    for name, content in contents.items():
        whole.update(b"%b %d " % (name.encode(), len(content)) + content)
    version = whole.hexdigest()[:12]
    page = contents.pop(INDEX).replace(VERSION.encode(), version.encode())
    return Site(version, page, {name: (content, KINDS[found[name].suffix]) for name, content in contents.items()})


def index(connection: Connection, head: Head, _body: Buffer) -> None:
    """The page itself: asked for again each time, answered in full when it has changed."""
    if not head.slash:  # what it names lies below it
        connection.respond(308, [("location", "ui/")], b"")
        return
    tag = f'"{site().version}"'
    headers = [*SAFE, ("cache-control", "no-cache"), ("etag", tag)]
    if tag in head.headers.get("if-none-match", "").replace("W/", "").split(", "):
        connection.respond(304, headers, b"")
    else:
        connection.respond(200, headers, site().page, KINDS[".html"])


def file(connection: Connection, head: Head, _body: Buffer) -> None:
    """One of the page's files. Raises NotFound, for those of another version too."""
    version, _, name = head.route.parameters["file"].partition("/")
    known = site()
    if version != known.version or name not in known.files:
        raise NotFound(f"there is nothing at {head.path}")
    content, kind = known.files[name]
    connection.respond(200, [*SAFE, ("cache-control", "public, max-age=31536000, immutable")], content, kind)
