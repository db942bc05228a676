"""The `wakeful` command."""

import sys

from wakeful.clock import monotonic

INTERRUPTED = 130


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


def main() -> None:
    started = monotonic()
    try:
        status = command(sys.argv[1:], started)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before or after the daemon's own loop, which takes Ctrl-C as the order to stop
        sys.stderr.write("interrupted\n")
        status = INTERRUPTED
    except BrokenPipeError:  # `wakeful --help | head`: the reader has seen enough
        sys.stdout = None
        status = 0
    sys.exit(status)


if __name__ == "__main__":
    main()
