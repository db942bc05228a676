"""LightGBM as a backend: text files of `Booster.save_model`.

Imported in the nursery before anything is forked. With one thread the library makes none of its own, so that a process with a model can be forked.
"""

from pathlib import Path

import lightgbm

from wakeful.backends import trees
from wakeful.backends.base import LoadOptions
from wakeful.backends.trees import TreeBackend, prepare
from wakeful.errors import Unavailable

__all__ = ["LIBRARY", "open_model", "prepare", "providers"]

LIBRARY = f"lightgbm {lightgbm.__version__}"

_BEGIN, _END, _OLD = b"tree", b"\nend of trees", b"\nversion=v2"
"""How every file begins, and what stands behind the trees in all but the oldest."""


class _Quiet:
    """Takes what the library would print."""

    def info(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...


lightgbm.register_logger(_Quiet())


def open_model(path: str, options: LoadOptions) -> TreeBackend:
    """Open the file at `path`. Raises Unavailable with the reason in a sentence, or OutOfMemory."""
    trees.cpu_only(options, LIBRARY)
    threads = max(1, options.threads)
    try:
        _check(Path(path))
        booster = lightgbm.Booster(model_file=path)
        return TreeBackend(
            lambda matrix: booster.predict(matrix, num_threads=threads, validate_features=False), booster.num_feature(), "lightgbm_booster",
            columns=booster.feature_name(), forkable=threads == 1,
        )
    except Exception as error:
        raise trees.load_error(error, path, LIBRARY) from error


def _check(file: Path) -> None:
    """Of a file that is cut short the library makes an end of the whole process."""
    content = file.read_bytes()
    if not content.startswith(_BEGIN):
        raise Unavailable(f"{file.name} is no text file of LightGBM: its first line is not '{_BEGIN.decode()}'")
    if _END not in content and _OLD not in content:
        raise Unavailable(f"{file.name} is cut short: the end of its trees is missing")


def providers() -> tuple[str, ...]:
    return ("CPU",)
