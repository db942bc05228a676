"""A replica that goes on in the interpreter that its model asks for. Run there as a script: ORDER CHANNEL SLOT ...

That interpreter has NumPy and msgspec, and this package is lent to it; no other package of the daemon's is.
"""

import importlib.util
import socket
import sys
from pathlib import Path

OLDEST = (3, 11)


def lend_package() -> None:
    """Make `wakeful` importable, and nothing that lies beside it."""
    home = Path(__file__).resolve().parent.parent
    spec = importlib.util.spec_from_file_location("wakeful", home / "__init__.py", submodule_search_locations=[str(home)])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["wakeful"] = package
    spec.loader.exec_module(package)


def refusal(reason: str) -> bytes:
    """A `messages.Refused` in MessagePack, where there may be no library for it."""
    texts = [text.encode() for text in ("refused", "unavailable", reason)]
    return bytes([0x90 + len(texts)]) + b"".join(b"\xdb" + len(text).to_bytes(4, "big") + text for text in texts)


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path = [path for path in sys.path if Path(path).resolve() != here]  # its modules have common names
    order, *descriptors = sys.argv[1:]
    fds = [int(descriptor) for descriptor in descriptors]
    try:
        if sys.version_info < OLDEST:
            raise ImportError(f"it is Python {sys.version.split()[0]}, and {'.'.join(map(str, OLDEST))} or newer is needed")
        lend_package()
        import msgspec  # noqa: PLC0415 - it may be missing here, which is to be told

        from wakeful.runtime.messages import Load  # noqa: PLC0415 - as above
        from wakeful.worker import loop  # noqa: PLC0415 - as above
    except ImportError as error:
        text = f"{sys.executable} cannot run this model: {error}; it needs NumPy and msgspec: {sys.executable} -m pip install numpy msgspec"
        socket.socket(fileno=fds[0]).send(refusal(text))
        return
    loop.serve(fds, msgspec.json.decode(order, type=Load))


if __name__ == "__main__":
    main()
