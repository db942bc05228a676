"""Merging strangers' requests: the seed's own examples, and what people have reported of other servers (C01 to C13), against a real daemon."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until
from tests.e2e.asking import Question, ask, ask_together, oip, tensor

MINUTE = "max_batch_delay_ms = 60000"
"""Only reaching max_batch_size can make a test with this delay end in time."""

TABLES = {
    "projection": f'batch_policy = "timer"\nmax_batch_size = 4\n{MINUTE}',
    "ident": f'batch_policy = "timer"\nmax_batch_size = 7\n{MINUTE}',
    "prompt": 'batch_policy = "timer"\nmax_batch_size = 1000\nmax_batch_delay_ms = 200',
    "constout": "",
    "nonzero": "",
    "mean0": "",
    "scalar": "",
    "centred": "",
    "disguised_nonzero": "",
    "renamed": "",
    "renamed_on": f'batching = "on"\nbatch_policy = "timer"\nmax_batch_size = 3\n{MINUTE}',
    "fixed1": "max_batch_size = 8",
    "fixed4": "max_batch_size = 8",
    "fixed1_on": 'max_batch_size = 8\nbatching = "on"',
    "gather10": f'batch_policy = "timer"\nmax_batch_size = 4\n{MINUTE}',
    "packed": 'batch_policy = "timer"\nmax_batch_size = 8\nmax_batch_delay_ms = 300',
    "identdyn": 'batch_policy = "timer"\nmax_batch_size = 6\nmax_batch_delay_ms = 1000',
    "two_inputs": f'batch_policy = "timer"\nmax_batch_size = 2\n{MINUTE}',
    "optional_input": 'batch_policy = "timer"\nmax_batch_size = 3\nmax_batch_delay_ms = 1000',
    "two_outputs": f'batch_policy = "timer"\nmax_batch_size = 5\n{MINUTE}',
    "crowd": "max_batch_size = 8\nmax_replicas = 1",
    "no_delay": 'batch_policy = "timer"\nmax_batch_size = 64\nmax_batch_delay_ms = 0\nmax_replicas = 1',
    "masked": f'batch_policy = "timer"\nmax_batch_size = 4\n{MINUTE}\npad = {{ axis = 1, value = 5, mask = "mask" }}',
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("merging")
    models = directory / "models"
    models.mkdir()
    makers = {
        "prompt": onnx_models.ident, "packed": onnx_models.ident, "crowd": onnx_models.identdyn, "fixed1_on": onnx_models.fixed1,
        "fixed4": fixed4, "renamed": renamed, "renamed_on": renamed, "no_delay": onnx_models.slow,
    }
    for name in TABLES:
        make = makers.get(name) or getattr(onnx_models, name)
        make(models / f"{name}.onnx")
    config = "".join(f'[[models]]\nid = "{name}"\npath = "{name}.onnx"\n{table}\n' for name, table in TABLES.items())
    (models / "models.toml").write_text(config)
    with running(directory, "--config", str(models / "models.toml")) as daemon:
        yield daemon


def fixed4(path: Path) -> Path:
    """x FP32 [4,4] -> y the same; axis 0 is fixed."""
    return onnx_models.write(path, "fixed4 (float[4,4] x) => (float[4,4] y) { y = Identity(x) }")


def renamed(path: Path) -> Path:
    """x FP32 [N,4] -> y the same, but that it calls its rows M."""
    return onnx_models.write(path, "renamed (float[N,4] x) => (float[M,4] y) { y = Identity(x) }")


class Runs(NamedTuple):
    """What a model has run."""

    number: int
    rows: int
    up_to_8: int
    """Runs of at most 8 rows."""

    def since(self, before: "Runs") -> "Runs":
        return Runs(*(now - then for now, then in zip(self, before, strict=True)))


def runs(daemon: Daemon, model: str) -> Runs:
    """Awake, and its batching decided; then its runs so far."""
    status, _ = daemon.call("POST", f"/v2/repository/models/{model}/load")
    assert status == 200
    name = "wakeful_batch_rows"
    return Runs(
        int(daemon.metric(f"{name}_count", model=model)),
        int(daemon.metric(f"{name}_sum", model=model)),
        int(daemon.metric(f"{name}_bucket", model=model, le="8.0") or daemon.metric(f"{name}_bucket", model=model, le="8")),
    )


def x(model: str, rows: int, width: int, first: float, **more: object) -> Question:
    """x FP32 [rows, width], counted up from `first`."""
    return oip(model, tensor("x", [rows, width], [first + at for at in range(rows * width)]), **more)


def batching(daemon: Daemon, model: str) -> dict[str, object]:
    status, metadata = daemon.call("GET", f"/v2/models/{model}")
    assert status == 200
    found: dict[str, object] = metadata["batching"]
    return found


# ── the seed's examples ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_b_and_c_share_one_run_and_get_exactly_their_slices(daemon: Daemon, tmp_path: Path) -> None:
    """[1,384] + [2,384] + [1,384] = 4 rows = max_batch_size: one run at once, whatever the delay. Its average batch size is 3 / 1."""
    before = runs(daemon, "projection")
    asked, dispatched = daemon.metric("snoozeml_requests_total", status="all"), daemon.metric("snoozeml_batches_dispatched_total")
    random = np.random.default_rng(0)
    inputs = [random.integers(0, 10, (rows, 384)) for rows in (1, 2, 1)]
    answers = ask_together(daemon, [oip("projection", tensor("x", array.shape, array.ravel().tolist())) for array in inputs])
    model = onnx.load(onnx_models.projection(tmp_path / "projection.onnx"))
    weights = numpy_helper.to_array(model.graph.initializer[0])
    for array, answer in zip(inputs, answers, strict=True):
        (output,) = answer.json["outputs"]
        assert output["shape"] == [len(array), 768]
        assert output["data"] == (array @ weights).ravel().tolist()
    assert runs(daemon, "projection").since(before) == Runs(1, 4, 1)
    assert daemon.metric("snoozeml_requests_total", status="all") - asked == 3
    assert daemon.metric("snoozeml_batches_dispatched_total") - dispatched == 1


def test_what_never_fills_a_batch_leaves_when_the_delay_is_over(daemon: Daemon) -> None:
    """C13."""
    before = runs(daemon, "prompt")
    waited = daemon.metric("wakeful_queue_seconds_sum", model="prompt")
    answers = ask_together(daemon, [x("prompt", 1, 4, k) for k in range(3)])
    assert [answer.output() for answer in answers] == [[k, k + 1, k + 2, k + 3] for k in range(3)]
    done = runs(daemon, "prompt").since(before)
    assert done.rows == 3
    assert done.number < 3
    assert daemon.metric("wakeful_queue_seconds_sum", model="prompt") - waited >= 0.2, "the first waited for company as long as it may"


# ── correctness ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c01_everybody_gets_his_rows_in_both_dialects(daemon: Daemon) -> None:
    """C01."""
    counts = (1, 2, 3, 1)
    before = runs(daemon, "ident")
    rounds = 500
    for _ in range(rounds):
        questions = []
        for caller, rows in enumerate(counts):
            question = x("ident", rows, 4, 100 * caller, id=f"caller {caller}")
            questions.append(question._replace(path="/v1/models/ident/infer") if caller == 2 else question)
        for caller, (rows, answer) in enumerate(zip(counts, ask_together(daemon, questions), strict=True)):
            assert answer.output() == [100 * caller + at for at in range(rows * 4)]
            assert answer.json["outputs"][0]["shape"] == [rows, 4]
            if caller != 2:
                assert answer.json["id"] == f"caller {caller}"
    assert runs(daemon, "ident").since(before) == Runs(rounds, 7 * rounds, rounds), "each round was one run"


def test_c02_what_has_no_batch_axis_is_never_cut(daemon: Daemon) -> None:
    """C02: the lengths agree by chance, and yet nothing is cut. `centred` and `disguised_nonzero` declare what they do not keep."""
    for model in ("constout", "nonzero", "disguised_nonzero", "mean0", "scalar", "centred"):
        runs(daemon, model)
        assert batching(daemon, model)["merged"] is False
    for _ in range(5):
        one, two = ask_together(daemon, [x("constout", 1, 1, k) for k in (7, 8)])
        assert (one.output("y"), one.output("c")) == ([7], [1, 2])
        assert (two.output("y"), two.output("c")) == ([8], [1, 2])
        for model in ("nonzero", "disguised_nonzero"):
            indices = ask_together(daemon, [oip(model, tensor("x", [1], [k])) for k in (5, 6, 7)])
            assert [(answer.output(), answer.json["outputs"][0]["shape"]) for answer in indices] == [([0], [1, 1])] * 3
        means = ask_together(daemon, [oip("mean0", tensor("x", [1, 4], [k] * 4)) for k in (1, 3)])
        assert [answer.output() for answer in means] == [[1], [3]]
        assert [answer.json["outputs"][0]["shape"] for answer in means] == [[], []]
        scalars = ask_together(daemon, [oip("scalar", tensor("x", [], [k])) for k in (1, 2)])
        assert [answer.output() for answer in scalars] == [[1], [2]]
        centred = ask_together(daemon, [oip("centred", tensor("x", [1, 4], [k] * 4)) for k in (1, 3)])
        assert [answer.output() for answer in centred] == [[0] * 4, [0] * 4]


def test_c02_the_owner_knows_better_where_the_exporter_named_axis_0_otherwise(daemon: Daemon) -> None:
    """C02: declared so, it might be another number of rows; `batching = "on"` says that it is not."""
    for model, number in (("renamed", 3), ("renamed_on", 1)):
        before = runs(daemon, model)
        answers = ask_together(daemon, [x(model, 1, 4, k) for k in range(3)])
        assert [answer.output()[0] for answer in answers] == [0, 1, 2]
        assert runs(daemon, model).since(before) == Runs(number, 3, number)
    assert "axis 0 of output y is M, of input x it is N" in str(batching(daemon, "renamed")["reason"])


@pytest.mark.parametrize(("model", "rows"), [("fixed1", 1), ("fixed4", 4), ("fixed1_on", 1)])
def test_c04_a_fixed_axis_0_is_not_merged(daemon: Daemon, model: str, rows: int) -> None:
    """C04: whatever the settings say. The load tells of it, and the description."""
    before = runs(daemon, model)
    daemon.wait_event("probe", model, text=f"runs requests one by one: input x has axis 0 fixed to {rows}")
    answers = ask_together(daemon, [x(model, rows, 4, 10 * k) for k in range(20)])
    assert [answer.output()[0] for answer in answers] == [10 * k for k in range(20)]
    assert runs(daemon, model).since(before) == Runs(20, 20 * rows, 20)
    refused = ask(daemon, x(model, 2, 4, 0))
    assert refused.status == 400
    assert f"expected [{rows},4], got [2,4]" in refused.json["error"]
    assert batching(daemon, model)["merged"] is False
    assert f"axis 0 fixed to {rows}" in str(batching(daemon, model)["reason"])
    assert daemon.call("GET", f"/v2/models/{model}/config")[1]["max_batch_size"] == 0


def test_c05_only_the_culprit_fails(daemon: Daemon) -> None:
    """C05. A batch that cannot even be put together: `tests/faults/test_batches.py`."""
    before = runs(daemon, "gather10")
    one, two, bad, three = ask_together(daemon, [oip("gather10", tensor("i", [1], [k], "INT64")) for k in (1, 2, 99, 3)])
    assert [answer.output() for answer in (one, two, three)] == [[10], [20], [30]]
    assert bad.status == 400
    assert "99" in bad.json["error"]
    again = ask_together(daemon, [oip("gather10", tensor("i", [1], [k], "INT64")) for k in (4, 5, 6, -1)])
    assert [answer.output() for answer in again] == [[40], [50], [60], [90]]
    done = runs(daemon, "gather10").since(before)
    assert done.rows == 12, "four together, each of them alone, and four more together"


def test_c07_the_limit_counts_rows(daemon: Daemon) -> None:
    """C07. What is larger than one run is run in parts, and joined in order."""
    before = runs(daemon, "packed")
    for counts in ((4, 4, 4, 4), (7, 7, 6), (20, 3)):
        answers = ask_together(daemon, [x("packed", rows, 4, 1000 * caller) for caller, rows in enumerate(counts)])
        for caller, (rows, answer) in enumerate(zip(counts, answers, strict=True)):
            assert answer.output() == [1000 * caller + at for at in range(rows * 4)]
    done = runs(daemon, "packed").since(before)
    assert done.rows == 16 + 20 + 23
    assert done.up_to_8 == done.number


def test_c09_only_like_shapes_are_merged(daemon: Daemon) -> None:
    """C09."""
    before = runs(daemon, "identdyn")
    shapes = ((1, 15), (3, 20), (2, 15))
    answers = ask_together(daemon, [x("identdyn", *shape, 100 * k) for k, shape in enumerate(shapes)])
    for k, (shape, answer) in enumerate(zip(shapes, answers, strict=True)):
        assert answer.json["outputs"][0]["shape"] == list(shape)
        assert answer.output() == [100 * k + at for at in range(shape[0] * shape[1])]
    assert runs(daemon, "identdyn").since(before) == Runs(2, 6, 2)


def test_c09_inputs_go_by_name(daemon: Daemon) -> None:
    """C09."""
    before = runs(daemon, "two_inputs")
    a, b = tensor("a", [1, 2], [10, 20]), tensor("b", [1, 2], [1, 2])
    answers = ask_together(daemon, [oip("two_inputs", a, b), oip("two_inputs", b, a)])
    assert [answer.output() for answer in answers] == [[9, 18], [9, 18]]
    assert runs(daemon, "two_inputs").since(before) == Runs(1, 2, 1)


def test_c09_an_optional_input_is_its_callers_own(daemon: Daemon) -> None:
    """C09."""
    runs(daemon, "optional_input")
    scale = tensor("scale", [1], [100])
    given = [oip("optional_input", tensor("x", [1, 2], [k, k]), *([scale] if k == 2 else [])) for k in (1, 2, 3)]
    assert [answer.output() for answer in ask_together(daemon, given)] == [[2, 2], [200, 200], [6, 6]]


def test_c10_outputs_ids_and_parameters_are_each_callers_own(daemon: Daemon) -> None:
    """C10, in one run. No parameter changes how a model is executed, so none parts a group."""
    before = runs(daemon, "two_outputs")
    wishes: list[dict[str, object]] = [
        {"outputs": [{"name": "z"}], "id": "a", "parameters": {"priority": 1}},
        {"outputs": [{"name": "y"}], "id": "b", "parameters": {"priority": 2}},
        {"id": "c"},
        {"outputs": [{"name": "z"}, {"name": "y"}], "id": "d"},
        {"outputs": [{"name": "nope"}], "id": "e"},
        {},
    ]
    answers = ask_together(daemon, [x("two_outputs", 1, 1, k + 1, **wish) for k, wish in enumerate(wishes)])
    names = [[output["name"] for output in answer.json["outputs"]] for answer in answers if answer.status == 200]
    assert names == [["z"], ["y"], ["y", "z"], ["z", "y"], ["y", "z"]]
    assert (answers[0].output(), answers[1].output(), answers[3].output("z")) == ([-1], [2], [-4])
    assert [answer.json.get("id") for answer in answers if answer.status == 200] == ["a", "b", "c", "d", None]
    assert answers[4].status == 400
    assert "nope" in answers[4].json["error"]
    assert runs(daemon, "two_outputs").since(before) == Runs(1, 5, 1)


def test_c10_of_a_model_that_does_not_merge_too(daemon: Daemon) -> None:
    """C10."""
    wishes: list[dict[str, object]] = [
        {"outputs": [{"name": "c"}], "id": "a"}, {"outputs": [{"name": "y"}], "id": "b"}, {"id": "c"},
        {"outputs": [{"name": "c"}, {"name": "y"}]}, {"outputs": [{"name": "nope"}], "id": "e"},
    ]
    *answers, unknown = ask_together(daemon, [x("constout", 1, 1, k, **wish) for k, wish in enumerate(wishes)])
    shown = [[(output["name"], output["data"]) for output in answer.json["outputs"]] for answer in answers]
    pair = ("c", [1, 2])
    assert shown == [[pair], [("y", [1])], [("y", [2]), pair], [pair, ("y", [3])]]
    assert [answer.json.get("id") for answer in answers] == ["a", "b", "c", None]
    assert (unknown.status, "nope" in unknown.json["error"]) == (400, True)


def test_rows_without_elements_are_not_counted_out(daemon: Daemon) -> None:
    """A hundred bytes may claim as many of them as they like: cut into runs of six, they would fill the daemon's memory and its queue."""
    before = runs(daemon, "identdyn")
    status, answer = daemon.infer("identdyn", "x", [], [2**40, 0])
    assert (status, answer["outputs"][0]["shape"], answer["outputs"][0]["data"]) == (200, [2**40, 0], [])
    assert runs(daemon, "identdyn").since(before).number == 1
    assert daemon.infer("identdyn", "x", [], [0, 2**62])[0] == 400


def test_c12_a_rare_shape_and_a_large_request_are_not_starved(daemon: Daemon) -> None:
    """C12. How soon is their turn: `test_turns.py`."""
    runs(daemon, "crowd")
    with Crowd(daemon, "crowd", clients=12) as crowd:
        wait_until(lambda: crowd.answered > 50, "the crowd is at work")
        for k in range(10):
            rare, large = ask_together(daemon, [x("crowd", 1, 7, 10 * k), x("crowd", 40, 4, k)])
            assert rare.output() == [10 * k + at for at in range(7)]
            assert large.output() == [k + at for at in range(160)]
        then = crowd.answered
        wait_until(lambda: crowd.answered > then, "the crowd goes on")
    assert not crowd.wrong
    assert set(crowd.statuses) == {200}


# ── timing, by what was run and not by the clock ─────────────────────────────────────────────────────────────────────────────────────────


def test_c13_a_full_batch_does_not_wait_and_a_queue_left_over_goes_with_the_next(daemon: Daemon) -> None:
    """C13: the delay is a minute: whoever answers here was not waited for."""
    before = runs(daemon, "projection")
    answers = ask_together(daemon, [x("projection", 1, 384, 0) for _ in range(8)])
    assert {answer.status for answer in answers} == {200}
    assert runs(daemon, "projection").since(before) == Runs(2, 8, 2)


def test_c13_without_a_delay_what_waits_is_merged(daemon: Daemon) -> None:
    """C13."""
    before = runs(daemon, "no_delay")
    answers = ask_together(daemon, [x("no_delay", 1, 4, k) for k in range(60)])
    assert [answer.output()[0] for answer in answers] == list(range(60))
    done = runs(daemon, "no_delay").since(before)
    assert done.rows == 60
    assert done.number < 60, "while one runs, others gather"


# ── padding ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_padded_answers_equal_lone_answers(daemon: Daemon) -> None:
    before = runs(daemon, "masked")
    sent = tensor("mask", [1, 3], [1, 0, 1], "INT64")
    questions = [
        oip("masked", tensor("x", [1, 2], [1, 2])),
        oip("masked", tensor("x", [1, 3], [3, 4, 5]), sent),
        oip("masked", tensor("x", [2, 5], list(range(10)))),
    ]
    short, own_mask, long = ask_together(daemon, questions)
    assert runs(daemon, "masked").since(before) == Runs(1, 4, 1)
    assert (short.output("doubled"), short.output("total")) == ([2, 4], [3])
    assert (own_mask.output("doubled"), own_mask.output("total")) == ([6, 8, 10], [8])
    assert (long.output("doubled"), long.output("total")) == ([2 * k for k in range(10)], [10, 35])
    filler = x("masked", 4, 2, 0)  # a batch of its own
    assert ask(daemon, filler).output("total") == [1, 5, 9, 13]


# ── when it is decided ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_self_test_that_outlasts_the_model_decides_all_the_same(tmp_path: Path) -> None:
    """Else a model that is used briefly and rarely would never be merged, and tested anew at every wake."""
    onnx_models.slow(tmp_path / "brief.onnx", 4000)
    (tmp_path / "models.toml").write_text('[[models]]\nid = "brief"\npath = "brief.onnx"\nidle_timeout_secs = 0.05\n')
    with running(tmp_path, "--config", str(tmp_path / "models.toml"), "--no-grpc") as daemon:
        assert ask(daemon, x("brief", 1, 4, 1)).status == 200
        daemon.wait_event("unload", "brief", text="idle")
        daemon.wait_event("probe", "brief", text="merges requests")
        assert batching(daemon, "brief")["merged"] is True
        wait_until(lambda: not daemon.replicas(), "the process of the test has gone")
