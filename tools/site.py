"""The site of the documents: `python -m tools.site`. It stages the pages with what they link to, and has Zensical build them.

A page's links lead to files of the repository, as on any code host; the site holds those files too, so that no link is dead. Beside it lie
llms.txt and llms-full.txt, for programs that read: the list of the pages, and all of them in one file.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
BUILD = Path("build")
"""Below the directory that the site is made in."""
LINK = re.compile(r"\]\(([^)\s#]+)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Page(NamedTuple):
    kind: str
    """Empty for one that stands alone."""
    title: str
    path: str


def settings() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    return project


def pages(entries: list[dict[str, Any]], kind: str = "") -> Iterator[Page]:
    """As the navigation has them."""
    for entry in entries:
        for title, target in entry.items():
            if isinstance(target, str):
                yield Page(kind, title, target)
            else:
                yield from pages(target, title)


def stage(target: Path) -> set[Path]:
    """Copy every page, and what pages link to, below `target`, as it lies in the repository. Returns their paths from the root."""
    found: set[Path] = set()
    waiting = [Path(page.path) for page in pages(settings()["nav"])]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)
        if path.suffix == ".md":
            waiting += [(ROOT / path.parent / link).resolve().relative_to(ROOT) for link in links((ROOT / path).read_text("utf-8"))]
    return found


def links(text: str) -> list[str]:
    """To files; those in blocks of code lead nowhere."""
    return [link for link in LINK.findall(CODE.sub("", text)) if "://" not in link]


def first_sentence(text: str) -> str:
    """Of the page's first paragraph, on one line."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    first = next((part for part in paragraphs if part and not part.startswith(("#", "<", "|", "```", "!"))), "")
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=\.)\s", first)[0])


def llms() -> str:
    """The list of the pages, as https://llmstxt.org describes it."""
    project = settings()
    lines, kind = [f"# {project['site_name']}", "", f"> {project['site_description']}"], None
    for page in pages(project["nav"]):
        if page.kind != kind:
            kind = page.kind
            lines += ["", f"## {kind or 'More'}", ""]
        lines.append(f"- [{page.title}]({page.path}): {first_sentence((ROOT / page.path).read_text('utf-8'))}")
    return "\n".join(lines) + "\n"


def llms_full() -> str:
    return "\n\n".join((ROOT / page.path).read_text("utf-8").strip() for page in pages(settings()["nav"])) + "\n"


def build(directory: Path) -> Path:
    """Make the site below a directory, and return where it lies. Raises CalledProcessError, with Zensical's words, for what is wrong."""
    staged = directory / BUILD / "pages"
    shutil.rmtree(directory / BUILD, ignore_errors=True)
    stage(staged)
    if directory != ROOT:
        shutil.copy(ROOT / "zensical.toml", directory / "zensical.toml")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    site = directory / BUILD / "site"
    (site / "llms.txt").write_text(llms(), "utf-8")
    (site / "llms-full.txt").write_text(llms_full(), "utf-8")
    return site


if __name__ == "__main__":
    try:
        print(f"the site lies in {build(ROOT)}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: the site cannot be built\n{error.stdout}{error.stderr}")
