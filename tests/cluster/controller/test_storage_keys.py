"""Keys of storage come from Secrets that were made for it, and what is wrong with one is said."""

import asyncio
import base64
from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.waiting import until
from wakeful.cluster.controller import storage_keys
from wakeful.cluster.controller.api import FORBIDDEN, SECRET, Kind, Manifest, Refusal
from wakeful.cluster.controller.storage_keys import LABEL, StorageKeys


class Stage:
    def __init__(self) -> None:
        self.secrets: dict[str, Manifest] = {}
        self.refusal: Refusal | None = None
        self.reads = 0
        self.changed, self.said = list[str](), list[str]()
        self.keys = StorageKeys(self, self.changed.append, self.said.append)

    def put(self, name: str, *, labelled: bool = True, **data: bytes) -> None:
        self.secrets[name] = {
            "metadata": {"name": name, "labels": {LABEL: "true"} if labelled else {}},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    async def get(self, kind: Kind, name: str) -> Manifest | None:
        assert kind == SECRET
        self.reads += 1
        if self.refusal is not None:
            raise self.refusal
        return self.secrets.get(name)


def play(scene: Callable[[Stage], Awaitable[None]], refresh: float = 60.0) -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.keys.run())
        await scene(stage)
        running.cancel()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(storage_keys, "REFRESH", refresh)
        asyncio.run(main())


def test_keys_are_read_when_somebody_asks_and_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.put("s3", AWS_ACCESS_KEY_ID=b"me", AWS_SECRET_ACCESS_KEY=b"secret")
        assert stage.keys.get("s3") is None
        await until(lambda: stage.changed == ["s3"])
        assert stage.keys.get("s3") == {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret"}
        assert stage.keys.why_not("s3") == ""
        assert (stage.reads, stage.said) == (1, [])

    play(scene)


@pytest.mark.parametrize(("put", "why"), [
    (lambda stage: None, "there is no Secret s3, which spec.secretName names"),
    (lambda stage: stage.put("s3", labelled=False, key=b"x"), f"the Secret s3 has no label {LABEL}"),
    (lambda stage: stage.put("s3", key=b"\xff\xfe"), "the Secret s3 holds something else than text"),
])
def test_why_there_are_no_keys(put: Callable[[Stage], None], why: str) -> None:
    async def scene(stage: Stage) -> None:
        put(stage)
        stage.keys.get("s3")
        await until(lambda: stage.keys.why_not("s3") != "")
        assert why in stage.keys.why_not("s3")
        assert stage.keys.get("s3") is None
        assert stage.said == [stage.keys.why_not("s3")]
        assert "x" not in stage.said[0].removeprefix("the Secret s3 has no label").split()

    play(scene)


def test_a_changed_secret_is_noticed_and_an_unchanged_one_tells_nobody() -> None:
    async def scene(stage: Stage) -> None:
        stage.put("s3", key=b"old")
        stage.keys.get("s3")
        await until(lambda: stage.reads >= 3)
        assert stage.changed == ["s3"]
        stage.put("s3", key=b"new")
        await until(lambda: stage.keys.get("s3") == {"key": "new"})
        assert stage.changed == ["s3", "s3"]

    play(scene, refresh=0.01)


def test_keys_stay_while_the_api_server_refuses_and_that_is_said_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.put("s3", key=b"old")
        stage.keys.get("s3")
        await until(lambda: stage.keys.get("s3") == {"key": "old"})
        stage.refusal = Refusal(FORBIDDEN, "not allowed")
        told = "the Secret s3 could not be read: not allowed; Secrets are allowed at installation, by --storage-secrets"
        await until(lambda: stage.keys.why_not("s3") == told)
        reads = stage.reads
        await until(lambda: stage.reads >= reads + 2)
        assert stage.keys.get("s3") == {"key": "old"}
        assert stage.said == [told]
        stage.refusal = None
        await until(lambda: stage.keys.why_not("s3") == "")

    play(scene, refresh=0.01)
