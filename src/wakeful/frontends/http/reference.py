"""docs/errors.md, made from the errors and their tables: `python -m wakeful.frontends.http.reference > docs/errors.md`."""

import re
import sys

from wakeful import errors
from wakeful.frontends.http.errors import OIP_STATUS, SNOOZE_STATUS, HttpError

INTRODUCTION = """\
# Errors

<!-- Made from src/wakeful/errors.py and the tables of src/wakeful/frontends/http by `python -m wakeful.frontends.http.reference`; a test holds it
up to date. -->

An error is answered with `{"error": "one or two sentences"}`: what was expected and what came, never a stack trace. 429 and 503 bring
`Retry-After`. `x-wakeful-unstarted: 1` says that the work surely did not begin, so that a proxy may try elsewhere; what has run before, and what is
refused because it ends processes, does not have it. The code is the label `outcome` of `wakeful_requests_total`. Routes of OpenAI's have the statuses
of `/v2`, and its body:
`{"error": {"message": ..., "type": ..., "param": the field, "code": ...}}`.
Those below `/wakeful` have the same statuses, and `{"error": ..., "code": ...}`.

| code | `/v2` | `/v1` | when |
|---|---|---|---|
"""
ONLY_HTTP = """
Some errors only HTTP knows. They are the same everywhere:

| code | status |
|---|---|
"""


def reference() -> str:
    """The whole page."""
    meanings = dict(re.findall(r"[├└]── (\w+) +(.+)", errors.__doc__ or ""))  # the tree at the top of the module
    rows = (
        f"| `{error.code}` | {OIP_STATUS[error.code]} | {SNOOZE_STATUS[error.code]} | {meanings[error.__name__]} |\n" for error in errors.ALL_ERRORS
    )
    transport = (f"| `{error.code}` | {error.status} |\n" for error in sorted(HttpError.__subclasses__(), key=lambda error: error.status))
    return INTRODUCTION + "".join(rows) + ONLY_HTTP + "".join(transport)


if __name__ == "__main__":
    sys.stdout.write(reference())
