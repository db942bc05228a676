"""A gateway shows its token, by Envoy and by its helper, and shows the new one when it is renewed."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.gateway.calls import call
from tests.cluster.ground.controller import Controller
from tests.cluster.ground.gateway import GatewayPod
from tests.daemon import wait_until
from wakeful.cluster.controller.identity import Identity
from wakeful.cluster.controller.tls import make, names_of
from wakeful.cluster.wire import WakeTold


class Known(Identity):
    """Who shows one of these tokens is a gateway."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = set(tokens)
        self.shown: list[str] = []

    async def gateway(self, metadata: Iterable[tuple[str, str | bytes]]) -> str:
        shown = str(dict(metadata).get("authorization", "nothing"))
        self.shown.append(shown)
        return "" if shown.removeprefix("Bearer ") in self.tokens else "a stranger"


def put(directory: Path, token: str) -> Path:
    """As kubelets write what they project: all files of a volume are another at once."""
    fresh, link = directory / f"..{token}", directory / "..data"
    fresh.mkdir()
    (fresh / "token").write_text(token)
    (directory / "..next").symlink_to(fresh.name)
    (directory / "..next").rename(link)
    if not (directory / "token").is_symlink():
        (directory / "token").symlink_to("..data/token")
    return directory / "token"


def test_the_token_is_shown_and_renewed(tmp_path: Path) -> None:
    pem = make(names_of("wakeful-controller", "models"), datetime.now(UTC))
    authority, volume = tmp_path / "ca.crt", tmp_path / "volume"
    authority.write_bytes(pem.authority)
    volume.mkdir()
    identity = Known("first")
    controller = Controller(pem=pem, identity=identity)
    controller.answer("cat", WakeTold("unknown", near=["cats"]))
    pod = GatewayPod(
        tmp_path, controller.address, ca=authority, controller_name="wakeful-controller", token=put(volume, "first"),
        token_source=tmp_path / "token.json",
    )
    try:
        controller.wait(lambda _: controller.gateways() == {"gw-0"}, "Envoy is let in")
        assert call(pod.url, "GET", "/v2/models/cat")[0] == 404
        assert set(identity.shown) == {"Bearer first"}

        put(volume, "second")
        identity.tokens = {"second"}
        assert call(pod.url, "GET", "/v2/models/cat")[0] == 404
        assert identity.shown[-1] == "Bearer second"
        wait_until(lambda: pod.envoy.stat("cluster_manager.cds.update_success") > 0, "Envoy has answers")
        port = controller.port
        controller.stop()
        controller = Controller(pem=pem, identity=identity, port=port)
        controller.wait(lambda _: controller.gateways() == {"gw-0"}, "Envoy is let in with its new token")
    finally:
        pod.stop()
        controller.stop()


def test_without_a_token_nobody_is_let_in(tmp_path: Path) -> None:
    pem = make(names_of("wakeful-controller", "models"), datetime.now(UTC))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(pem.authority)
    identity = Known("first")
    controller = Controller(pem=pem, identity=identity)
    pod = GatewayPod(tmp_path, controller.address, ca=authority, controller_name="wakeful-controller")
    try:
        wait_until(lambda: "a stranger" in pod.envoy.log, "Envoy was refused, and says why")
        assert set(identity.shown) == {"nothing"}
        assert controller.gateways() == frozenset()
    finally:
        pod.stop()
        controller.stop()
