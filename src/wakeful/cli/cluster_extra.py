"""What a verb says when the libraries of `wakeful[cluster]` are not there."""

from wakeful.cli.parser import WRONG_USE, complain


def complain_of_missing(what: str, error: ImportError) -> int:
    """Returns the exit status."""
    complain(f"{what} is not installed ({error})", ("hint", "pip install 'wakeful[cluster]'"))
    return WRONG_USE
