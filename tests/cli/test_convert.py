"""`wakeful convert` on real files: what it writes, what it says, and what the program in a pickle cannot do."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests import trees

MATRIX = np.nan_to_num(trees.rows())
LABELS = np.array(["no", "yes"])[trees.targets(MATRIX, 2)]


def convert(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wakeful", "convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, env=os.environ | env, stdin=subprocess.DEVNULL)


def answers(path: Path, **feed: np.ndarray) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    answer: list[Any] = ort.InferenceSession(path.read_bytes(), options).run(None, feed)
    return answer


def saved(path: Path, model: Any) -> Path:
    path.write_bytes(pickle.dumps(model))
    return path


def test_a_classifier(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(MATRIX, LABELS)
    done = convert(saved(tmp_path / "m.joblib", model))
    assert done.returncode == 0, done.stderr
    assert "sklearn's LogisticRegression" in done.stdout
    assert "inputs      input float [N, 5]" in done.stdout
    assert "difference  " in done.stdout
    label, probabilities = answers(tmp_path / "m.onnx", input=MATRIX)
    assert label.tolist() == model.predict(MATRIX).tolist()
    np.testing.assert_allclose(probabilities, model.predict_proba(MATRIX), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.joblib", "m.onnx"]
    again = convert(tmp_path / "m.joblib")
    assert (again.returncode, "is there already" in again.stderr, "--force" in again.stderr) == (2, True, True)


def test_columns_of_several_types(tmp_path: Path) -> None:
    import pandas as pd  # type: ignore[import-untyped]
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pd.DataFrame({"size": MATRIX[:, 0], "city": np.array(["Bonn", "Ulm"])[np.arange(len(MATRIX)) % 2]})
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    model = make_pipeline(columns, LinearRegression()).fit(frame, trees.targets(MATRIX))
    done = convert(saved(tmp_path / "m.pkl", model), "-o", tmp_path / "out.onnx", "--inputs", "size:FP32,city:BYTES", "--opset", 17)
    assert done.returncode == 0, done.stderr
    [answer] = answers(tmp_path / "out.onnx", size=frame[["size"]].to_numpy(np.float32), city=frame[["city"]].to_numpy(object))
    np.testing.assert_allclose(answer.ravel(), model.predict(frame), atol=1e-4)


def test_xgboost_that_stopped_early_and_lightgbm(tmp_path: Path) -> None:
    import xgboost

    wanted = trees.targets(MATRIX, 2)
    noise = np.random.default_rng(0).integers(0, 2, len(wanted))
    wrapper = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, random_state=0, early_stopping_rounds=3)
    wrapper.fit(MATRIX, wanted, eval_set=[(MATRIX, np.where(noise, wanted, 1 - wanted))], verbose=False)
    wrapper.save_model(tmp_path / "m.xgb.json")
    booster = trees.lightgbm_model(tmp_path / "l.lgb.txt", 3)
    for name in ("m.xgb.json", "l.lgb.txt"):
        done = convert(tmp_path / name)
        assert done.returncode == 0, done.stderr
    _, probabilities = answers(tmp_path / "m.onnx", input=MATRIX)
    np.testing.assert_allclose(probabilities, wrapper.predict_proba(MATRIX), atol=1e-5)
    _, probabilities = answers(tmp_path / "l.onnx", input=MATRIX)
    np.testing.assert_allclose(probabilities, booster.predict(MATRIX, num_threads=1), atol=1e-5)


def test_what_the_converter_does_not_know_is_not_written(tmp_path: Path) -> None:
    trees.xgboost_model(tmp_path / "rank.ubj", 3, objective="rank:ndcg", num_class=None, data={"group": [20] * 10})
    trees.xgboost_model(tmp_path / "dart.ubj", booster="dart")
    for name, reason in (("rank.ubj", "made something else"), ("dart.ubj", "its booster is dart")):
        done = convert(tmp_path / name)
        assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dart.ubj", "rank.ubj"]


PROGRAM = """
import os, socket
found = []
for what, attempt in {{
    "read": lambda: open({secret!r}).read(),
    "write": lambda: open({target!r}, "w").write("x"),
    "network": lambda: socket.create_connection(("127.0.0.1", {port}), 1),
    "environment": lambda: os.environ["WAKEFUL_TEST_KEY"],
}}.items():
    try:
        attempt()
        found.append(what)
    except Exception:
        pass
raise ValueError(f"it could: {{found}}")
"""


class Hostile:
    def __init__(self, program: str) -> None:
        self.program = program

    def __reduce__(self) -> Any:
        return exec, (self.program,)


def test_the_program_in_a_pickle_is_shut_in(tmp_path: Path) -> None:
    import socket

    (tmp_path / "secret").write_text("s3cret")
    home = tmp_path / "home"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = PROGRAM.format(secret=str(tmp_path / "secret"), target=str(home / "target"), port=listening.getsockname()[1])
        done = convert(saved(home / "m.pkl", Hostile(program)), WAKEFUL_TEST_KEY="s3cret")
    assert done.returncode == 1
    if "it could: []" not in done.stderr:
        assert "it could: ['read', 'write']" in done.stderr, done.stderr
        pytest.skip("this kernel has no Landlock")
    assert [path.name for path in home.iterdir()] == ["m.pkl"]


def test_what_it_says_commands_no_terminal(tmp_path: Path) -> None:
    program = "import sys; sys.stderr.write('printed \x1b[2J\\n'); raise ValueError('said \x1b]0;mine\x07')"
    done = convert(saved(tmp_path / "m.pkl", Hostile(program)))
    assert (done.returncode, "\x1b" in done.stderr) == (1, False)
    assert all(words in done.stderr for words in ("said ?]0;mine?", "printed ?[2J")), done.stderr


def test_one_that_talks_without_end_is_ended(tmp_path: Path) -> None:
    program = "import os, sys\nwhile True: os.write(int(sys.argv[1]), bytes(65536))"
    done = convert(saved(tmp_path / "m.pkl", Hostile(program)))
    assert (done.returncode, "it said more than was expected of it" in done.stderr) == (1, True), done.stderr


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    done = convert(saved(tmp_path / "m.pkl", Hostile("import time; time.sleep(100)")), "--timeout", 6)
    assert (done.returncode, "it took longer than 6 s" in done.stderr) == (1, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.pkl"]


def test_a_missing_library(tmp_path: Path) -> None:
    (tmp_path / "skl2onnx.py").write_text("raise ModuleNotFoundError(\"No module named 'skl2onnx'\")")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = convert(saved(tmp_path / "m.pkl", {}), PYTHONPATH=path)
    assert (done.returncode, "pip install 'wakeful[convert]'" in done.stderr) == (1, True), done.stderr


def test_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    saved(tmp_path / "m.pkl", {})
    for arguments, reason in (
        ([tmp_path / "gone.pkl"], "does not exist"), ([tmp_path / "notes.md"], "does not say by its name"),
        ([tmp_path / "m.pkl", "--inputs", "age"], "is not NAME:TYPE"), ([tmp_path / "m.pkl", "--inputs", "age:FLOAT"], "FP32, FP64, INT64, BYTES"),
    ):
        done = convert(*arguments)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    helped = convert("--help")
    assert "To open a pickle is to run the program in it" in " ".join(helped.stdout.split())


def test_a_pickle_of_something_else(tmp_path: Path) -> None:
    done = convert(saved(tmp_path / "m.pkl", {"a": 1}))
    assert (done.returncode, "it holds builtins.dict" in done.stderr) == (1, True), done.stderr
