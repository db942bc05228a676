"""`wakeful cluster controller`: what it says when it cannot start. What the API server has to say is in the scenarios."""

from pathlib import Path

import pytest

from wakeful.cli.main import main
from wakeful.cli.parser import WRONG_USE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kubeconfig", "/none"], "no cluster is known: Configuration file /none not found"),
        (["--insecure"], "--insecure is for loopback, and --host is 0.0.0.0"),
        (["--tls-cert", "cert.pem"], "--tls-cert and --tls-key belong together"),
    ],
)
def test_what_cannot_be(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "controller", *arguments], 0.0) == WRONG_USE
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.parametrize(("option", "value"), [
    ("--port", "0"), ("--port", "x"), ("--lease-seconds", "0.5"), ("--lease-seconds", "long"), ("--server-window", "0"),
])
def test_an_option_with_a_wrong_value_names_both(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "controller", option, value], 0.0)
    assert ended.value.code == WRONG_USE
    said = capsys.readouterr().err
    assert option in said
    assert value in said


def test_an_api_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text("""\
{apiVersion: v1, kind: Config, current-context: test, users: [{name: test, user: {token: x}}],
 clusters: [{name: test, cluster: {server: "https://127.0.0.1:9"}}], contexts: [{name: test, context: {cluster: test, user: test}}]}
""")
    assert main(["cluster", "controller", "--kubeconfig", str(config)], 0.0) == 1
    said = capsys.readouterr().err
    assert "the API server was not reached" in said
    assert "hint: is the cluster up" in said
