"""docs/cli.md, made from the parsers of the verbs: `python -m wakeful.cli.reference > docs/cli.md`.

Python's own help is not asked: its form is another in every version.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from wakeful.cli import main as program
from wakeful.cli.client import DEFAULT_URL, KEY_VARIABLE, URL_VARIABLE
from wakeful.cli.options import add_options
from wakeful.cli.output import add_client_options, add_output_options
from wakeful.cli.parser import Parser
from wakeful.cli.status import DONE, INTERRUPTED, NO, NO_MODEL, NOT_ALLOWED, NOT_REACHABLE, UNAVAILABLE, WRONG_USE
from wakeful.cli.verbs import Entry, Verb
from wakeful.config.cluster import NAMES
from wakeful.config.service import SERVICE_VARIABLES

STATUSES = {
    DONE: "done",
    NO: "the answer is no: `check`, `doctor`, `health` or `prepare` found something, a bound of `bench` does not hold, a load failed, "
    "a stop cut requests off",
    WRONG_USE: "the command line or the configuration is wrong, or the address is taken; nothing was done",
    NOT_REACHABLE: "there is no daemon, or it cannot be reached",
    NO_MODEL: "there is no model of that name",
    NOT_ALLOWED: "a key is missing, or may not do that",
    UNAVAILABLE: "unavailable for now, full, or timed out",
    INTERRUPTED: "interrupted by Ctrl-C",
}
VARIABLES = {
    "`WAKEFUL_URL`": "where the daemon is, for the verbs that ask one; `--url` goes before it",
    "`WAKEFUL_API_KEY`": "the key that these verbs show; `--key-file` goes before it",
    "`WAKEFUL_PORT`, `WAKEFUL_MEMORY_LIMIT`, ...": (
        "every key of `[server]`, and the two bounds of `[defaults]`: see [configuration](configuration.md); options go before them"),
    f"`{NAMES['controllers'][0]}`, ...": "every key of `[cluster]`: see [configuration](configuration.md#cluster)",
    "`POD_NAME`, `POD_UID`, `POD_NAMESPACE`, `POD_IP`": "of the pod, for a daemon, a controller and a gateway in a cluster",
    "`KUBECONFIG`": "the cluster, for the verbs of `wakeful cluster` that ask its API server",
    ", ".join(f"`{name}`" for name in SERVICE_VARIABLES): "a service manager's, who is told how the daemon is",
    "`HOME`, `XDG_CACHE_HOME`": "where `wakeful` is, the directory of prepared copies, unless `cache_dir` says so: in `~/.cache`, or in the second",
    "`NO_COLOR`": "not empty: no colours; `--color` goes before it",
    "`FORCE_COLOR`, `CLICOLOR_FORCE`": "set, and not 0: colours off a terminal, too",
    "`TERM`": "`dumb`: no colours, and `top` prints one list",
    "`COLUMNS`": "how wide a terminal is taken to be",
    "`LC_ALL`, `LC_CTYPE`, `LANG`": "of a locale without UTF-8: ASCII alone",
}
COMMON: dict[str, Callable[[Parser], None]] = {
    "Asking a daemon": add_client_options, "Output": add_output_options, "Configuring a daemon": add_options,
}
INTRODUCTION = """\
# Command line

<!-- Made from the parsers of all verbs by `python -m wakeful.cli.reference`; a test holds it up to date. -->

`wakeful VERB --help` shows the same. Results go to stdout; progress, hints, warnings and errors to stderr.

{verbs}

**Which daemon.** Verbs that talk to one take `--url`, else the variable `{url_variable}`, else `{url}`. A [key](how-to/keys.md) comes from
`{key_variable}` or from `--key-file`; there is no option for the key itself, which others on the machine could read.
Where `https://` is signed by an authority of your own, `SSL_CERT_FILE` names its certificate.

**For programs.** `--json` prints one object: `{{"wakeful": 1, "kind": "ps", "data": ...}}`, or `"error": {{"code", "message", "hint", "exit"}}`
instead. `events --follow` and `ps --watch` print one a line. What asks a daemon has in `data` what the [routes](http.md) below `/wakeful/v1` answer:
bytes, seconds, and times in seconds since 1970; null is what is not known. Fields are added, and never come to mean something else.
[Every form](reference/json.md) has a JSON Schema.

**For people.** Colours: `--color`, then `NO_COLOR`, then `FORCE_COLOR` or `CLICOLOR_FORCE`, then whether it is a terminal (and not `TERM=dumb`).
Symbols beyond ASCII only where the locale is UTF-8. Off a terminal nothing is cut and nothing has a colour.

**Completion.** `eval "$(wakeful completion bash)"`, the same for zsh; `wakeful completion fish > ~/.config/fish/completions/wakeful.fish`.

## Exit statuses

| status | meaning |
|---|---|
{statuses}

## Environment

| variable | meaning |
|---|---|
{variables}

`[[auth.api_keys]]`, `[auth.jwt]` and `[[streams]]` may name further variables that hold secrets; those are kept from the processes with models.

## Options in common

### Asking a daemon

{client}

### Output

{output}

### Configuring a daemon

Each is also a key of [`[server]` or `[defaults]`](configuration.md), which tells more of it.

{options}
"""


def reference() -> str:
    """The whole page."""
    listed = [f"* [`{name}`](#{name.replace(' ', '-')}): {entry.summary}" for name, entry in verbs()]
    shared = {title: _actions(parser_of("", add)) for title, add in COMMON.items()}
    shared["Asking a daemon"] = shared["Asking a daemon"][: -len(shared["Output"])]
    client, output, options = (_table(actions) for actions in shared.values())
    opening = INTRODUCTION.format(
        verbs="\n".join(listed),
        statuses="\n".join(f"| {status} | {text} |" for status, text in STATUSES.items()),
        variables="\n".join(f"| {name} | {text} |" for name, text in VARIABLES.items()),
        client=client, output=output, options=options, url=DEFAULT_URL, url_variable=URL_VARIABLE, key_variable=KEY_VARIABLE,
    )
    return "\n".join([opening, *(_section(name, entry, shared) for name, entry in verbs())])


def verbs(prefix: str = "wakeful", entries: Mapping[str, Entry] = program.VERBS) -> Iterator[tuple[str, Entry]]:
    """All of them, each group before its own."""
    for name, entry in entries.items():
        yield f"{prefix} {name}", entry
        if entry.group:
            yield from verbs(f"{prefix} {name}", importlib.import_module(entry.module).VERBS)


def parser_of(name: str, add: Callable[[Parser], None]) -> Parser:
    parser = Parser(name, "")
    add(parser)
    return parser


def parser_of_verb(name: str, entry: Entry) -> Parser:
    return parser_of(name, cast("Verb", importlib.import_module(entry.module)).add_arguments)


def _section(name: str, entry: Entry, shared: Mapping[str, list[argparse.Action]]) -> str:
    summary = f"{entry.summary[0].upper()}{entry.summary[1:]}."
    if entry.group:
        own = importlib.import_module(entry.module).VERBS
        return "\n".join([f"## {name}", "", summary, "", *(f"* [`{name} {verb}`](#{name.replace(' ', '-')}-{verb})" for verb in own), ""])
    parser = parser_of_verb(name, entry)
    epilog = parser.epilog or ""
    for add in COMMON.values():
        epilog = epilog.replace(parser_of("", add).epilog or "", "")  # what stands at the top of the page, of all verbs
    epilog = " ".join(epilog.split())
    parts = [f"## {name}", summary, f"```\n{_usage(parser)}\n```", *_own_and_common(_actions(parser), shared), epilog]
    return "\n\n".join(part for part in parts if part) + "\n"


def _own_and_common(actions: list[argparse.Action], shared: Mapping[str, list[argparse.Action]]) -> tuple[str, str]:
    """A table of what is the verb's own, and links to what it has in common with others. Of those it may lack one, or have another default."""
    common: dict[str, set[str]] = {}
    mine = {_row(action) for action in actions}
    for title, usual in shared.items():
        rows = {_row(action) for action in usual}
        if len(rows & mine) >= len(rows) - 1:
            common[title] = rows
    own = [action for action in actions if not any(_row(action) in rows for rows in common.values())]
    links = [f"[{title}](#{title.lower().replace(' ', '-')})" for title in common]
    return _table(own) if own else "", f"{'And the' if own else 'The'} options of {', '.join(links)}." if links else ""


def _usage(parser: Parser) -> str:
    """What the verb says of itself, with the places that it does not name."""
    usage = str(parser.usage)
    if usage != f"{parser.prog} [option ...]":
        return usage
    places = [_place(action) for action in _actions(parser) if not action.option_strings]
    options = ["[option ...]"] if any(action.option_strings for action in _actions(parser)) else []
    return " ".join([parser.prog, *places, *options])


def _place(action: argparse.Action) -> str:
    word = str(action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper()))
    return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} ..."}.get(str(action.nargs), word)


def _table(actions: list[argparse.Action]) -> str:
    return "\n".join(["| option | meaning |", "|---|---|", *map(_row, actions)])


def _row(action: argparse.Action) -> str:
    return f"| {_written(action)} | {_text(action)} |"


def _actions(parser: Parser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse has no other list of them


def _written(action: argparse.Action) -> str:
    """`-n, --limit N`"""
    if not action.option_strings:
        return f"`{_cell(_place(action))}`"
    value = "" if action.nargs == 0 else f" {_place(action)}"
    return f"`{_cell(', '.join(action.option_strings) + value)}`"


def _text(action: argparse.Action) -> str:
    words = (action.help or "").replace("%%", "%")
    if not words and action.choices:
        words = "one of these"
    return _cell(" ".join(words.split())).replace("<", "&lt;").replace("*", "\\*")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
