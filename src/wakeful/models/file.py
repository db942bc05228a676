"""A model's file on disk: has it changed, what has been learnt of it, and where is its prepared copy?"""

from pathlib import Path
from typing import Unpack

from wakeful.prepared.cache import PreparedCache
from wakeful.prepared.identity import identity_of, model_files
from wakeful.prepared.knowledge import Knowledge, Known, Lesson

STARTUP_BYTES = 16 * 1024 * 1024
"""What a session needs beside its weights, before it was ever measured."""
GONE = ""


class ModelFile:
    """Everything that is keyed by the file's identity. Calls are a few `stat`s each, made only around loads."""

    def __init__(self, path: Path, backend: str, library: str, knowledge: Knowledge, cache: PreparedCache | None) -> None:
        self.path = path
        self._backend = backend
        self.library = library
        """Name and version of the backend's library."""
        self._knowledge = knowledge
        self._cache = cache
        self.identity = GONE
        self.look()

    def look(self) -> None:
        """Take note of the file as it is now."""
        try:
            self.identity = identity_of(self.path)
        except OSError:
            self.identity = GONE

    def changed(self) -> bool:
        """Is it another file than the one that was looked at last?"""
        before = self.identity
        self.look()
        return self.identity != before

    def known(self) -> Known:
        return self._knowledge.recall(self.identity, self.library) or Known()

    def learn(self, **fields: Unpack[Lesson]) -> None:
        if self.identity != GONE:
            self._knowledge.learn(self.identity, self.library, **fields)

    def size(self) -> int:
        """Bytes on disk, with weights that lie beside it."""
        try:
            return sum(file.stat().st_size for file in model_files(self.path))
        except OSError:
            return 0

    def estimate(self) -> int:
        """Bytes that a first load may take, for a file that was never loaded: its weights, once more while they are unpacked, and a session."""
        return 2 * self.size() + STARTUP_BYTES

    def prepared_copy(self) -> str:
        """Directory of the prepared copy, or empty."""
        if self._cache is None or self.identity == GONE:
            return ""
        found = self._cache.find(self.identity, self._backend, self.library)
        return str(found) if found is not None else ""
