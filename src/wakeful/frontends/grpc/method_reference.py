"""docs/grpc.md, made from the table of methods: `python -m wakeful.frontends.grpc.method_reference > docs/grpc.md`."""

import sys
from itertools import groupby
from typing import Any

from wakeful.engine import Condition
from wakeful.frontends.grpc.call import Method
from wakeful.frontends.grpc.errors import CODES
from wakeful.frontends.grpc.methods import table

_INTRODUCTION = """\
# gRPC

<!-- Made from src/wakeful/frontends/grpc/methods.py by `python -m wakeful.frontends.grpc.method_reference`; a test holds it up to date. -->

On `--grpc-port` (50051, `--no-grpc` for none), as [oip.proto](../src/wakeful/frontends/grpc/protos/oip.proto),
[snooze.proto](../src/wakeful/frontends/grpc/protos/snooze.proto) and [health.proto](../src/wakeful/frontends/grpc/protos/health.proto) say. Where
a certificate is configured, gRPC speaks TLS too. A message may have `max_body` bytes; answers may be larger, and a client that takes gRPC's
default of 4 MiB has to raise its own limit. Requests may be compressed with gzip. Without TLS a message is in memory before its size is looked
at ([what is not promised](../SECURITY.md#not-promised)). Requests are counted under the protocols `oip-grpc` and `snooze-grpc`.

Where [`[auth]`](configuration.md#auth) is on, a caller sends its key or token as metadata, `authorization: Bearer ...` or `x-api-key`, and needs
the role of the table or a higher one.

Whichever is first counts: the call's deadline, the OIP parameter `timeout` (microseconds), SnoozeML's `client_timeout_ms`, the model's
`request_timeout_ms`. A call that is cancelled is not run, unless its run has begun.
"""

_TENSORS = """\
## Tensors

The Open Inference Protocol's travel as raw contents, or typed in `contents`; answers are always raw. FP16 and BF16 have no typed form. SnoozeML's are
FP32: inputs are cast to what the model takes, outputs are cast back. NaN and the infinities travel as they are.
"""

_ERRORS = """\
## Errors

The text says what is wrong and what to do. `retry-after` (seconds) is trailing metadata where another try makes sense, and
`x-wakeful-unstarted: 1` where the work surely did not start. In a stream, an error is an answer with `error_message`, and the stream goes on; only
what is about the caller ends it.

Of a stream, 64 requests, or as many bytes as one message may have, are read ahead of the answers. Whoever takes no answer for
`client_timeout_secs`, and 4 seconds more for each MiB of it, is not waited for: the stream ends. When the server
stops, a stream ends with UNAVAILABLE after the answers to what was read of it.

| error | status |
|---|---|
"""


def reference() -> str:
    """The whole page."""
    methods = table(_Nobody(), lambda _: None)  # type: ignore[arg-type]  # no handler is called, so no engine is needed
    sections = [_section(service, list(some)) for service, some in groupby(methods, lambda method: method.path.split("/")[1])]
    rows = [f"| `{error}` | {code.name} |" for error, code in CODES.items()]
    return "\n".join([_INTRODUCTION, *sections, _TENSORS, _ERRORS + "\n".join(rows) + "\n"])


class _Nobody:
    condition = Condition()

    def __getattr__(self, name: str) -> Any:
        return None


def _section(service: str, methods: list[Method]) -> str:
    rows = [f"| `{method.path.rpartition('/')[2]}` | {_who(method)} | {method.what} |" for method in methods]
    return "\n".join([f"## {service}", "", "| method | role | what it does |", "|---|---|---|", *rows, ""])


def _who(method: Method) -> str:
    return f"`{method.role.name.lower()}`" if method.role is not None else "anybody"


if __name__ == "__main__":
    sys.stdout.write(reference())
