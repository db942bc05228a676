"""docs/cli.md, made from the parsers of all verbs: `python -m wakeful.cli.reference > docs/cli.md`."""

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import cast

from wakeful.cli import status
from wakeful.cli.client import DEFAULT_URL, KEY_VARIABLE, URL_VARIABLE
from wakeful.cli.main import VERBS
from wakeful.cli.output import add_client_options
from wakeful.cli.parser import Parser
from wakeful.cli.verbs import Entry, Verb
from wakeful.config.schema import OverrideTable

COMMON = {"--url", "--key-file", "--color", "--quiet", "--verbose", "--json"}
"""Options that are told once."""
SETTINGS = "an option for each key of `[server]`, and of what `[defaults]` bounds, as `--port` for `port`: [configuration](configuration.md)."
STATUSES = {
    status.DONE: "done",
    status.NO: "the answer is no: `check`, `doctor` or `health` found something, a bound of `bench` does not hold, a load failed, "
    "a stop cut requests off",
    status.WRONG_USE: "the command line or the configuration is wrong; nothing was done",
    status.NOT_REACHABLE: "there is no daemon, or it cannot be reached",
    status.NO_MODEL: "there is no such model",
    status.NOT_ALLOWED: "a key is missing, or may not do that",
    status.UNAVAILABLE: "unavailable for now, full, or timed out",
    status.INTERRUPTED: "interrupted by Ctrl-C",
}
INTRODUCTION = f"""\
# Command line

<!-- Made from the parsers of all verbs by `python -m wakeful.cli.reference`; a test holds it up to date. -->

`wakeful VERB --help` shows the same. Results go to stdout; progress, hints and errors to stderr.

**Which daemon.** Verbs that talk to one take `--url`, else the variable `{URL_VARIABLE}`, else `{DEFAULT_URL}`. A [key](how-to/keys.md) comes from
`{KEY_VARIABLE}` or from `--key-file`; there is no option for the key itself, which others on the machine could read.

**For programs.** `--json` prints one object: `{{"wakeful": 1, "kind": "ps", "data": ...}}`, or `{{"wakeful": 1, "error": {{"code", "message", "hint",
"exit"}}}}`. `events --follow` and `ps --watch` print one a line. `data` is what the [routes](http.md) below `/wakeful/v1` answer: bytes, seconds, and
times in seconds since 1970. Fields are added, and never come to mean something else.

**For people.** Colours: `--color`, then `NO_COLOR`, then `FORCE_COLOR` or `CLICOLOR_FORCE`, then whether it is a terminal (and not `TERM=dumb`).
Symbols beyond ASCII only where the locale is UTF-8. Off a terminal nothing is cut and nothing has a colour.

**Completion.** `eval "$(wakeful completion bash)"`, the same for zsh; `wakeful completion fish > ~/.config/fish/completions/wakeful.fish`.

## Verbs that ask a daemon

| argument | meaning |
|---|---|
COMMON
## Exit statuses

| status | meaning |
|---|---|
"""


def reference() -> str:
    """The whole page."""
    lines = [f"| {number} | {meaning} |" for number, meaning in STATUSES.items()]
    parser = Parser("wakeful", "")
    add_client_options(parser)
    common = [action for action in parser._actions if COMMON.intersection(action.option_strings)]  # noqa: SLF001 - as below
    rows = [f"| {_names(action)} | {_help(action)} |\n" for action in common]
    verbs = [line for name, entry in VERBS.items() for line in _verb("wakeful", name, entry)]
    return INTRODUCTION.replace("COMMON\n", "".join([*rows, "\n"])) + "\n".join([*lines, *verbs, ""])


def _verb(program: str, name: str, entry: Entry) -> Iterator[str]:
    summary = f"{entry.summary[0].upper()}{entry.summary[1:].replace('wakeful cluster --help has its verbs', 'see the page on clusters')}."
    if entry.group:
        verbs: Mapping[str, Entry] = importlib.import_module(entry.module).VERBS
        yield from ("", f"## {program} {name}", "", summary, "", "| verb | does |", "|---|---|")
        yield from (f"| `{program} {name} {inner}` | {one.summary} |" for inner, one in verbs.items())
        return
    parser = Parser(f"{program} {name}", "")
    cast("Verb", importlib.import_module(entry.module)).add_arguments(parser)
    yield from ("", f"## {program} {name}", "", summary)
    actions = parser._actions  # noqa: SLF001 - argparse has no other list of them
    ours = {f"--{key.replace('_', '-')}" for key in OverrideTable.model_fields}
    known = [action for action in actions if not ours.intersection(action.option_strings)]
    talks = any("--url" in action.option_strings for action in actions)
    shown = [action for action in known if not (talks and COMMON.intersection(action.option_strings))]
    if shown:
        yield from ("", "| argument | meaning |", "|---|---|")
        yield from (f"| {_names(action)} | {_help(action)} |" for action in shown)
    if talks:
        yield from ("", "And [those of all verbs that ask a daemon](#verbs-that-ask-a-daemon).")
    if len(known) < len(actions):
        yield from ("", f"And {SETTINGS}")


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        more = " ..." if action.nargs == "+" else ""
        return f"`{action.metavar or '|'.join(map(str, action.choices or ()))}`{more}"
    value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings).replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(reference())
