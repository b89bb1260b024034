"""What a build adds to the pages: tables made from the code, pages of the root, links that leave docs/.

A page asks by a comment on a line of its own:

<!-- algorithm: fedavg -->     paper, idea, parameters and deviations
<!-- paper: auxo -->           one of these by itself; also parameters, deviations
<!-- algorithms -->            a table of all of them, and where each is described
<!-- experiment -->            every table and key of an experiment's file
<!-- sources: data -->         what a key can name; also fleet, models, partitions, robust
<!-- commands -->              the command line
<!-- layers -->                which layers go around which base rule, and why others don't
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import _algorithms
import _commands
import _experiment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ADOPTED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}  # pages of the root
ASKED = re.compile(r"^<!-- (algorithm|paper|parameters|deviations|sources): ([\w-]+) -->$", re.MULTILINE)
ASKED_FOR_ALL = re.compile(r"^<!-- (algorithms|experiment|commands|layers) -->$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)

ONE = {
    "algorithm": _algorithms.whole,
    "paper": _algorithms.paper,
    "parameters": _algorithms.parameters,
    "deviations": _algorithms.deviations,
    "sources": _experiment.choices,
}


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    for name, address in ADOPTED.items():
        files.append(File.generated(config, address, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    here = page.file.src_uri
    original = next((name for name, address in ADOPTED.items() if address == here), f"docs/{here}")
    return outward(expanded(markdown, here), original, here)


def expanded(text: str, here: str = "index.md") -> str:
    """A page with what it asks for."""
    text = ASKED.sub(lambda asked: ONE[asked[1]](asked[2]), text)
    everything = {
        "algorithms": lambda: _algorithms.overview(posixpath.dirname(here)),
        "experiment": _experiment.reference,
        "commands": _commands.reference,
        "layers": _algorithms.layers,
    }
    return ASKED_FOR_ALL.sub(lambda asked: everything[asked[1]](), text)


def outward(text: str, original: str, here: str) -> str:
    """Links as the site needs them: `original` is the page's path in the repository, `here` in the site.

    Links to adopted pages and between them and docs/ are bent; what the site doesn't have is named instead.
    """
    kept: list[str] = []

    def bent(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(original), target))
        if path in ADOPTED:
            inside = ADOPTED[path]
        elif path.startswith("docs/"):
            inside = path.removeprefix("docs/")
        elif (ROOT / path).exists():  # a file of the repository: its name is enough to find it
            return words if words.startswith("`") else f"{words} (`{path}`)" if words != path else f"`{path}`"
        else:
            return found[0]  # MkDocs says what is wrong with it
        return f"[{words}]({posixpath.relpath(inside, posixpath.dirname(here) or '.')}{anchor})"

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    hidden = LINK.sub(bent, CODE.sub(keep, text))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], hidden)
