"""The gateway says its errors as the daemon does."""

import pytest

from wakeful.cluster.gateway import errors
from wakeful.cluster.gateway.errors import Dialect
from wakeful.errors import BY_CODE, WakefulError
from wakeful.frontends.grpc.errors import render as daemon_grpc
from wakeful.frontends.http.errors import render as daemon_http

DIALECTS: list[Dialect] = ["oip", "snooze", "openai"]
ERRORS = [BY_CODE[code]("it is so", retry_after=retry) for code in errors.STATUS for retry in (None, 0.2, 2.5, 1e9)]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_over_http(error: WakefulError, dialect: Dialect) -> None:
    status, headers, body = errors.render(error, dialect)
    assert headers.pop("content-type") == "application/json"
    daemon_status, daemon_headers, daemon_body = daemon_http(error, dialect)
    assert (status, headers, body) == (daemon_status, dict(daemon_headers), daemon_body)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_over_grpc(error: WakefulError) -> None:
    code, text, metadata = errors.render_grpc(error)
    number, daemon_text, daemon_metadata = daemon_grpc(error, "oip")
    assert (code.value[0], text, metadata) == (number, daemon_text, () if error.code == "too_large" else daemon_metadata)


@pytest.mark.parametrize(("path", "dialect"), [
    ("/v2/models/cat/infer", "oip"), ("/", "oip"), ("/v1/models/cat/infer", "snooze"), ("/v1/models", "snooze"), ("/v1/embeddings", "openai"),
    ("/openai/v1/embeddings", "openai"),
])
def test_dialects(path: str, dialect: Dialect) -> None:
    assert errors.dialect_of(path) == dialect
