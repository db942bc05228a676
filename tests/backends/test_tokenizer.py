"""Tokenizers as a backend."""

from pathlib import Path

import numpy as np
import pytest

from tests import tokenizer_files
from tests.tokenizer_files import WORDS
from wakeful.backends import tokenizer
from wakeful.backends.base import LoadOptions
from wakeful.errors import InvalidInput, Unavailable

UNKNOWN, CLS, SEP, CAT, DOG = (WORDS.index(word) for word in ("[UNK]", "[CLS]", "[SEP]", "cat", "dog"))


def run(path: Path, *rows: tuple[str, ...], limits: list[int] | None = None) -> list[list[list[int]]]:
    """Ids and types of each row."""
    backend = tokenizer.open_model(str(tokenizer_files.words(path / "t.json")), LoadOptions())
    ids, types, cut = backend.run({"text": np.array(rows, object), "limit": np.array(limits or [0] * len(rows), "<i8")})
    read = [[np.frombuffer(element, "<i4").tolist() for element in output] for output in (ids, types)]
    return [*read, [cut.tolist()]]


def test_texts_are_as_long_as_they_are_whatever_the_file_says(tmp_path: Path) -> None:
    ids, types, _ = run(tmp_path, ("cat",), ("Dog what cat",))
    assert ids == [[CLS, CAT, SEP], [CLS, DOG, UNKNOWN, CAT, SEP]]
    assert types == [[0] * 3, [0] * 5]


def test_pairs(tmp_path: Path) -> None:
    ids, types, _ = run(tmp_path, ("cat", "dog dog"))
    assert ids == [[CLS, CAT, SEP, DOG, DOG, SEP]]
    assert types == [[0, 0, 0, 1, 1, 1]]


@pytest.mark.parametrize("row", [(), ("cat", "dog", "cat")])
def test_what_is_neither_a_text_nor_a_pair(row: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="text: expected a text or a pair"):
        run(tmp_path, row)


def test_each_row_is_cut_at_its_own_limit(tmp_path: Path) -> None:
    text = ("cat dog dog dog",)
    ids, _, (cut,) = run(tmp_path, text, text, text, text, limits=[3, 0, -3, 6])
    assert ids == [[CLS, CAT, SEP], [CLS, CAT, DOG, DOG, DOG, SEP], [CLS, DOG, SEP], [CLS, CAT, DOG, DOG, DOG, SEP]]
    assert cut == [True, False, True, False]


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "Unheard"}}', "[" * 10000])
def test_a_file_that_is_none_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(Unavailable, match=r"t\.json is no tokenizer: "):
        tokenizer.open_model(str(tmp_path / "t.json"), LoadOptions())
