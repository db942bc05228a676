"""A model's file in a form: written away as it comes, handed to the engine once it is whole, answered with what is listed of the model."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from wakeful.engine import Engine
from wakeful.errors import InvalidInput
from wakeful.frontends.http.admin import Spawn
from wakeful.frontends.http.connection import Connection, Handler
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.multipart import Multipart, boundary_of
from wakeful.frontends.http.snooze import ModelInfo
from wakeful.models.drafts import Draft
from wakeful.models.portrait import Portrait
from wakeful.tensors import Buffer

FILE = "file"
LONGEST_TEXT = 16 * 1024
"""Bytes of a part that is no file."""


def upload(engine: Engine, spawn: Spawn, info: Callable[[Portrait], ModelInfo]) -> Handler:
    """The handler of a route that streams."""

    def begin(connection: Connection, head: Head, _body: Buffer) -> None:
        engine.check_uploads()
        form = UploadForm(engine.draft)
        connection.stream(Upload(form, boundary_of(head.headers.get("content-type", "")), partial(_place, engine, connection, info), spawn))

    return begin


async def _place(engine: Engine, connection: Connection, info: Callable[[Portrait], ModelInfo], draft: Draft, texts: dict[str, str]) -> None:
    try:
        connection.respond_json(msgspec.json.encode(info(await engine.upload(draft, texts))))
    except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it, and the log if it is a fault of ours
        connection.fail(error)
    finally:
        await asyncio.to_thread(draft.discard)


class UploadForm:
    """The parts of one upload: one file, and texts by name."""

    def __init__(self, draft: Callable[[str], Draft]) -> None:
        self.draft: Draft | None = None
        self.texts: dict[str, str] = {}
        self._new_draft = draft
        self._name = ""
        """Of the part that is under way."""
        self._text = b""

    def part_begins(self, name: str, filename: str | None) -> None:
        if name == FILE:
            if self.draft is not None:
                raise InvalidInput("part file: there are two, and one model is uploaded at a time")
            if filename is None:
                raise InvalidInput.field("part file", "a file with its name", "text")
            self.draft = self._new_draft(filename)
        elif name in self.texts:
            raise InvalidInput(f"part {name[:80]}: it is given twice")
        elif not name or filename is not None:
            raise InvalidInput.field(f"part {name[:80] or '(without name)'}", "text: the file is the part `file`", "a file" if name else "no name")
        self._name, self._text = name, b""

    def part_data(self, data: bytes) -> None:
        if self._name == FILE:
            assert self.draft is not None
            self.draft.write(data)
            return
        self._text += data
        if len(self._text) > LONGEST_TEXT:
            raise InvalidInput(f"part {self._name[:80]}: it is over {LONGEST_TEXT} bytes")

    def part_ends(self) -> None:
        if self._name == FILE:
            return
        try:
            self.texts[self._name] = self._text.decode()
        except UnicodeDecodeError:
            raise InvalidInput.field(f"part {self._name[:80]}", "UTF-8", repr(self._text[:40])) from None


class Upload:
    """A sink (`streamed_body`)."""

    def __init__(
        self, form: UploadForm, boundary: bytes, place: Callable[[Draft, dict[str, str]], Coroutine[Any, Any, None]],
        spawn: Spawn,
    ) -> None:
        self._form = form
        self._parser = Multipart(boundary, form)
        self._place = place
        self._spawn = spawn

    def take(self, data: bytes) -> None:
        self._parser.feed(data)

    def complete(self) -> None:
        draft = self._form.draft
        try:
            self._parser.finish()
            if draft is None:
                raise InvalidInput.field("form", "a part `file`", f"{sorted(self._form.texts)}")
        except InvalidInput:
            self.abandon()
            raise
        self._spawn(self._place(draft, self._form.texts))

    def abandon(self) -> None:
        if self._form.draft is not None:
            asyncio.get_running_loop().run_in_executor(None, self._form.draft.discard)
