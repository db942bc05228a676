"""`wakeful convert`: a file of scikit-learn, XGBoost or LightGBM as ONNX, made by a confined process."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from time import monotonic

import msgspec
import psutil

from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain
from wakeful.config.kinds import PICKLES, kind_of
from wakeful.runtime.conversion import Converted, Failed, Family, Input, Order, Step

TIMEOUT = 300.0
LONGEST_WORD = 1 << 20
"""Bytes of what the process says at once: whatever runs in it may say more."""
DATATYPES = ("FP32", "FP64", "INT64", "BYTES")
FAMILIES: dict[str, Family] = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}
AMBIGUOUS: dict[str, Family] = {".json": "XGBoost", ".txt": "LightGBM"}
ENVIRONMENT = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
"""What the process sees of the environment: no key, no token."""
EPILOG = """\
To open a pickle is to run the program in it. It is opened by a process that has no network and cannot get one, no rights that you do not have,
little of the environment, and limits of time, memory and file size. Where the kernel has Landlock (Linux 5.13), it can read nothing but Python,
its libraries and the model, and write only the result; where not, a line says so, and it can read and write what you can. What remains: it can
take up a core until the time is over, and the ONNX file is its work, so that a hostile pickle can make it wrong. Convert only files whose sender
you know.
"""


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful convert FILE [-o FILE.onnx] [option ...]"
    parser.epilog = EPILOG
    parser.add_argument("source", type=Path, metavar="FILE", help=f"*{', *'.join(PICKLES)}; of XGBoost *.json, *.ubj; of LightGBM *.txt")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (default: beside FILE, as .onnx)")
    parser.add_argument("--inputs", type=parse_inputs, default=(), metavar="NAME:TYPE,...", help=(
        "inputs of the result where the model does not tell, as age:FP32,city:BYTES or pixels:FP32[64]; TYPE is FP32, FP64, INT64 or BYTES "
        "(default: one, input, FP32, as wide as the model takes)"))
    parser.add_argument("--opset", type=int, metavar="N", help="version of ONNX's operators (default: the converter's newest)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS", help=f"longest time that it may take (default {TIMEOUT:g})")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def parse_inputs(text: str) -> tuple[Input, ...]:
    """age:FP32,pixels:FP32[64]"""
    inputs = []
    for part in text.split(","):
        name, colon, kind = part.strip().partition(":")
        datatype, _, columns = kind.rstrip("]").partition("[")
        if not name or not colon or datatype not in DATATYPES or (columns and not columns.isdigit()):
            raise ArgumentTypeError(f"{part.strip()!r} is not NAME:TYPE or NAME:TYPE[COLUMNS], with a TYPE of {', '.join(DATATYPES)}")
        inputs.append(Input(name, datatype, int(columns or 1)))
    return tuple(inputs)


def run(arguments: Namespace) -> int:
    source: Path = arguments.source
    output: Path = arguments.output or source.with_name(f"{_stem(source)}.onnx")
    if not source.is_file():
        complain(f"{source} does not exist, or is no file")
        return WRONG_USE
    named = kind_of(source.name)
    family = AMBIGUOUS.get(source.suffix) if named is None else FAMILIES.get(named.backend)
    if family is None and not source.name.endswith(PICKLES):
        complain(f"{source.name} does not say by its name what it is", ("hint", f"it converts *{', *'.join(PICKLES)}, *.xgb.json, *.ubj, *.lgb.txt"))
        return WRONG_USE
    if output.exists() and not arguments.force:
        complain(f"{output} is there already", ("hint", "--force writes over it, -o FILE writes another one"))
        return WRONG_USE
    try:
        return _convert(source, family, output, arguments)
    except OSError as error:
        complain(f"{error.filename or output}: {error.strerror}")
        return NO


def _stem(source: Path) -> str:
    named = kind_of(source.name)
    return named.stem if named is not None else source.stem


def _convert(source: Path, family: Family | None, output: Path, arguments: Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix=".wakeful-convert-", dir=output.absolute().parent) as directory:
        made = Path(directory) / "model.onnx"
        order = Order(str(source.absolute()), family, str(made), arguments.inputs, arguments.opset, psutil.virtual_memory().total // 2)
        end, printed = _told(order, Path(directory), arguments.timeout)
        if isinstance(end, Converted) and made.is_file() and not made.is_symlink():
            made.replace(output)
            _report(end, output)
            return DONE
    notes = [("it printed", _printable(line)) for line in printed.splitlines()[-5:]]
    complain(f"{source.name}: {_printable(end.reason) if isinstance(end, Failed) else 'there is no result'}", *notes)
    return NO


def _told(order: Order, home: Path, timeout: float) -> tuple[Converted | Failed, str]:
    """The last word of the process, and what it printed beside its words."""
    reader, writer = os.pipe()
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | {"HOME": str(home), "TMPDIR": str(home)}
    with (home / "printed").open("w+b") as printed, os.fdopen(reader, "rb") as words:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wakeful.worker.convert_main", str(writer), msgspec.json.encode(order).decode()],
            stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, pass_fds=(writer,), env=environment, cwd=home, start_new_session=True,
        )
        os.close(writer)
        try:
            end = _last_word(words.fileno(), timeout)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        printed.seek(0)
        text = printed.read(100_000).decode(errors="replace")
    if end is None:
        end = Failed(f"the process that converts it was ended by signal {-status}" if status < 0 else f"it ended with status {status}")
    return end, text


def _last_word(descriptor: int, timeout: float) -> Converted | Failed | None:
    """Shows its steps. None when it ends without a last word."""
    deadline, rest = monotonic() + timeout, b""
    decode = msgspec.json.Decoder(Step | Converted | Failed).decode
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - monotonic())):
                return Failed(f"it took longer than {timeout:g} s (--timeout allows more)")
            data = os.read(descriptor, 65536)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_WORD:
                return Failed("it said more than was expected of it")
            for line in lines:
                try:
                    word: Step | Converted | Failed = decode(line)
                except msgspec.MsgspecError:
                    return Failed("it said something that was not expected of it")
                if not isinstance(word, Step):
                    return word
                if sys.stderr.isatty():
                    print(f"{_printable(word.text)} ...", file=sys.stderr)
            if not data:
                return None


def _report(end: Converted, output: Path) -> None:
    for kept in end.kept:
        print(f"note: the process kept {_printable(kept)}", file=sys.stderr)
    print(f"{output}: {_printable(end.what)}, {output.stat().st_size} bytes")
    print(f"  inputs      {_printable(', '.join(end.inputs))}")
    print(f"  outputs     {_printable(', '.join(end.outputs))}")
    compared = "not known" if end.difference is None else f"{end.difference:.2g} at most, on made-up rows"
    print(f"  difference  {compared}{f' ({_printable(end.remark)})' if end.remark else ''}")


def _printable(text: str) -> str:
    """A stranger's program may say it, and a terminal obeys what is hidden in a text."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
