import subprocess
import sys

import pytest

from wakeful.backends import catalog
from wakeful.errors import Unavailable


def test_every_backend_offers_what_the_worker_calls() -> None:
    for name in catalog.BACKENDS:
        module = catalog.module(name)
        assert callable(module.open_model)
        assert callable(module.prepare)


def test_warming_names_library_and_providers() -> None:
    library = catalog.warm("onnx")
    assert library.name.startswith("onnxruntime ")
    assert "CPUExecutionProvider" in library.providers


def test_unknown_backend_names_the_known() -> None:
    with pytest.raises(Unavailable, match=r'"caffe".*onnx'):
        catalog.module("caffe")


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.BACKENDS, "rare", catalog.Entry("wakeful.backends.rare", "wakeful[rare]"))
    with pytest.raises(Unavailable, match=r"pip install 'wakeful\[rare\]'"):
        catalog.module("rare")


def test_the_catalogue_itself_imports_no_model_library() -> None:
    code = "import sys, wakeful.backends.catalog; sys.exit('onnxruntime' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
