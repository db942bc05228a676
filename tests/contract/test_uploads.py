"""Models brought over HTTP: by the unmodified `snoozeml` client, and by curl."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from snoozeml import AsyncSnoozeClient, SnoozeClient, SnoozeError, exceptions

from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)
CONFIG = '[server]\nmax_upload = "3MB"\n\n[defaults]\nprepare = "off"\n\n[[models]]\nid = "named"\npath = "named.onnx"\n'


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("uploads")
    (directory / "models").mkdir()
    onnx_models.ident(directory / "models" / "named.onnx")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.log(directory / "log.onnx")
    (directory / "models" / "models.toml").write_text(CONFIG)
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with running(directory / "daemon", "--models-dir", str(directory / "models"), "--no-grpc") as daemon:
        yield daemon
        assert "Traceback" not in daemon.log


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[SnoozeClient]:
    with SnoozeClient(daemon.url) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left(directory: Path, daemon: Daemon) -> Iterator[None]:
    yield
    wait_until(lambda: not list((directory / "models").glob(".*")), "no draft is left")


def served(client: SnoozeClient, model: str) -> bool:
    return bool(np.array_equal(client.infer(model, {"x": ROW})["y"], ROW))


# ── the SDK ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_listed_and_served_when_the_call_returns(client: SnoozeClient, directory: Path) -> None:
    shown = client.models.upload(directory / "ident.onnx")
    assert (shown.id, shown.onnx_path) == ("ident", str(directory / "models" / "ident.onnx"))
    assert client.models.get("ident") == shown
    assert served(client, "ident")


def test_every_option_arrives(client: SnoozeClient, directory: Path, daemon: Daemon) -> None:
    shown = client.upload_model(
        (directory / "ident.onnx").read_bytes(), model_id="all", description='my "model" ü', pinned=True, max_batch_size=3, max_batch_delay_ms=7,
        idle_timeout_secs=77, min_residency_secs=5, autoscale_queue_threshold=2, max_replicas=2, routing_strategy="round_robin", device="cpu",
    )
    assert (shown.description, shown.pinned, shown.idle_timeout_secs) == ('my "model" ü', True, 77)
    assert (shown.max_batch_size, shown.max_batch_delay_ms) == (3, 7)
    daemon.wait_event("load", "all")
    text = (directory / "models" / "all.onnx.toml").read_text()
    for line in ("min_residency_secs = 5", "autoscale_queue_threshold = 2", "max_replicas = 2", 'routing_strategy = "round_robin"', 'device = "cpu"'):
        assert line in text


def test_what_exists_is_replaced_only_if_that_is_said(client: SnoozeClient, directory: Path) -> None:
    client.models.upload(directory / "ident.onnx", model_id="mine", description="kept", max_batch_size=9)
    with pytest.raises(SnoozeError, match="overwrite=true"):
        client.models.upload(directory / "log.onnx", model_id="mine")
    with pytest.raises(SnoozeError, match="overwrite=true"):
        client.models.upload(directory / "log.onnx", model_id="MINE")
    assert served(client, "mine")
    shown = client.models.upload(directory / "log.onnx", model_id="mine", overwrite=True, max_batch_size=8)
    assert (shown.description, shown.max_batch_size) == ("kept", 8)
    assert client.infer("mine", {"x": np.ones(2, np.float32)})["y"].tolist() == [0, 0]


def test_a_model_of_the_configuration_keeps_its_settings(client: SnoozeClient, directory: Path) -> None:
    with pytest.raises(SnoozeError, match=r"those of \[\[models\]\]"):
        client.models.upload(directory / "log.onnx", model_id="named", overwrite=True, max_batch_size=2)
    assert served(client, "named")
    client.models.upload(directory / "log.onnx", model_id="named", overwrite=True)
    assert client.infer("named", {"x": np.ones(2, np.float32)})["y"].tolist() == [0, 0]
    client.models.upload(directory / "ident.onnx", model_id="named", overwrite=True)


def test_wrong_options_and_wrong_files_change_nothing(client: SnoozeClient, directory: Path) -> None:
    before = client.models.list()
    with pytest.raises(exceptions.InvalidInputError, match=r"part max_batch_size: .* 1 or more"):
        client.models.upload(directory / "ident.onnx", model_id="wrong", max_batch_size=0)
    with pytest.raises(exceptions.InvalidInputError, match="part device"):
        client.models.upload(directory / "ident.onnx", model_id="wrong", device="tpu")
    with pytest.raises(exceptions.InvalidInputError, match=r"wrong.onnx cannot be served: wrong.onnx is not a readable ONNX file"):
        client.models.upload(b"this is no model", model_id="wrong")
    with pytest.raises(exceptions.InvalidInputError, match=r"named\.onnx cannot be served"):
        client.models.upload((directory / "ident.onnx").read_bytes()[:40], model_id="named", overwrite=True)
    with pytest.raises(exceptions.InvalidInputError, match=r"ends in .*\.onnx"):
        client.models.upload(b"abc", filename="model.zip")
    assert {model.id for model in client.models.list()} == {model.id for model in before}
    assert served(client, "named")


@pytest.mark.parametrize("name", [
    "..", "../x", "a/../../x", "/etc/x", "org/x", "a\0b", ".hidden", "x" * 129, "ü", "con fig", "a\\..\\x", ".upload-x", "-\n-",
])
def test_only_a_plain_id_counts(client: SnoozeClient, directory: Path, name: str) -> None:
    files = sorted(path for path in directory.rglob("*") if "cache" not in path.parts)
    with pytest.raises(exceptions.InvalidInputError, match="part model_id"):
        client.models.upload((directory / "ident.onnx").read_bytes(), filename="m.onnx", model_id=name)
    assert sorted(path for path in directory.rglob("*") if "cache" not in path.parts and not path.name.startswith(".upload-")) == files


@pytest.mark.parametrize(("name", "stem"), [("../../a1.onnx", "a1"), ("/etc/a2.onnx", "a2"), ("C:\\dir\\a3.onnx", "a3"), ("dir/a4.v2.onnx", "a4.v2")])
def test_of_a_file_name_the_stem_counts(client: SnoozeClient, directory: Path, name: str, stem: str) -> None:
    assert client.models.upload((directory / "ident.onnx").read_bytes(), filename=name).id == stem
    assert (directory / "models" / f"{stem}.onnx").is_file()


def test_deploy_sklearn(client: SnoozeClient) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((200, 4)).astype(np.float32)
    classes = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    for name, model in (("forest", RandomForestClassifier(5, max_depth=3, random_state=0)), ("logistic", LogisticRegression())):
        model.fit(rows, classes)
        for _ in range(2):  # it replaces what was there
            assert client.models.deploy_sklearn(model, model_id=name, sample_input=rows[:1], max_batch_size=32).max_batch_size == 32
        answer = client.infer(name, {"float_input": rows[:20]})
        assert np.allclose(answer["output"], model.predict_proba(rows[:20]), atol=1e-5)


def test_refresh_finds_what_is_new_changed_and_gone(client: SnoozeClient, directory: Path) -> None:
    models = directory / "models"
    shutil.copy(directory / "ident.onnx", models / "copied.onnx")
    (models / "copied.onnx.toml").write_text("max_batch_size = 11")
    assert {model.id: model.max_batch_size for model in client.models.refresh()}["copied"] == 11
    assert served(client, "copied")
    (models / "copied.onnx.toml").write_text("max_batch_size = 12")
    assert {model.id: model.max_batch_size for model in client.models.refresh()}["copied"] == 12
    (models / "copied.onnx.toml").write_text("max_batch_size = 0")
    assert {model.id: model.max_batch_size for model in client.models.refresh()}["copied"] == 12, "a mistake changes nothing"
    (models / "copied.onnx.toml").unlink()
    (models / "copied.onnx").unlink()
    assert "copied" not in {model.id for model in client.models.refresh()}


def test_the_asynchronous_client(daemon: Daemon, directory: Path) -> None:
    async def bring() -> None:
        async with AsyncSnoozeClient(daemon.url) as client:
            shown = await asyncio.gather(*(client.upload_model(directory / "ident.onnx", model_id=f"async-{number}") for number in range(4)))
            assert [model.id for model in shown] == [f"async-{number}" for number in range(4)]
            both = await asyncio.gather(
                *(client.upload_model(directory / "ident.onnx", model_id="raced") for _ in range(2)), return_exceptions=True,
            )
            assert sorted(isinstance(one, SnoozeError) for one in both) == [False, True]

    asyncio.run(bring())


# ── curl ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def curl(daemon: Daemon, *options: str) -> tuple[int, dict[str, str]]:
    command = ["curl", "-sS", "-w", "\n%{http_code}", *options, f"{daemon.url}/v1/models/upload"]
    body, _, status = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_curl(daemon: Daemon, client: SnoozeClient, directory: Path) -> None:
    status, shown = curl(daemon, "-F", f"file=@{directory / 'ident.onnx'}", "-F", "model_id=curled", "-F", "threads=1")
    assert (status, shown["id"]) == (200, "curled")
    assert served(client, "curled")


def test_curl_in_chunks(daemon: Daemon, client: SnoozeClient, directory: Path) -> None:
    form = ("-F", f"file=@{directory / 'ident.onnx'};filename=chunks.onnx", "-H", "transfer-encoding: chunked")
    assert curl(daemon, *form)[0] == 200
    assert served(client, "chunks")


@pytest.mark.parametrize(("options", "status", "words"), [
    (["-d", "x=1"], 415, "multipart/form-data"),
    (["-F", "model_id=a"], 400, "a part `file`"),
    (["-F", "file=text"], 400, "a file with its name"),
    (["-F", "file=@{ident}", "-F", "file=@{ident}"], 400, "there are two"),
    (["-F", "model_id=a", "-F", "model_id=b"], 400, "given twice"),
    (["-F", "other=@{ident}"], 400, "part other"),
    (["-F", "file=@{ident}", "-F", "max_batch_siz=1"], 400, "did you mean `max_batch_size`"),
    (["-F", "file=@{ident}", "-F", "path=/etc/passwd"], 400, "part path"),
    (["-F", "file=@{ident}", "-F", "backend=xgboost"], 400, "part backend"),
    (["-F", "file=@{ident}", "-F", "model_id=new", "-F", "min_replicas=3", "-F", "max_replicas=2"], 400, "min_replicas 3 is above max_replicas 2"),
    (["-F", "file=@{ident}", "-F", "overwrite=perhaps"], 400, "part overwrite: expected true or false"),
    (["-F", "file=@{large}"], 413, "max_upload"),
    (["-F", "file=@{large}", "-H", "transfer-encoding: chunked"], 413, "max_upload"),
])
def test_what_is_wrong_is_named(daemon: Daemon, directory: Path, options: list[str], status: int, words: str) -> None:
    (directory / "large.onnx").write_bytes(bytes(3_100_000))
    paths = {"ident": directory / "ident.onnx", "large": directory / "large.onnx"}
    found, answer = curl(daemon, *(option.format_map(paths) for option in options))
    assert (found, words in answer["error"]) == (status, True), answer


# ── through the daemon's life ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_lost_while_a_model_is_replaced_under_a_crowd(daemon: Daemon, client: SnoozeClient, directory: Path) -> None:
    client.models.upload(directory / "ident.onnx", model_id="busy")
    with Crowd(daemon, "busy", clients=4) as crowd:
        for size in (None, 5, None, 6):
            before = crowd.answered
            wait_until(lambda before=before: crowd.answered > before + 20, "requests are answered")
            client.models.upload(directory / "ident.onnx", model_id="busy", overwrite=True, max_batch_size=size)
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]


def test_models_and_settings_outlast_the_daemon(directory: Path, tmp_path: Path) -> None:
    options = ["--models-dir", str(tmp_path / "models"), "--no-grpc"]
    (tmp_path / "models").mkdir()
    with running(tmp_path / "daemon", *options) as daemon, SnoozeClient(daemon.url) as client:
        before = client.models.upload(directory / "ident.onnx", model_id="lasting", max_batch_size=3, description="for ever")
    with running(tmp_path / "daemon", *options) as daemon, SnoozeClient(daemon.url) as client:
        assert client.models.get("lasting") == before
        assert served(client, "lasting")


def test_without_a_directory_it_says_what_to_do(directory: Path, tmp_path: Path) -> None:
    keys = ("--api-key", "admin:boss-key-of-some-length", "--api-key", "user:user-key-of-some-length")
    with running(tmp_path, "--demo", "--no-grpc", *keys) as daemon:
        with SnoozeClient(daemon.url, api_key="boss-key-of-some-length") as client, pytest.raises(SnoozeError, match="--models-dir"):
            client.models.upload(directory / "ident.onnx")
        with SnoozeClient(daemon.url, api_key="user-key-of-some-length") as client, pytest.raises(exceptions.PermissionDeniedError):
            client.models.upload(directory / "ident.onnx")
        with SnoozeClient(daemon.url) as client, pytest.raises(exceptions.AuthenticationError):
            client.models.upload(directory / "ident.onnx")
        assert not re.search("Traceback", daemon.log)
