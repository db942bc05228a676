"""ONNX Runtime's exceptions, translated in this one place.

The library has one exception class for each status code, without a common base below Exception, and says most of what matters in a text that
also holds C++ source locations, signatures and paths of this machine. Callers get the rest of that text.
"""

import re
from pathlib import Path

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, InvalidProtobuf, NoSuchFile

from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable, WakefulError

LONGEST = 500
"""Characters of a reason: some messages hold every name of a graph."""

_RUNTIME = f"ONNX Runtime {onnxruntime.__version__}"

_OUT_OF_MEMORY = re.compile(r"failed to allocate|bad_alloc|out of memory|allocation failed|_ALLOC_FAILED", re.IGNORECASE)
# A kernel that meets shapes or values it cannot work with reports a plain FAIL. These come from the input: the model ran with others.
_INPUT_AT_FAULT = re.compile(
    r"out of (?:data )?bounds|out of range|dimension mismatch|dimensions? (?:of|do not|must)|cannot be reshaped|attempting to broadcast"
    r"|incompatible dimensions|size overflowed|shape\.Size\(\) must be >= 0|invalid (?:rank|dimensions|input)|integer (?:division|modulo) by zero"
    r"|should (?:not )?be greater than|should have same|cannot split using values"
    r"|^Cast: sto[a-z]{1,4}$",  # the C++ function that makes no number of a text
    re.IGNORECASE,
)

_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'[^']*' Status Message: ")
_SOURCE = re.compile(
    r"(?:/\S*/)?[\w.]+\.(?:cc|cpp|cu|cuh|h|hpp):\d+ "  # the file and line, then the function:
    r"(?:[^()]{0,300}::[^()]{0,300}\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? |\w+(?:\(\))? )"  # in full, or its bare name
)
_LOADING = re.compile(r"^Load model from .*? failed:", re.DOTALL)
_DIRECTORY = re.compile(r"(?<![\w.])/(?:[^\s/\"':,]+/)+")
_CUTS = ((_STATUS, ""), (_LOADING, ""), (_NODE, r"\1: "), (_SOURCE, ""), (_DIRECTORY, ""))


def run_error(error: Exception) -> WakefulError:
    """The error of a run, as the caller may see it."""
    if isinstance(error, WakefulError):
        return error
    text = reason(error)
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text):
        return OutOfMemory(f"out of memory: {text}")
    if isinstance(error, InvalidArgument | UnicodeError | ValueError) or _INPUT_AT_FAULT.search(text):
        return InvalidInput(text)
    return ExecutionFailed(text)


def load_error(error: Exception, path: str) -> WakefulError:
    """The error of opening the model at `path`, in one sentence that says what to do about it where that is known."""
    if isinstance(error, WakefulError):
        return error
    name, text = Path(path).name, reason(error)
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text):
        return OutOfMemory(f"out of memory while loading {name}: {text}")
    return Unavailable(f"{name} {_load_reason(error, text)}")


def _load_reason(error: Exception, text: str) -> str:
    if isinstance(error, NoSuchFile):
        return "does not exist"
    if isinstance(error, InvalidProtobuf):
        return "is not a readable ONNX file: it is cut short, or in another format"
    if "No graph was found" in text:
        return "holds no ONNX graph: it is empty, or in another format"
    if found := re.search(r"Opset (\d+) is under development.*for domain (\S+) is till opset (\d+)", text, re.DOTALL):
        needed, domain, known = found.groups()
        return f"needs opset {needed} of {domain}, newer than {_RUNTIME}, which knows up to {known}"
    if found := re.search(r"IR version: (\d+), max supported IR version: (\d+)", text):
        return f"is in ONNX IR version {found[1]}, newer than {_RUNTIME}, which reads up to {found[2]}"
    if found := re.search(r"No Op registered for (\S+)", text):
        return f"uses the operator {found[1]}, which {_RUNTIME} does not have"
    if found := re.search(r'External data path does not exist: "?([^"\s]+)', text):
        return f"keeps its weights in {found[1]}, which is missing"
    return f"cannot be loaded: {text}"


def reason(error: Exception) -> str:
    """The part of an exception's text that means something to whoever sent the request or owns the model."""
    text = str(error) or type(error).__name__
    for pattern, replacement in _CUTS:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
