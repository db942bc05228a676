"""[auth] and its options: what they become, and that no message gives a secret away."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError
from wakeful.config.settings import ApiKey, AuthSettings, JwtSettings, Role, Settings

KEY, SECRET = "a-key-of-sufficient-length", "a secret of at least thirty-two bytes"


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def loaded(tmp_path: Path, text: str = "", environ: Mapping[str, str] | None = None, *, api_keys: tuple[str, ...] = (),
           jwt_secret: str | None = None, host: str | None = None, insecure: bool | None = None) -> Settings:
    file = tmp_path / "models.toml"
    file.write_text(text, "utf-8")
    return load(Options(config=file, api_keys=api_keys, jwt_secret=jwt_secret, host=host, insecure=insecure), environ or {})


def test_without_a_word_the_daemon_is_open(tmp_path: Path) -> None:
    assert loaded(tmp_path).auth == AuthSettings()
    assert not loaded(tmp_path, "[auth]\nenabled = false").auth.enabled


def test_keys_and_tokens(tmp_path: Path) -> None:
    auth = loaded(tmp_path, f"""
        [auth]
        protect_metrics = true
        [[auth.api_keys]]
        key = "{KEY}"
        name = "shop"
        [[auth.api_keys]]
        role = "Administrator"
        key_env = "BOSS"
        [auth.jwt]
        algorithm = "HS512"
        secret = "  {SECRET} "
        leeway_secs = 5
        issuer = "us"
    """, {"BOSS": f" {KEY}-2\n"}).auth
    assert auth == AuthSettings(
        True, True, (ApiKey(Role.INFERENCE, digest(KEY), "shop"), ApiKey(Role.ADMIN, digest(f"{KEY}-2"))),
        JwtSettings(SECRET.encode(), "HS512", 5.0, "us"), ("BOSS",),
    )
    assert SECRET not in repr(auth)


def test_options_add_keys_and_turn_it_on(tmp_path: Path) -> None:
    auth = loaded(tmp_path, f"[auth]\nenabled = false\n[[auth.api_keys]]\nkey = '{KEY}'", api_keys=(f"admin:{KEY}:2",)).auth
    assert auth.enabled
    assert auth.keys == (ApiKey(Role.INFERENCE, digest(KEY)), ApiKey(Role.ADMIN, digest(f"{KEY}:2")))
    auth = loaded(tmp_path, f"[auth.jwt]\nissuer = 'us'\nsecret = '{SECRET}-old'", jwt_secret=SECRET).auth
    assert auth.jwt == JwtSettings(SECRET.encode(), issuer="us")


def test_weak_secrets_are_warned_of(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "[[auth.api_keys]]\nkey = 'hush'\n[auth.jwt]\nsecret = 'hush-hush'")
    told = [(problem.code, problem.severity, problem.line) for problem in settings.warnings]
    assert told == [("weak-secret", "warning", 2), ("weak-secret", "warning", 4)]
    assert "hush" not in "".join(problem.render() for problem in settings.warnings)


@pytest.mark.parametrize("text", [
    "[[auth.api_keys]]\nkey = ['hush']", "[[auth.api_keys]]\nkey = 4711", "[auth.jwt]\nsecret = 4711\n", "[[auth.api_keys]]\nkey = { a = 'hush' }",
    "[[auth.api_keys]]\nkey = ''", "auth.api_keys = ['hush']", "auth.jwt = 'hush'",
])
def test_no_mistake_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert "hush" not in str(raised.value)
    assert "4711" not in str(raised.value)


@pytest.mark.parametrize("option", ["hush-hush-hush-hush", "root:hush-hush-hush-hush", "admin:", ":hush", ""])
def test_a_wrong_option_shows_no_secret(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, api_keys=(option,))
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(("host", "public"), [
    ("127.0.0.1", False), ("127.1.2.3", False), ("::1", False), ("localhost", False),
    ("0.0.0.0", True), ("::", True), ("192.0.2.7", True), ("box", True),
])
def test_an_address_that_others_reach_needs_authentication_or_a_word(tmp_path: Path, host: str, public: bool) -> None:
    if public:
        with pytest.raises(ConfigError, match="reached from other machines"):
            loaded(tmp_path, host=host)
    assert loaded(tmp_path, host=host, insecure=True).auth == AuthSettings()
    assert loaded(tmp_path, host=host, api_keys=(f"admin:{KEY}",)).auth.enabled
