"""What tells one state of a model's files from another: cheaply by their directory entries, exactly by their content."""

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from wakeful import clock
from wakeful.config.kinds import KINDS, PICKLES, kind_of

_NO_DATA = (".json", ".log", ".md", ".py", ".toml", ".txt", ".yaml", ".yml")
"""Suffixes of files that lie beside models and change without them: settings, tokenizers, notes."""

_CPU_KEYS = frozenset({
    "vendor_id", "cpu family", "model", "model name", "flags",  # x86
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",  # ARM
})

COARSEST_CLOCK = 3.0
"""Seconds: some file systems keep times no finer than two, and another machine's clock may differ."""
MOST_DIRECTORIES = 256

COMPILED, ENVIRONMENT = "__pycache__", "pyvenv.cfg"
"""What Python writes beside code that it imports, and what makes a directory an environment of its own."""

_CHUNK = 256 * 1024
_MARK = b"\n\x08location\x12"
_LOCATION = re.compile(re.escape(_MARK) + rb"(?:([\x00-\x7f])|([\x80-\xff])([\x00-\x7f]))", re.DOTALL)
"""How protobuf writes an entry of TensorProto.external_data whose key is "location", up to the length of its value in one or two bytes."""
_LONGEST_ENTRY = 4 * 1024 + len(_MARK) + 2
"""A path cannot be longer than 4 KiB."""


def model_files(model: Path) -> list[Path]:
    """The files that make up a model, itself first; the files in and below the directory if it is one.

    An ONNX file may keep weights in others beside it. A file there belongs to the model with the longest name that begins its own, as
    `encoder.onnx.data` does; one that begins like no model (`weights.bin`) may belong to any. Whether the model really uses it is only known
    to who reads the whole model. Directories beside it are not looked into: see `data_elsewhere`.
    """
    if model.is_dir():
        return sorted(_files_below(model))
    if not _may_have_companions(model):
        return [model]
    companions = _companions(model.parent, model.suffix)
    return [model, *(model.parent / name for name in sorted(companions.of_model.get(model.stem, []) + companions.of_any))]


def _may_have_companions(model: Path) -> bool:
    named = kind_of(model.name)
    return KINDS[named.backend].companions if named is not None else model.suffix not in _NO_DATA  # a tokenizer, say, keeps nothing elsewhere


def _files_below(directory: Path) -> Iterator[Path]:
    """Not those that others keep there: hidden ones, compiled code, and environments of an interpreter, with all that is installed in them."""
    for home, directories, files in os.walk(directory):
        if ENVIRONMENT in files:
            directories.clear()
            continue
        directories[:] = (name for name in directories if name != COMPILED and not name.startswith("."))
        yield from (Path(home, name) for name in files if not name.startswith("."))


class _Companions(NamedTuple):
    """Files in a directory that may hold weights of the models there."""

    of_model: Mapping[str, list[str]]
    """By the model's name without its suffix."""
    of_any: list[str]


class _Seen(NamedTuple):
    state: tuple[int, int]
    companions: _Companions


_seen: dict[tuple[Path, str], _Seen] = {}
"""A directory is read once: with a thousand models in it, each would read it again at every look."""


def _companions(directory: Path, suffix: str) -> _Companions:
    status = directory.stat()
    state, key = (status.st_mtime_ns, status.st_ino), (directory, suffix)
    seen = _seen.get(key)
    if seen is not None and seen.state == state:
        return seen.companions
    now = clock.wall()
    companions = _read_companions(directory, suffix)
    if now - status.st_mtime > COARSEST_CLOCK:  # else the next change could leave the same time behind
        if len(_seen) >= MOST_DIRECTORIES:
            _seen.clear()
        _seen[key] = _Seen(state, companions)
    return companions


def _read_companions(directory: Path, suffix: str) -> _Companions:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if _is_file(entry)]
    models = {name.removesuffix(suffix) for name in names if name.endswith(suffix)}
    of_model: dict[str, list[str]] = {}
    of_any: list[str] = []
    for name in names:
        if name.startswith(".") or name.endswith((suffix, *_NO_DATA, *PICKLES)) or kind_of(name) is not None:
            continue
        owner = next((name[:end] for end in range(len(name), 0, -1) if name[:end] in models), None)
        (of_any if owner is None else of_model.setdefault(owner, [])).append(name)
    return _Companions(of_model, of_any)


def identity_of(model: Path) -> str:
    """A name, fit for a file, that changes whenever the content of the model's files may have changed. Raises OSError if they cannot be seen.

    The change time is part of it because what unpacks archives sets the modification time as it likes, and inode numbers are used again.
    """
    facts = [os.path.realpath(model)]
    home = model if model.is_dir() else model.parent
    for path in model_files(model):
        try:
            status = path.stat()
        except FileNotFoundError:
            if path == model:
                raise
            continue  # a draft beside it, which has been renamed meanwhile
        facts.append(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")
    return digest(*facts)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """What cannot be followed, such as a link to itself, is none."""
    try:
        return entry.is_file()
    except OSError:
        return False


def content_hash(model: Path) -> str:
    """The same for equal content, wherever it lies and however the model itself is named. Blocks: reads all files."""
    facts = []
    for path in model_files(model):
        with path.open("rb") as file:
            facts += ["" if path == model else path.name, hashlib.file_digest(file, "sha256").hexdigest()]
    return digest(*facts)


def data_elsewhere(model: Path) -> bool:
    """Does the model keep weights where `identity_of` does not look, so that it cannot notice their change? Blocks: reads the file."""
    beside = {path.name for path in model_files(model)}
    return any(os.path.normpath(location) not in beside for location in _data_locations(model))


def _data_locations(model: Path) -> set[str]:
    """Where an ONNX file says that its weights are, found without a parser for the rest of it."""
    found = set()
    with model.open("rb") as file:
        window = b""
        while chunk := file.read(_CHUNK):
            window = window[-_LONGEST_ENTRY:] + chunk
            if _MARK not in window:  # many times faster than the pattern
                continue
            for match in _LOCATION.finditer(window):
                short, low, high = match.groups()
                length = short[0] if short else low[0] & 0x7F | high[0] << 7
                value = window[match.end() : match.end() + length]
                if len(value) == length:  # else the next window holds all of it
                    found.add(value.decode(errors="replace"))
    return found


@cache
def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The same on processors that the same machine code and memory layouts suit."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    facts = {line for line in lines if line.partition(":")[0].strip() in _CPU_KEYS}
    return digest(platform.machine(), *sorted(facts))[:16]


def digest(*facts: str) -> str:
    """32 hexadecimal digits."""
    return hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()[:32]
