"""On what it was measured: figures without it say nothing."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.raw import cores
from wakeful import __version__

PACKAGES = ("onnxruntime", "numpy", "uvloop", "orjson", "httptools")


def describe() -> dict[str, str]:
    """Processor, memory, kernel and versions, for people."""
    there = os.cpu_count() or 0
    return {
        "processor": f"{_processor()}, {cores()} core{'' if cores() == 1 else 's'} usable of {there}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "Wakeful": __version__,
        **{package: _version(package) for package in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return named.get("model name") or platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
