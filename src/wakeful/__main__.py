"""The `wakeful` command."""

import sys

from wakeful.cli.main import main as command
from wakeful.clock import monotonic

INTERRUPTED = 130


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
