"""Known vulnerabilities of what is installed: `make audit`. Where the database cannot be asked, that is said, and nothing fails.

Everything that constraints.txt pins is looked up by pip-audit. A vulnerability that does not concern this project is passed over with
`make audit AUDIT='--ignore-vuln ID'`, and the reason belongs beside it in the Makefile.
"""

import json
import subprocess
import sys
from typing import Any

COMMAND = ("-r", "constraints.txt", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
SECONDS = 120


def verdict(output: str, errors: str) -> tuple[int, str]:
    """Exit status and a text, of what pip-audit printed."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        return 0, f"audit skipped: the database of vulnerabilities could not be asked ({last[:200]})"
    found = [f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
             for package in packages for vulnerability in package.get("vulns", ())]
    unknown = sum("skip_reason" in package for package in packages)
    if found:
        return 1, "\n".join([f"audit: {len(found)} known vulnerabilities", *found])
    if unknown == len(packages):
        return 0, f"audit skipped: the database of vulnerabilities knows none of the {unknown} packages; it is not reached from here"
    return 0, f"audit: no known vulnerability in {len(packages) - unknown} packages" + (f"; {unknown} could not be looked up" if unknown else "")


def main() -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", *COMMAND, *sys.argv[1:]], capture_output=True, text=True, timeout=SECONDS, check=False,
        )
    except subprocess.TimeoutExpired:
        status, text = verdict("", f"no answer in {SECONDS} s")
    else:
        status, text = verdict(done.stdout, done.stderr)
    print(text)
    sys.exit(status)


if __name__ == "__main__":
    main()
