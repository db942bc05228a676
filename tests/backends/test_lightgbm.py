"""Files of LightGBM answer as its own `predict` does, to the last bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import trees
from wakeful.backends import lightgbm as backend
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import TreeBackend
from wakeful.errors import Unavailable
from wakeful.worker import selftest


def opened(path: Path, **options: Any) -> TreeBackend:
    return backend.open_model(str(path), LoadOptions(**options))


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "regression": (0, {}),
    "binary": (2, {}),
    "classes": (3, {}),
    "one against all": (3, {"objective": "multiclassova"}),
    "dart": (0, {"boosting": "dart"}),
    "linear trees": (0, {"linear_tree": True}),
    "ranking": (3, {"objective": "lambdarank", "num_class": 1, "data": {"group": [20] * 10}}),
    "categories": (2, {"matrix": trees.matrix_with_categories(), "data": {"categorical_feature": [4]}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_the_library_does(tmp_path: Path, kind: str) -> None:
    classes, parameters = KINDS[kind]
    booster = trees.lightgbm_model(tmp_path / "m.lgb.txt", classes, **parameters)
    matrix = trees.matrix_with_categories() if kind == "categories" else trees.rows(seed=1)
    expected = booster.predict(matrix, num_threads=1)
    model = opened(tmp_path / "m.lgb.txt")
    (answer,) = model.run({"input": matrix})
    np.testing.assert_array_equal(answer, expected)
    (spec,) = model.signature.outputs
    assert (spec.datatype, spec.shape) == ("FP64", (None, *expected.shape[1:]))
    alone = np.concatenate([model.run({"input": matrix[at:at + 1]})[0] for at in range(20)])
    np.testing.assert_array_equal(alone, expected[:20])
    assert selftest.probe(model).mergeable


def test_categories_of_pandas_are_their_numbers(tmp_path: Path) -> None:
    """The file ends in the list of them, in their order."""
    import lightgbm
    import pandas as pd  # type: ignore[import-untyped]

    frame = pd.DataFrame({"size": trees.rows()[:, 0], "city": pd.Categorical(["Ulm", "Rom", "Bonn", "Rom"] * 50)})
    booster = lightgbm.train(
        {"num_threads": 1, "verbose": -1, "min_data_in_leaf": 5, "min_data_per_group": 5}, lightgbm.Dataset(frame, trees.targets(trees.rows())), 5,
    )
    booster.save_model(tmp_path / "m.lgb.txt")
    assert (tmp_path / "m.lgb.txt").read_text().rstrip().endswith('pandas_categorical:[["Bonn", "Rom", "Ulm"]]')
    matrix = np.column_stack([frame["size"], frame["city"].cat.codes]).astype(np.float32)
    model = opened(tmp_path / "m.lgb.txt")
    assert model.signature.inputs[0].columns == ("size", "city")
    np.testing.assert_array_equal(model.run({"input": matrix})[0], booster.predict(frame, num_threads=1))


def test_it_was_saved_with_its_best_rounds_alone(tmp_path: Path) -> None:
    import lightgbm

    matrix, wanted = trees.rows(), trees.targets(trees.rows(), 2)
    noise = np.random.default_rng(0).integers(0, 2, len(wanted))
    booster = lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1}, lightgbm.Dataset(matrix, wanted), 40,
        valid_sets=[lightgbm.Dataset(matrix, noise)], callbacks=[lightgbm.early_stopping(3, verbose=False)],
    )
    assert booster.best_iteration < 40
    booster.save_model(tmp_path / "m.lgb.txt")
    np.testing.assert_array_equal(opened(tmp_path / "m.lgb.txt").run({"input": matrix})[0], booster.predict(matrix, num_threads=1))


def test_a_broken_file_is_refused_and_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "m.lgb.txt"
    trees.lightgbm_model(path)
    content = path.read_bytes()
    for broken, reason in ((b"", "first line"), (b"{}", "first line"), (content[: len(content) // 2], "cut short")):
        path.write_bytes(broken)
        with pytest.raises(Unavailable, match=rf"m\.lgb\.txt .*{reason}"):
            opened(path)
    path.unlink()
    with pytest.raises(Unavailable, match="does not exist"):
        opened(path)


def test_threads_and_devices(tmp_path: Path) -> None:
    trees.lightgbm_model(tmp_path / "m.lgb.txt")
    assert opened(tmp_path / "m.lgb.txt").forkable
    assert not opened(tmp_path / "m.lgb.txt", threads=2).forkable
    with pytest.raises(Unavailable, match="on the CPU only"):
        opened(tmp_path / "m.lgb.txt", device="cuda")


def test_runs_make_no_thread(tmp_path: Path) -> None:
    trees.lightgbm_model(tmp_path / "m.lgb.txt")
    trees.check_runs_make_no_thread(opened(tmp_path / "m.lgb.txt"))
