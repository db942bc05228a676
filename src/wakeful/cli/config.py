"""`wakeful config`: what settings there are, and which count here. Each verb has a module of its own."""

from collections.abc import Sequence

from wakeful.cli.verbs import Entry, dispatch, listed

VERBS = {
    "show": Entry("wakeful.cli.config_show", "list the settings that count, and where each comes from"),
    "schema": Entry("wakeful.cli.config_schema", "print the JSON Schema of models.toml, for editors"),
}
HELP = f"""\
Settings. docs/configuration.md tells of every one of them; wakeful check says what is wrong with a file.

{listed("wakeful config", VERBS)}

  wakeful config by itself is wakeful config show; wakeful config VERB --help shows the options.
"""


def main(arguments: Sequence[str], started: float) -> int:
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["show", *arguments]
    return dispatch("wakeful config", VERBS, HELP, arguments, started)
