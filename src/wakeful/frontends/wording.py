"""What an error says beside its status, the same over every transport."""

import math
from typing import Literal

from wakeful.errors import WakefulError

Dialect = Literal["oip", "snooze", "openai", "wakeful"]

LONGEST_WAIT = 3600
"""Most seconds that a caller is ever asked to wait."""


def text_of(error: WakefulError, dialect: Dialect) -> str:
    """UTF-8 has no lone surrogates, which a name that was sent may hold."""
    text = _in_words_of_snooze(error) if dialect == "snooze" else error.message
    return text.encode(errors="replace").decode()


def whole_seconds(seconds: float | None) -> int:
    """After which to try again: clients of SnoozeML ignore fractions and zero."""
    if seconds is None or not seconds > 1:
        return 1
    return math.ceil(min(seconds, LONGEST_WAIT))


def _in_words_of_snooze(error: WakefulError) -> str:
    """SnoozeML's client tells its exceptions apart by the status and by these words in the text."""
    text = error.message
    words = {"invalid_input": "shape mismatch" if "shape" in text else "", "out_of_memory": "out of memory"}.get(error.code, "")
    return text if words in text.lower() else f"{words}: {text}"
