"""gRPC passes over options that it does not know, without a word: each name that we use is one of its own."""

import re
from pathlib import Path

from grpc._cython import cygrpc

import wakeful

NAME = re.compile(r'"(grpc\.[a-z0-9_.]+)"')


def test_every_option_is_known_to_the_library() -> None:
    used = {name for path in Path(wakeful.__file__).parent.rglob("*.py") for name in NAME.findall(path.read_text("utf-8"))}
    library = Path(cygrpc.__file__).read_bytes()
    assert "grpc.keepalive_time_ms" in used
    assert {name for name in used if f"{name}\0".encode() not in library} == set()
