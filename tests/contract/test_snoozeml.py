"""The unmodified `snoozeml` client over HTTP against a real daemon."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from snoozeml import AsyncSnoozeClient, ModelState, SnoozeClient, exceptions

from tests import onnx_models
from tests.contract.conftest import TYPES
from tests.daemon import Daemon, frozen, running, wait_until

ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[SnoozeClient]:
    with SnoozeClient(daemon.url) as client:
        yield client


def state(client: SnoozeClient, model: str) -> ModelState:
    return client.models.get(model).state


# ── the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_health_and_information(client: SnoozeClient) -> None:
    assert client.health_live()
    assert client.health_ready()
    assert client.wait_until_ready(timeout=10)
    information = client.service_info()
    assert information["name"] == "wakeful"
    assert information["version"]


@pytest.mark.parametrize("address", ["http://localhost:{port}/", "http://127.0.0.1:{port}/", "127.0.0.1:{port}", "localhost:{port}"])
def test_every_way_to_write_the_address(daemon: Daemon, address: str) -> None:
    with SnoozeClient(address.format(port=daemon.port)) as client:
        assert client.health_ready()
        assert np.array_equal(client.infer("ident", {"x": ROW})["y"], ROW)


def test_metrics_count(client: SnoozeClient) -> None:
    before = client.get_metrics()
    client.infer("ident", {"x": ROW})
    client.infer("ident", {"x": ROW})
    with pytest.raises(exceptions.InvalidInputError):
        client.infer("ident", {"wrong": ROW})
    after = client.get_metrics()
    assert after.requests_success == before.requests_success + 2
    assert after.requests_error == before.requests_error + 1
    assert after.requests_total == before.requests_total + 3
    assert after.requests_total == after.requests_success + after.requests_error
    assert after.batches_dispatched_total == before.batches_dispatched_total + 2
    assert after.inference_latency_seconds_total > before.inference_latency_seconds_total
    assert after.average_latency_ms > 0


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_listing(daemon: Daemon, client: SnoozeClient) -> None:
    models = {model.id: model for model in client.models.list()}
    assert {"ident", "org/ident", "merging", "broken", "asleep"} <= models.keys()
    asleep = models["asleep"]
    assert asleep.state is ModelState.IDLE
    assert not asleep.is_loaded
    assert asleep.onnx_path.endswith("asleep.onnx")
    assert (asleep.idle_timeout_secs, asleep.max_batch_size, asleep.max_batch_delay_ms) == (300, 64, 10)
    assert (asleep.last_accessed_secs_ago, asleep.memory_bytes, asleep.pinned, asleep.description) == (0, 0, False, None)
    assert models["merging"].max_batch_delay_ms == 50
    assert models["org/ident"].description == "a name with a slash"
    assert client.models.get("org/ident") == models["org/ident"]
    with pytest.raises(exceptions.ModelNotFoundError):
        client.models.get("nobody")


def test_looking_wakes_nobody(daemon: Daemon, client: SnoozeClient) -> None:
    client.models.list()
    client.models.refresh()
    client.metrics()
    assert daemon.call("GET", "/v2/models/asleep")[1]["inputs"][0]["name"] == "x"
    assert state(client, "asleep") is ModelState.IDLE
    assert not [event for event in daemon.events(model="asleep") if event["kind"] == "load"]


def test_load_and_unload(client: SnoozeClient) -> None:
    assert client.models.load("external") == {"model_id": "external", "status": "loaded"}
    info = client.models.get("external")
    assert info.state is ModelState.READY
    assert info.is_loaded
    assert info.memory_bytes > 0
    assert client.models.wait_for_ready("external", timeout=5).id == info.id
    assert client.models.unload("external") == {"model_id": "external", "status": "unloaded"}
    assert state(client, "external") is ModelState.IDLE
    assert client.models.get("external").memory_bytes == 0
    assert client.models.evict("external")["status"] == "unloaded"
    assert client.models.wait_for_ready("external", trigger_load=True).is_loaded


def test_pin_and_unpin(client: SnoozeClient) -> None:
    assert client.models.pin("two_inputs") == {"model_id": "two_inputs", "status": "pinned", "pinned": True}
    assert client.models.get("two_inputs").pinned
    assert client.models.get("two_inputs").is_loaded
    assert client.models.unpin("two_inputs") == {"model_id": "two_inputs", "status": "unpinned", "pinned": False}
    assert not client.models.get("two_inputs").pinned
    assert client.models.load("two_inputs", pin=True)["pinned"]
    client.models.unpin("two_inputs")


def test_states_of_a_model(daemon: Daemon, client: SnoozeClient) -> None:
    """Its processes are stopped in the middle of loading and of running, so that nothing here depends on who is faster."""

    def pid(kind: str) -> int:
        return next(pid for pid, what in daemon.children().items() if what == kind)

    for model in client.models.list():
        client.models.unload(model.id)
    wait_until(lambda: not daemon.replicas(), "all replicas are gone")
    with ThreadPoolExecutor(1) as thread:
        with frozen(pid("nursery")):
            answer = thread.submit(client.infer, "gather10", {"i": [3.0]})
            wait_until(lambda: state(client, "gather10") is ModelState.LOADING, "the model is loading")
            assert not client.models.get("gather10").is_loaded
        assert answer.result()["y"].tolist() == [30]
        assert state(client, "gather10") is ModelState.READY
        wait_until(lambda: len(daemon.children()) == 2, "only the replica is left beside the nursery")
        with frozen(pid("replica")):
            answer = thread.submit(client.infer, "gather10", {"i": [4.0]})
            wait_until(lambda: state(client, "gather10") is ModelState.BUSY, "the model is busy")
            assert client.models.get("gather10").is_loaded
        assert answer.result()["y"].tolist() == [40]


def test_refresh_finds_new_changed_and_vanished_files(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    file = onnx_models.ident(models / "first.onnx")
    with running(tmp_path, "--models-dir", str(models)) as daemon, SnoozeClient(daemon.url) as client:
        assert client.infer("first", {"x": ROW})["y"].tolist() == ROW.tolist()
        onnx_models.log(models / "second.onnx")
        assert {model.id for model in client.models.refresh()} == {"first", "second"}
        assert client.infer("second", {"x": [1.0]})["y"].tolist() == [0]
        file.unlink()
        onnx_models.two_inputs(file)
        client.models.refresh()
        with pytest.raises(exceptions.InvalidInputError):
            client.infer("first", {"x": ROW})
        assert client.infer("first", {"a": [[3.0, 3]], "b": [[1.0, 2]]})["y"].tolist() == [[2, 1]]
        file.unlink()
        onnx_models.ident(models / "SECOND.onnx")
        onnx_models.ident(models / "two words.onnx")
        assert [model.id for model in client.models.refresh()] == ["second"]
        daemon.wait_event("config", text="SECOND.onnx is passed over")
        daemon.wait_event("config", text="two words.onnx is passed over")
        with pytest.raises(exceptions.ModelNotFoundError):
            client.infer("first", {"x": ROW})


# ── inference ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inference(client: SnoozeClient) -> None:
    response = client.infer("org/ident", {"x": [[0.1, 2, 3, 4]]})
    assert response.model_id == "org/ident"
    assert response.duration_ms > 0
    assert response["y"].dtype == np.float32
    assert np.array_equal(response["y"], np.array([[0.1, 2, 3, 4]], np.float32))
    assert [output.name for output in client.infer("merging", {"x": [[1.0]]}).outputs] == ["y", "z"]
    assert client.infer("two_inputs", {"b": [[1.0, 2]], "a": [[5.0, 6]]})["y"].tolist() == [[4, 4]]
    assert client.infer("optional_input", {"x": [[1.0, 2]]})["y"].tolist() == [[2, 4]]


def test_numbers_become_what_the_model_declares_and_come_back_as_floats(client: SnoozeClient) -> None:
    assert client.infer("gather10", {"i": [1, 9, -1]})["y"].tolist() == [10, 90, 90]
    for datatype in TYPES:
        if datatype == "BF16":
            with pytest.raises(exceptions.InvalidInputError, match="the model takes BF16"):
                client.infer("types/BF16", {"x": [[1, 0]]})
            continue
        result = client.infer(f"types/{datatype}", {"x": [[1, 0]]})["y"]
        assert result.dtype == np.float32
        assert result.tolist() == [[1, 0]]


def test_what_is_no_number_comes_back_so(client: SnoozeClient) -> None:
    """0, -Infinity and NaN: null in JSON, which this client reads as NaN."""
    assert np.array_equal(client.infer("log", {"x": [1.0, 0, -1]})["y"], np.array([0, np.nan, np.nan], np.float32), equal_nan=True)


def test_a_data_set_in_pieces(client: SnoozeClient) -> None:
    x = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    assert np.array_equal(client.infer_dataset("ident", {"x": x}, batch_size=32)["y"], x)
    assert np.array_equal(client.infer_dataset("ident", {"x": x}, batch_size=7)["y"], x)


def test_many_callers_get_their_own_rows(daemon: Daemon) -> None:
    def ask(number: int) -> bool:
        x = np.full((1 + number % 3, 1), number, np.float32)
        with SnoozeClient(daemon.url) as client:
            return np.array_equal(client.infer("merging", {"x": x})["z"], -x)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(100)))


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "inputs", "error", "status", "words"),
    [
        ("nobody", {"x": ROW}, exceptions.ModelNotFoundError, 404, "nobody"),
        ("ident", {"x": ROW[:, :3]}, exceptions.ShapeMismatchError, 400, "[1,3]"),
        ("ident", {"x": ROW[0]}, exceptions.ShapeMismatchError, 400, "[4]"),
        ("fixed1", {"x": np.zeros((2, 4))}, exceptions.ShapeMismatchError, 400, "[2,4]"),
        ("ident", {"input": ROW}, exceptions.InvalidInputError, 400, "'input'"),
        ("two_inputs", {"a": [[1.0, 2]]}, exceptions.InvalidInputError, 400, "'b'"),
        ("gather10", {"i": [99.0]}, exceptions.InvalidInputError, 400, ""),
        ("gather10", {"i": [1e30]}, exceptions.InvalidInputError, 400, "INT64"),
        ("gather10", {"i": [2.0**63]}, exceptions.InvalidInputError, 400, "INT64"),
        ("strid", {"x": [1.0]}, exceptions.InvalidInputError, 400, "/v2/"),
        ("hungry", {"size": [1e15]}, exceptions.OutOfMemoryError, 503, "out of memory"),
        ("broken", {"x": ROW}, exceptions.ResourceExhaustedError, 503, "broken.onnx"),
        ("hasty", {"x": ROW}, exceptions.InferenceTimeoutError, 504, ""),
    ],
)
def test_errors_become_the_clients_exceptions(
    client: SnoozeClient, model: str, inputs: dict[str, object], error: type[exceptions.SnoozeError], status: int, words: str
) -> None:
    for _ in range(2):
        with pytest.raises(error) as caught:
            client.infer(model, inputs)
        assert type(caught.value) is error
        assert caught.value.status_code == status
        assert words.lower() in caught.value.message.lower()
        assert "Traceback" not in caught.value.message
        assert status != 503 or (caught.value.retry_after or 0) >= 1
    assert client.infer("ident", {"x": ROW})["y"].tolist() == ROW.tolist()


@pytest.mark.parametrize("verb", ["load", "unload", "pin", "unpin"])
def test_nobody_has_no_life(client: SnoozeClient, verb: str) -> None:
    with pytest.raises(exceptions.ModelNotFoundError):
        getattr(client.models, verb)("nobody")


def test_a_failed_load_says_why(client: SnoozeClient) -> None:
    for verb in (client.models.load, client.models.pin):
        with pytest.raises(exceptions.ResourceExhaustedError, match=r"broken\.onnx"):
            verb("broken")
    client.models.unpin("broken")
    assert state(client, "broken") is ModelState.IDLE


def test_a_full_queue_is_worth_another_try(daemon: Daemon) -> None:
    """Refused with 503, so that the client's retries bring everybody through."""

    def ask(_: int) -> list[list[float]]:
        with SnoozeClient(daemon.url, max_retries=30) as client:
            rows: list[list[float]] = client.infer("narrow", {"x": ROW})["y"].tolist()
            return rows

    with ThreadPoolExecutor(12) as threads:
        assert all(rows == ROW.tolist() for rows in threads.map(ask, range(12)))
    assert daemon.metric("wakeful_requests_total", model="narrow", protocol="snooze", outcome="overloaded") > 0


def test_a_daemon_that_is_not_there() -> None:
    with SnoozeClient("http://127.0.0.1:9", timeout=5) as client, pytest.raises(exceptions.SnoozeConnectionError):
        client.health_live()


# ── the asynchronous client ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_asynchronous_client(daemon: Daemon) -> None:
    async def use() -> None:
        async with AsyncSnoozeClient(daemon.url) as client:
            assert await client.health_live()
            assert await client.health_ready()
            assert (await client.service_info())["name"] == "wakeful"
            assert (await client.models.load("ident"))["status"] == "loaded"
            assert (await client.models.get("ident")).is_loaded
            answers = await asyncio.gather(*(client.infer("ident", {"x": ROW + number}) for number in range(20)))
            assert all(np.array_equal(answer["y"], ROW + number) for number, answer in enumerate(answers))
            assert np.array_equal((await client.infer_dataset("ident", {"x": np.repeat(ROW, 50, 0)}, batch_size=16))["y"], np.repeat(ROW, 50, 0))
            assert (await client.models.pin("ident"))["pinned"]
            assert not (await client.models.unpin("ident"))["pinned"]
            assert (await client.models.unload("ident"))["status"] == "unloaded"
            assert len(await client.models.refresh()) == len(await client.models.list())
            assert (await client.get_metrics()).requests_success > 0
            with pytest.raises(exceptions.ModelNotFoundError):
                await client.infer("nobody", {"x": ROW})

    asyncio.run(use())
