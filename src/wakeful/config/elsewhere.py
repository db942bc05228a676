"""Tables of the file that were written elsewhere, in an object of a cluster: looked at by the same rules, and told of in the same words.

Files are not looked for: the object may be read on another machine than the one that serves.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wakeful.config.auth import auth_settings, variables_of
from wakeful.config.document import Document
from wakeful.config.load import tables
from wakeful.config.models import report_broken_rules
from wakeful.config.problems import Problem, in_order
from wakeful.config.schema import DefaultsTable, ModelTable, merged
from wakeful.config.validate import validate

_ANY_SECRET = "x" * 64
"""Stands for what a variable has where the daemon runs: long enough for no warning."""


def faults_of_model(keys: Mapping[str, Any]) -> list[Problem]:
    """What a start would say of an entry of [[models]] with these keys."""
    report: list[Problem] = []
    document = Document("", dict(keys))
    own = validate(ModelTable, {"id": "model", "path": "model", **keys}, "[[models]]", document.place, report)
    if own is not None:
        given = {key: value for key, value in own.given().items() if key in keys}
        report_broken_rules(document, merged(DefaultsTable(), given), (), given, report)
    return in_order(report)


def faults_of_file(values: Mapping[str, Any]) -> list[Problem]:
    """What a start would say of a file with these tables, none of which is about models. Variables that it names are taken to be there."""
    report: list[Problem] = []
    document = Document("", dict(values))
    tables(document, {}, Path("/"), report)
    auth = values.get("auth")
    named = dict.fromkeys(variables_of(auth), _ANY_SECRET) if isinstance(auth, Mapping) else {}
    auth_settings(document, (), None, named, report)
    return in_order(report)
