"""`wakeful completion`: a script for a shell, made from the parsers of all verbs. Nothing is written to anybody's files."""

import argparse
import importlib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from wakeful.cli.models import VERB
from wakeful.cli.parser import DONE, Parser
from wakeful.cli.verbs import Entry, Verb

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": "# eval \"$(wakeful completion bash)\", in ~/.bashrc",
    "zsh": "# eval \"$(wakeful completion zsh)\", in ~/.zshrc behind compinit",
    "fish": "# wakeful completion fish > ~/.config/fish/completions/wakeful.fish",
}
AWAKE = ("unload", "unpin")
"""Verbs that are for models which are awake."""


class Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    values: tuple[str, ...]
    """Words it takes; empty: anything."""
    takes: bool
    """It has a value."""
    files: bool


class Line(NamedTuple):
    """What may stand behind a verb."""

    summary: str
    options: tuple[Option, ...]
    models: bool
    files: bool
    words: tuple[str, ...] = ()


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} {'|'.join(SHELLS)}"
    parser.epilog = "Its first line says where to put it; to try it in bash: eval \"$(wakeful completion bash)\"."
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: Namespace) -> int:
    from wakeful.cli.main import VERBS  # noqa: PLC0415 - which names this module

    lines = {name: line_of(name, entry) for name, entry in VERBS.items()}
    print(f"{HOW[arguments.shell]}\n{SCRIPTS[arguments.shell](lines)}", end="")
    return DONE


def line_of(name: str, entry: Entry) -> Line:
    """From the verb's own parser, so that completion knows what the verb knows."""
    if entry.group:
        verbs: Mapping[str, Entry] = importlib.import_module(entry.module).VERBS
        return Line(entry.summary, (), models=False, files=False, words=tuple(verbs))
    parser = Parser(f"wakeful {name}", entry.summary)
    cast("Verb", importlib.import_module(entry.module)).add_arguments(parser)
    actions = parser._actions  # noqa: SLF001 - argparse has no other list of them
    places = [action for action in actions if not action.option_strings]
    words = tuple(str(choice) for action in places for choice in action.choices or ())
    options = tuple(_option(action) for action in actions if action.option_strings)
    return Line(
        entry.summary, (*options, Option(("-h", "--help"), "show help", (), takes=False, files=False)),
        models=any(action.metavar == "MODEL" for action in places), files=any(action.metavar in _PATHS for action in places), words=words,
    )


_PATHS = ("FILE", "DIR", "FILE|DIR")


def _option(action: argparse.Action) -> Option:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    values = tuple(map(str, action.choices or ())) or (tuple(metavar.split("|")) if "|" in metavar and metavar.islower() else ())
    text = (action.help or "").replace("%%", "%").splitlines() or [""]
    return Option(tuple(action.option_strings), text[0], values, takes=action.nargs != 0, files=metavar in _PATHS)


def _names(verb: str) -> str:
    return f"wakeful {VERB}{' --awake' if verb in AWAKE else ''} 2>/dev/null"


# ── bash ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def bash(lines: Mapping[str, Line]) -> str:
    cases = "\n".join(_bash_case(verb, line) for verb, line in lines.items())
    return _BASH.replace("VERBS", " ".join(lines)).replace("CASES", cases)


def _bash_case(verb: str, line: Line) -> str:
    flags = " ".join(flag for option in line.options for flag in option.flags)
    words = " ".join(line.words)
    parts = [f"    {verb})", f"      options='{flags}'", f"      words='{words}'"]
    if line.models:
        parts.append(f'      [[ $current == -* ]] || words="$({_names(verb)})"')
    values = [(option, "|".join(option.flags)) for option in line.options if option.takes]
    if values:
        parts.append("      case $previous in")
        for option, pattern in values:
            then = f"options='' words='{' '.join(option.values)}'" if option.values else "files=1" if option.files else "return"
            parts.append(f"        {pattern}) {then} ;;")
        parts.append("      esac")
    if line.files:
        parts.append("      [[ $current == -* ]] || files=1")
    return "\n".join([*parts, "      ;;"])


_BASH = """\
_wakeful() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options='' words='' files=''
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W 'VERBS --help --version' -- "$current"))
    return
  fi
  case ${COMP_WORDS[1]} in
CASES
  esac
  [[ $current == -* ]] && words=$options
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $files ]] && compopt -o default 2>/dev/null
}
complete -F _wakeful wakeful
"""

# ── zsh ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def zsh(lines: Mapping[str, Line]) -> str:
    verbs = "\n".join(f"    '{verb}:{_zsh(line.summary)}'" for verb, line in lines.items())
    cases = "\n".join(_zsh_case(verb, line) for verb, line in lines.items())
    return _ZSH.replace("VERBS", verbs).replace("CASES", cases)


def _zsh_case(verb: str, line: Line) -> str:
    parts = [f"    {verb})", "      _arguments -s : \\"]
    for option in line.options:
        value = f":value:({' '.join(option.values)})" if option.values else ":file:_files" if option.files else ":value: " if option.takes else ""
        parts += [f"        '{flag}[{_zsh(option.help)}]{value}' \\" for flag in option.flags]
    if line.words:
        parts.append(f"        '1:word:({' '.join(line.words)})'")
    elif line.models:
        parts.append(f"        '*:model:($({_names(verb)}))'".replace("'*:model:($(", "\"*:model:($(").replace("))'", "))\""))
    else:
        parts.append(f"        '*:file:{'_files' if line.files else ' '}'")
    return "\n".join([*parts, "      ;;"])


def _zsh(text: str) -> str:
    return text.replace("'", "’").replace("[", "(").replace("]", ")").replace(":", "\\:")


_ZSH = """\
#compdef wakeful
_wakeful() {
  local -a verbs=(
VERBS
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
CASES
  esac
}
compdef _wakeful wakeful
"""

# ── fish ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fish(lines: Mapping[str, Line]) -> str:
    return "\n".join(["complete -c wakeful -f", *(text for verb, line in lines.items() for text in _fish_lines(verb, line)), ""])


def _fish_lines(verb: str, line: Line) -> Iterator[str]:
    yield f"complete -c wakeful -n __fish_use_subcommand -a {verb} -d '{_fish(line.summary)}'"
    seen = f"complete -c wakeful -n '__fish_seen_subcommand_from {verb}'"
    if line.models:
        yield f"{seen} -a '({_names(verb)})'"
    if line.words:
        yield f"{seen} -a '{' '.join(line.words)}'"
    if line.files:
        yield f"{seen} -F"
    for option in line.options:
        flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
        value = f" -x -a '{' '.join(option.values)}'" if option.values else " -r -F" if option.files else " -x" if option.takes else ""
        yield f"{seen} {flags}{value} -d '{_fish(option.help)}'"


def _fish(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
