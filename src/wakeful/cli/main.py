"""The verbs. Each lives in a module of its own, which is imported only when it is called: help must not take as long as a start."""

import sys
from collections.abc import Sequence

from wakeful.cli.parser import WRONG_USE, complain
from wakeful.cli.verbs import Entry, dispatch, listed

VERBS = {
    "serve": Entry("wakeful.cli.serve", "start the daemon, and serve until it is told to stop"),
    "ps": Entry("wakeful.cli.ps", "list the models, what they do and what they hold"),
    "top": Entry("wakeful.cli.top", "the same, live, with keys"),
    "events": Entry("wakeful.cli.events", "what the daemon decided, newest last"),
    "explain": Entry("wakeful.cli.explain", "why a model is as it is, and what a request would do"),
    "load": Entry("wakeful.cli.load", "wake models now"),
    "unload": Entry("wakeful.cli.unload", "put models to sleep, once they have done what they have in hand"),
    "pin": Entry("wakeful.cli.pin", "wake models, and keep them awake"),
    "unpin": Entry("wakeful.cli.unpin", "let models sleep again"),
    "infer": Entry("wakeful.cli.infer", "call a model once, with values of a file or made-up ones"),
    "health": Entry("wakeful.cli.health", "say whether the daemon takes requests"),
    "check": Entry("wakeful.cli.check", "say what is wrong with a configuration, without starting"),
    "config": Entry("wakeful.cli.config", "list the settings that count, or print their schema", group=True),
    "doctor": Entry("wakeful.cli.doctor", "say whether this machine can do it, and what to change"),
    "init": Entry("wakeful.cli.init", "write a commented models.toml for the models in a directory"),
    "prepare": Entry("wakeful.cli.prepare", "make copies of models that load faster, now and without a daemon"),
    "convert": Entry("wakeful.cli.convert", "make ONNX of a file of scikit-learn, XGBoost or LightGBM"),
    "bench": Entry("wakeful.cli.bench", "measure a server of the Open Inference Protocol, this one or another"),
    "cluster": Entry("wakeful.cli.cluster", "everything on Kubernetes; wakeful cluster --help has its verbs", group=True),
    "completion": Entry("wakeful.cli.completion", "print a script that completes command lines in bash, zsh or fish"),
    "version": Entry("wakeful.cli.version", "say which version this is"),
}
HELP = """\
Wakeful serves models that sleep until a request wakes them.

{verbs}

  wakeful serve --demo                 a first try, with two small models
  wakeful serve --models-dir models    every model in models/

  wakeful VERB --help shows the options; wakeful --version the version.
""".format(verbs=listed("wakeful", VERBS))


FIRST = """\
Wakeful serves models that sleep until a request wakes them.

  wakeful serve --demo                 serve two small models; --models-dir DIR serves every one in DIR
  wakeful ps                           what the models do, and what they hold
  wakeful infer digits random          call a model once, and show the answer
  wakeful explain digits               why it is awake or asleep
  wakeful events --follow              what the daemon decides, as it does
  wakeful bench digits                 how fast it is

  wakeful --help has all verbs, wakeful VERB --help the options of one.
"""


def main(arguments: Sequence[str], started: float) -> int:
    """Run a command line (without the program's name) and return the exit status."""
    name = arguments[0] if arguments else ""
    if not arguments:
        sys.stderr.write(FIRST)
        return WRONG_USE
    name = {"-V": "version", "--version": "version"}.get(name, name)
    if name in VERBS and sys.platform != "linux":
        complain(f"wakeful runs on Linux only, and this is {sys.platform}: its memory and processes are the kernel's own (memfd, pidfd, /proc)")
        return WRONG_USE
    return dispatch("wakeful", VERBS, HELP, [name, *arguments[1:]], started)
