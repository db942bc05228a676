"""Tiny tokenizers of words."""

import string
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase, Replace, Sequence
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, "cat", "dog", "the", "a", "on", "mat", "sits", *string.ascii_lowercase[1:]]
"""Each with its place as its id."""


def words(path: Path) -> Path:
    """`[CLS] cat sits [SEP]`, or of a pair `[CLS] cat [SEP] dog [SEP]`; a word that it does not know is `[UNK]`. The file itself says that texts are
    to be filled up to 9 tokens."""
    tokenizer = _words()
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(path))
    return path


def explosive(path: Path) -> Path:
    """As `words`, but each "!" becomes 10**12 of them."""
    tokenizer = _words()
    tokenizer.normalizer = Sequence([Replace("!", "!" * 1000) for _ in range(4)])
    tokenizer.save(str(path))
    return path


def _words() -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer
