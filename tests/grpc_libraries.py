"""Daemons whose gRPC is served by one library or the other."""

from pathlib import Path

import wakeful


def without_native(directory: Path) -> dict[str, str]:
    """An environment in which pygrpc-native cannot be imported, as if it were not installed."""
    hidden = directory / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "pygrpc_native.py").write_text("raise ImportError('hidden by a test')")
    return {"PYTHONPATH": f"{hidden}:{Path(wakeful.__file__).parents[1]}"}
