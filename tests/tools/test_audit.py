"""What the audit makes of pip-audit's reports."""

import json
from collections.abc import Mapping

from tools.audit import verdict

GOOD = {"name": "good", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}]}
UNKNOWN = {"name": "unknown", "skip_reason": "not found"}


def report(*packages: Mapping[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_a_known_vulnerability_fails() -> None:
    assert verdict(report(GOOD, WEAK), "") == (
        1, "audit: 2 known vulnerabilities\nweak 1.0: PYSEC-1, fixed in 1.1\nweak 1.0: PYSEC-2, fixed in no version yet",
    )


def test_none_passes_and_says_what_was_not_looked_up() -> None:
    assert verdict(report(GOOD), "") == (0, "audit: no known vulnerability in 1 packages")
    assert verdict(report(GOOD, UNKNOWN), "") == (0, "audit: no known vulnerability in 1 packages; 1 could not be looked up")


def test_without_the_database_it_is_skipped_and_says_so() -> None:
    assert verdict(report(UNKNOWN, UNKNOWN), "") == (
        0, "audit skipped: the database of vulnerabilities knows none of the 2 packages; it is not reached from here",
    )
    status, text = verdict("", "Traceback\nProxyError: cannot connect\n")
    assert (status, text) == (0, "audit skipped: the database of vulnerabilities could not be asked (ProxyError: cannot connect)")
    assert verdict("[]", "")[0] == 0
