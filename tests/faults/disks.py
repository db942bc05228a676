"""Small file systems in memory, to be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """Raises PermissionError where nothing can be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "wakeful-test", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> Path:
    """Take all that is left, in one file."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return ballast
