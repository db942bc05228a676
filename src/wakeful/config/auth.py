"""[auth], and the options about it, to settings. No message repeats a secret, and none is kept that a digest can stand for."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from wakeful.config.document import Document
from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Place, Problem
from wakeful.config.schema import ApiKeyTable, AuthTable, JwtTable
from wakeful.config.settings import ApiKey, AuthSettings, JwtSettings
from wakeful.config.validate import nearest, unknown_key, validate
from wakeful.config.values import parse_role

SHORT_KEY = 16
"""Characters. A key may be tried over the network, so 16 random ones are beyond anybody."""
SHORT_SECRET = 32
"""Bytes. A token may be attacked at home: a secret shorter than the hash (RFC 7518, 3.2) is the weakest part."""
_TABLES = ("api_keys", "jwt")


def auth_settings(
    document: Document, options: tuple[str, ...], jwt_secret: str | None, environ: Mapping[str, str], report: list[Problem]
) -> AuthSettings:
    """What the file says, and above it --api-key ROLE:KEY and --jwt-secret, which turn authentication on."""
    auth = _of_file(document, environ, report)
    keys = tuple(key for text in options if (key := _of_option(text, report)))
    if jwt_secret is not None:
        auth = replace(auth, jwt=replace(auth.jwt or JwtSettings(b""), secret=_secret(jwt_secret, Place("option --jwt-secret"), "", report)))
    if keys or jwt_secret is not None:
        auth = replace(auth, enabled=True, keys=auth.keys + keys)
    if auth.enabled and not auth.keys and auth.jwt is None and not any(problem.severity == "error" for problem in report):
        hint = "add [[auth.api_keys]] or [auth.jwt], or set enabled = false"
        report.append(Problem("conflict", "authentication is on, and there is no key and no secret: nobody could get in", document.place(("auth",)),
                              "auth", hint))
    return auth


def _of_file(document: Document, environ: Mapping[str, str], report: list[Problem]) -> AuthSettings:
    values = document.values.get("auth")
    if values is None:
        return AuthSettings()
    if not isinstance(values, dict):
        report.append(Problem("wrong-type", "`auth` must be one table", document.place(("auth",)), "auth", "write [auth], in single brackets"))
        return AuthSettings(enabled=True)
    plain = {key: value for key, value in values.items() if key not in _TABLES}
    for key in [key for key in plain if key not in AuthTable.model_fields and nearest(key, _TABLES)]:
        report.append(unknown_key(key, None, "[auth]", document.place(("auth", key)), f"auth.{key}"))
        del plain[key]
    table = validate(AuthTable, plain, "[auth]", document.place, report, base=("auth",)) or AuthTable()
    keys = _keys(document, values.get("api_keys", []), environ, report)
    jwt = _jwt(document, values["jwt"], environ, report) if "jwt" in values else None
    return AuthSettings(table.enabled, table.protect_metrics, keys, jwt, variables_of(values))


def variables_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The environment variables that [auth] names."""
    tables = [values.get("jwt"), *(keys if isinstance(keys := values.get("api_keys"), list) else [])]
    named = [table.get(key) for table in tables if isinstance(table, dict) for key in ("key_env", "secret_env")]
    return tuple(name for name in named if isinstance(name, str))


def _keys(document: Document, entries: object, environ: Mapping[str, str], report: list[Problem]) -> tuple[ApiKey, ...]:
    base: KeyPath = ("auth", "api_keys")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        hint = "each key begins with [[auth.api_keys]], in double brackets"
        report.append(Problem("wrong-type", "`api_keys` must be a list of tables", document.place(base), dotted(base), hint))
        return ()
    keys = []
    for index, entry in enumerate(entries):
        here = (*base, index)
        table = validate(ApiKeyTable, entry, "[[auth.api_keys]]", document.place, report, base=here)
        text = table and _given(document, here, "key", table.key, table.key_env, environ, report)
        if table is not None and text:
            _warn_if_short(text, SHORT_KEY, "key", document.place((*here, "key" if table.key else "key_env")), dotted(here), report)
            keys.append(ApiKey(table.role, _digest(text), table.name))
    return tuple(keys)


def _jwt(document: Document, values: Any, environ: Mapping[str, str], report: list[Problem]) -> JwtSettings | None:
    here: KeyPath = ("auth", "jwt")
    if not isinstance(values, dict):
        report.append(Problem("wrong-type", "`jwt` must be a table", document.place(here), dotted(here), "write [auth.jwt], in single brackets"))
        return None
    table = validate(JwtTable, values, "[auth.jwt]", document.place, report, base=here)
    text = table and _given(document, here, "secret", table.secret, table.secret_env, environ, report)
    if table is None or not text:
        return None
    secret = _secret(text, document.place((*here, "secret" if table.secret else "secret_env")), dotted(here), report)
    return JwtSettings(secret, table.algorithm, table.leeway_secs, table.issuer, table.audience)


def _given(
    document: Document, here: KeyPath, what: str, text: str | None, variable: str | None, environ: Mapping[str, str], report: list[Problem]
) -> str | None:
    """A secret, from the file or from the variable that the file names: one of them."""
    if (text is None) == (variable is None):
        how = "both given: leave one out" if text else f"missing: give `{what}`, or the name of an environment variable in `{what}_env`"
        message = f"`{what}` and `{what}_env` are {how}"
        report.append(Problem("conflict" if text else "missing-key", message, document.place(here), dotted(here)))
        return None
    if variable is None:
        return text
    if not (value := environ.get(variable, "").strip()):
        message = f"the environment variable {variable} is not set, or empty"
        report.append(Problem("missing-variable", message, document.place((*here, f"{what}_env")), dotted((*here, f"{what}_env"))))
    return value or None


def _of_option(text: str, report: list[Problem]) -> ApiKey | None:
    """ROLE:KEY. The key may hold colons."""
    role, colon, key = text.partition(":")
    place = Place("option --api-key")
    try:
        found = parse_role(role)
    except ValueError as error:
        got = f'"{role}"' if colon and len(role) < SHORT_KEY else "something else"  # without a colon it may be the key
        report.append(Problem("wrong-value", f"the role {error}, got {got}; write --api-key ROLE:KEY", place))
        return None
    if not (key := key.strip()):
        report.append(Problem("wrong-value", f"there is no key behind {role}:", place))
        return None
    _warn_if_short(key, SHORT_KEY, "key", place, "", report)
    return ApiKey(found, _digest(key))


def _secret(text: str, place: Place, key: str, report: list[Problem]) -> bytes:
    secret = text.strip()
    if not secret:
        report.append(Problem("wrong-value", "the secret is empty: anybody could sign tokens", place, key))
    _warn_if_short(secret, SHORT_SECRET, "secret", place, key, report)
    return secret.encode()


def _warn_if_short(text: str, least: int, what: str, place: Place, key: str, report: list[Problem]) -> None:
    if len(text.encode()) < least:
        message = f"the {what} has {len(text)} characters, which may be guessed; {least} random ones may not"
        report.append(Problem("weak-secret", message, place, key, severity="warning"))


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()
