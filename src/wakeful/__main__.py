"""The `wakeful` command."""

import errno
import os
import sys

from wakeful.clock import monotonic

INTERRUPTED = 130
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def command(arguments: list[str], started: float) -> int:
    """What probes and completion ask for is answered before any option parser is imported."""
    verb, *rest = arguments or [""]
    if verb == "health":
        from wakeful.cli.health import fast  # noqa: PLC0415 - each way imports only what it needs

        if (status := fast(rest)) is not None:
            return status
    elif verb == "__models":
        from wakeful.cli.models import main as names  # noqa: PLC0415

        return names(rest)
    elif verb in ("-V", "--version"):
        from wakeful import __version__  # noqa: PLC0415

        sys.stdout.write(f"{__version__}\n")
        return 0
    from wakeful.cli.main import main  # noqa: PLC0415

    return main(arguments, started)


def fill_gaps() -> None:
    """Where somebody has closed one of the first three descriptors, nothing goes in or out; and no socket gets that number, to be written to by
    a library that means the terminal."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def main() -> None:
    started = monotonic()
    fill_gaps()
    try:
        status = command(sys.argv[1:], started)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before or after the daemon's own loop, which takes Ctrl-C as the order to stop
        sys.stderr.write("interrupted\n")
        status = INTERRUPTED
    except BrokenPipeError:  # `wakeful --help | head`: the reader has seen enough
        sys.stdout = None
        status = 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        sys.stdout = None
        sys.stderr.write(f"error: {error.filename or 'the output'} cannot be written: {error.strerror}\n")
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
