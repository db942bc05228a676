"""The verbs. Each lives in a file of its own."""

import typer

from wakeful import __version__
from wakeful.cli.serve import serve

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="A server for models that sleep.")
app.command()(serve)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    app()
