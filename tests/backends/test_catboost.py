"""Files of CatBoost answer as its own `predict` and `predict_proba` do, to the last bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import trees
from wakeful.backends import catboost as backend
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import TreeBackend
from wakeful.errors import Unavailable
from wakeful.worker import selftest


def opened(path: Path, **options: Any) -> TreeBackend:
    return backend.open_model(str(path), LoadOptions(**options))


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "regression": (0, {}),
    "counts": (0, {"loss_function": "Poisson"}),
    "uncertainty": (0, {"loss_function": "RMSEWithUncertainty"}),
    "binary": (2, {}),
    "classes": (3, {"labels": ["cat", "dog", "fox"]}),
    "one against all": (3, {"loss_function": "MultiClassOneVsAll"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_the_library_does(tmp_path: Path, kind: str) -> None:
    classes, parameters = KINDS[kind]
    original = trees.catboost_model(tmp_path / "m.cbm", classes, **parameters)
    matrix = trees.rows(seed=1)
    expected = (original.predict_proba if classes else original.predict)(matrix, thread_count=1)
    model = opened(tmp_path / "m.cbm")
    (answer,) = model.run({"input": matrix})
    np.testing.assert_array_equal(answer, expected)
    (spec,) = model.signature.outputs
    assert (spec.datatype, spec.shape) == ("FP64", (None, *expected.shape[1:]))
    assert spec.columns == tuple(map(str, original.classes_) if classes else ())
    alone = np.concatenate([model.run({"input": matrix[at:at + 1]})[0] for at in range(20)])
    np.testing.assert_array_equal(alone, expected[:20])
    assert selftest.probe(model).mergeable


def test_features_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    matrix = np.column_stack([trees.rows()[:, :4], np.array(["Ulm", "Rom"] * 100)]).astype(object)
    trees.catboost_model(tmp_path / "m.cbm", 2, matrix=matrix, cat_features=[4])
    with pytest.raises(Unavailable, match=r"categorical features \(4\) cannot be served"):
        opened(tmp_path / "m.cbm")


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.cbm"
    trees.catboost_model(path)
    content = path.read_bytes()
    for broken in (b"", b"{}", content[: len(content) // 2]):
        path.write_bytes(broken)
        with pytest.raises(Unavailable, match=r"m\.cbm cannot be loaded by catboost"):
            opened(path)
    path.unlink()
    with pytest.raises(Unavailable, match="does not exist"):
        opened(path)


def test_threads_and_devices(tmp_path: Path) -> None:
    trees.catboost_model(tmp_path / "m.cbm")
    assert opened(tmp_path / "m.cbm").forkable
    assert not opened(tmp_path / "m.cbm", threads=2).forkable
    with pytest.raises(Unavailable, match="on the CPU only"):
        opened(tmp_path / "m.cbm", device="cuda")


def test_runs_make_no_thread(tmp_path: Path) -> None:
    trees.catboost_model(tmp_path / "m.cbm")
    trees.check_runs_make_no_thread(opened(tmp_path / "m.cbm"))
