"""The blocks of docs/cluster.md, by how they are marked:

    ```sh      commands of bash; all of the page run in order, each block in a shell of its own that ends at the first failure
    ```text    right after them: lines that they print, in this order, perhaps with others between; spaces are as good as one another, … is anything
    ```        beginning with $: for people alone
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

GUIDE = Path(__file__).parents[2] / "docs" / "cluster.md"
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"kubectl apply -f - <<'?EOF'?\n(.*?)^EOF$", re.MULTILINE | re.DOTALL)
ANYTHING = "…"


class Block(NamedTuple):
    line: int
    """Of its first command, in the page."""
    commands: str
    expected: str
    """Empty: it may print what it likes."""


def blocks(page: str) -> list[Block]:
    """Raises ValueError for a block that nobody would run or compare."""
    found: list[Block] = []
    for mark, text, line, follows in _marked(page):
        if mark == "sh":
            found.append(Block(line, text, ""))
        elif mark == "text" and found and follows == "sh":
            found[-1] = found[-1]._replace(expected=text)
        elif mark or not (text.startswith("$ ") or "─" in text):
            raise ValueError(f"line {line}: expected sh, text after sh, or a block that begins with $, got {mark or text.splitlines()[0]!r}")
    return found


def _marked(page: str) -> Iterator[tuple[str, str, int, str]]:
    """Mark, text, line and the mark of the block before if there is nothing between them."""
    end, before = 0, ""
    for match in BLOCK.finditer(page):
        yield match[1], match[2], page.count("\n", 0, match.start(2)) + 1, "" if page[end : match.start()].strip() else before
        end, before = match.end(), match[1]


def section(page: str, title: str) -> list[Block]:
    """Blocks below a heading of the second level. Raises ValueError where there is none."""
    begins = page.index(f"\n## {title}\n") + 1
    ends = page.find("\n## ", begins)
    first, last = page.count("\n", 0, begins), page.count("\n", 0, ends if ends > 0 else len(page))
    return [block for block in blocks(page) if first <= block.line <= last + 1]


def manifests(page: str) -> Iterator[dict[str, object]]:
    """All objects that the page applies."""
    for text in HERE_DOCUMENT.findall(page):
        yield from yaml.safe_load_all(text)


def missing(expected: str, printed: str) -> str | None:
    """The first expected line that was not printed, if there is one."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        if line.strip() and line.strip() != ANYTHING:
            pattern = re.compile(r"\s*" + ".*".join(_spaced(part) for part in line.strip().split(ANYTHING)) + r"\s*")
            if not any(pattern.fullmatch(one) for one in lines):
                return line
    return None


def _spaced(text: str) -> str:
    words = [re.escape(word) for word in text.split()]
    begins, ends = r"\s*" if text[:1].isspace() else "", r"\s*" if text[-1:].isspace() else ""
    return begins + r"\s+".join(words) + ends if words else r"\s*"
