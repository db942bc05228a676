"""Who may do what: from what a caller shows to a role. Front ends hand over credentials and are told the role, or the error.

Static keys are compared by digest, and every key is compared, so the time that it takes says nothing about them. A bearer value may be a key or a
JSON web token (HS256, HS384 or HS512): keys are tried first.
"""

import hmac
import math
import warnings
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

import jwt
from jwt.warnings import InsecureKeyLengthWarning

from wakeful import clock
from wakeful.config.settings import AuthSettings, JwtSettings, Role
from wakeful.config.values import ROLES
from wakeful.errors import Forbidden, Unauthenticated

warnings.filterwarnings("ignore", category=InsecureKeyLengthWarning)  # the configuration has warned, once and in its own words

LONGEST_CREDENTIAL = 8192
"""Characters; no token is as long."""


_MALFORMED = (ValueError, TypeError, OverflowError, RecursionError)
"""What claims that are no claims, or nested without end, raise in the library."""


class Grant(NamedTuple):
    role: Role
    until: float
    """Seconds since 1970 from which it holds no more; infinite for a key."""


EVERYTHING = Grant(Role.ADMIN, math.inf)


class Access:
    """The door that a caller of any front end passes."""

    def __init__(self, settings: AuthSettings) -> None:
        self.open = not settings.enabled
        self._keys = settings.keys
        self._jwt = settings.jwt

    def check(self, credentials: Iterable[str], needed: Role) -> Grant:
        """What these credentials allow, if that is at least `needed`. Raises Unauthenticated or Forbidden."""
        if self.open:
            return EVERYTHING
        shown = [text for text in credentials if text]
        if not shown:
            raise Unauthenticated("a key or a token is needed: send Authorization: Bearer ..., or X-API-Key")
        grant = self._grant(shown)
        if grant.role < needed:
            raise Forbidden(f"this needs role {needed.name.lower()}, and yours is {grant.role.name.lower()}")
        return grant

    def _grant(self, shown: list[str]) -> Grant:
        refusal = Unauthenticated("the key is not known")
        for text in shown:
            if len(text) > LONGEST_CREDENTIAL:
                continue
            if (role := self._role_of_key(text)) is not None:
                return Grant(role, math.inf)
            if self._jwt is not None and text.count(".") == 2:
                try:
                    return _read_token(text, self._jwt)
                except Unauthenticated as error:
                    refusal = error
        raise refusal

    def _role_of_key(self, text: str) -> Role | None:
        digest = sha256(text.encode("latin-1", "replace")).digest()  # the bytes as they were sent: front ends read headers so
        role: Role | None = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                role = max(role or key.role, key.role)
        return role


def _read_token(token: str, settings: JwtSettings) -> Grant:
    try:
        claims: dict[str, Any] = jwt.decode(
            token, settings.secret, algorithms=[settings.algorithm], leeway=settings.leeway, issuer=settings.issuer, audience=settings.audience,
            options={"require": ["exp"], "verify_iat": False, "verify_aud": settings.audience is not None},
        )
    except jwt.ExpiredSignatureError:
        raise Unauthenticated("the token has expired") from None
    except jwt.ImmatureSignatureError:
        raise Unauthenticated("the token is not valid yet") from None
    except jwt.MissingRequiredClaimError as error:
        raise Unauthenticated(f"the token has no claim {error.claim!r}") from None
    except jwt.InvalidIssuerError:
        raise Unauthenticated("the token is of another issuer") from None
    except jwt.InvalidAudienceError:
        raise Unauthenticated("the token is for another audience") from None
    except (jwt.PyJWTError, *_MALFORMED):  # what is wrong with a forged token is nobody's business
        raise Unauthenticated("the token is not valid") from None
    try:
        return Grant(_role_of(claims), float(claims["exp"]) + settings.leeway)
    except _MALFORMED:
        raise Unauthenticated("the token is not valid") from None


def _role_of(claims: dict[str, Any]) -> Role:
    """The highest of `role` and `roles`; the lowest of all where there is none that is known."""
    roles = claims.get("roles", [])
    named = [claims.get("role"), *(roles if isinstance(roles, list) else [roles])]
    return max((ROLES[name.strip().lower()] for name in named if isinstance(name, str) and name.strip().lower() in ROLES), default=Role.READ_ONLY)


OPEN = Access(AuthSettings())
"""Whoever comes may do everything."""


def expired(grant: Grant) -> bool:
    return clock.wall() > grant.until
