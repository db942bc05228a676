"""Who may do what: keys, tokens, and what of them counts."""

import math
import time
from hashlib import sha256
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.config.settings import ApiKey, AuthSettings, JwtSettings, Role
from wakeful.errors import Forbidden, Unauthenticated
from wakeful.frontends.access import EVERYTHING, OPEN, Access, expired

SECRET = b"0123456789abcdef" * 4
READER, CALLER, BOSS = "reader-key-of-some-length", "caller-key-of-some-length", "boss-key-of-some-length"


def key(role: Role, text: str) -> ApiKey:
    return ApiKey(role, sha256(text.encode()).digest())


def access(**changes: Any) -> Access:
    keys = (key(Role.READ_ONLY, READER), key(Role.INFERENCE, CALLER), key(Role.ADMIN, BOSS))
    return Access(AuthSettings(True, keys=keys, jwt=JwtSettings(SECRET, **changes)))


def token(secret: bytes = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    body = {"sub": "someone", "exp": int(time.time()) + 600, "iat": int(time.time())} | claims
    return jwt.encode({name: value for name, value in body.items() if value is not None}, secret, algorithm)


def refusal(shown: str, **changes: Any) -> str:
    with pytest.raises(Unauthenticated) as raised:
        access(**changes).check([shown], Role.READ_ONLY)
    assert shown not in raised.value.message
    return raised.value.message


def test_an_open_door_asks_nobody() -> None:
    assert OPEN.check([], Role.ADMIN) == EVERYTHING
    assert OPEN.check(["anything"], Role.ADMIN) == EVERYTHING


@pytest.mark.parametrize(("shown", "role"), [(READER, Role.READ_ONLY), (CALLER, Role.INFERENCE), (BOSS, Role.ADMIN)])
def test_a_key_may_what_its_role_and_those_below_may(shown: str, role: Role) -> None:
    for needed in Role:
        if needed <= role:
            assert access().check([shown], needed) == (role, math.inf)
        else:
            with pytest.raises(Forbidden, match=f"this needs role {needed.name.lower()}, and yours is {role.name.lower()}"):
                access().check([shown], needed)


@pytest.mark.parametrize("shown", [[], [""], ["", ""]])
def test_who_shows_nothing_is_told_what_to_show(shown: list[str]) -> None:
    with pytest.raises(Unauthenticated, match="Authorization: Bearer"):
        access().check(shown, Role.READ_ONLY)


def test_either_of_two_credentials_is_enough() -> None:
    assert access().check(["wrong", BOSS], Role.ADMIN).role is Role.ADMIN
    assert access().check([BOSS, "wrong"], Role.ADMIN).role is Role.ADMIN


def test_one_key_of_two_roles_has_the_higher() -> None:
    twice = Access(AuthSettings(True, keys=(key(Role.ADMIN, "same"), key(Role.READ_ONLY, "same"))))
    assert twice.check(["same"], Role.ADMIN).role is Role.ADMIN


@given(st.text(max_size=200))
def test_no_other_text_opens(shown: str) -> None:
    with pytest.raises(Unauthenticated):
        access().check([shown], Role.READ_ONLY)


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, Role.READ_ONLY), ({"role": "inference"}, Role.INFERENCE), ({"role": "Administrator"}, Role.ADMIN), ({"role": "root"}, Role.READ_ONLY),
        ({"role": "inference", "roles": ["admin"]}, Role.ADMIN), ({"roles": ["user", "ro"]}, Role.INFERENCE), ({"roles": "admin"}, Role.ADMIN),
        ({"role": 3, "roles": [None, {}, 7]}, Role.READ_ONLY), ({"roles": {"admin": True}}, Role.READ_ONLY),
    ],
)
def test_a_token_has_the_highest_of_its_roles(claims: dict[str, Any], role: Role) -> None:
    assert access().check([token(**claims)], Role.READ_ONLY).role is role


def test_a_token_holds_until_it_expires_and_as_long_as_clocks_may_differ() -> None:
    now = int(time.time())
    grant = access().check([token(exp=now + 600)], Role.READ_ONLY)
    assert grant.until == now + 660
    assert not expired(grant)
    assert expired(grant._replace(until=now - 1.0))
    assert access().check([token(exp=now - 30)], Role.READ_ONLY)
    assert refusal(token(exp=now - 90)) == "the token has expired"
    assert access().check([token(nbf=now + 30)], Role.READ_ONLY)
    assert refusal(token(nbf=now + 90)) == "the token is not valid yet"
    assert refusal(token(exp=now - 30), leeway=0.0) == "the token has expired"


def test_the_algorithm_is_the_configured_one() -> None:
    assert access(algorithm="HS512").check([token(algorithm="HS512")], Role.READ_ONLY)
    assert refusal(token(algorithm="HS512")) == "the token is not valid"
    none = jwt.encode({"exp": int(time.time()) + 600, "role": "admin"}, "", "none")
    assert refusal(none) == "the token is not valid"


def test_a_token_that_was_tampered_with_is_no_token() -> None:
    head, body, signature = token(role="inference").split(".")
    other = token(role="admin").split(".")[1]
    assert refusal(f"{head}.{other}.{signature}") == "the token is not valid"
    assert refusal(f"{head}.{body}.") == "the token is not valid"
    assert refusal(token(b"another secret..".ljust(64))) == "the token is not valid"


def test_claims_that_are_needed() -> None:
    assert refusal(token(exp=None)) == "the token has no claim 'exp'"
    assert refusal(token(exp="soon")) == "the token is not valid"
    assert refusal(token(exp=10**400)) == "the token is not valid"
    assert access().check([token(iss="any", aud="any", iat=None)], Role.READ_ONLY)
    assert access(issuer="us", audience="here").check([token(iss="us", aud="here")], Role.READ_ONLY)
    assert refusal(token(iss="them", aud="here"), issuer="us", audience="here") == "the token is of another issuer"
    assert refusal(token(iss="us", aud="there"), issuer="us", audience="here") == "the token is for another audience"
    assert refusal(token(aud="here"), issuer="us", audience="here") == "the token has no claim 'iss'"


def test_no_credential_is_too_long_to_be_refused() -> None:
    assert refusal("a." * 10**5) == "the key is not known"


def test_a_key_of_any_letters_is_known_by_its_bytes() -> None:
    """Front ends read headers as Latin-1; clients send UTF-8."""
    door = Access(AuthSettings(True, keys=(key(Role.ADMIN, "schlüssel-für-später-✓"),)))
    assert door.check(["schlüssel-für-später-✓".encode().decode("latin-1")], Role.ADMIN)
