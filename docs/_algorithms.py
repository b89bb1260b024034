"""Algorithms as their files describe them, in Markdown."""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from string import ascii_lowercase

from potluck import algorithms
from potluck.layers import LAYERS, list_apart, list_matrix

DOCS = Path(__file__).resolve().parent
SHOWN = re.compile(r"^<!-- (?:algorithm|parameters): (\w+) -->$", re.MULTILINE)
LONG = 60  # letters of a default, from which on its settings are left out


_described = cache(algorithms.describe)


def whole(name: str) -> str:
    """Paper, idea, parameters, deviations."""
    return "\n\n".join((paper(name), idea(name), parameters(name), deviations(name)))


def paper(name: str) -> str:
    """What was published, and what the rules were taken from."""
    told = _described(name)
    return f"**Paper.** {plain(told.paper)} Rules taken from: {told.fidelity}. Name in a file: `{told.name}`."


def idea(name: str) -> str:
    """The idea alone, where the file goes on to deviations in the same paragraph."""
    return plain(re.split(r"\bDeviations\b", _described(name).idea)[0].strip())


def parameters(name: str) -> str:
    """The keys of [algorithms.NAME], with the defaults of both modes where there are some."""
    told = _described(name)
    heads = ("`potluck`", "`published`, if it differs") if told.modes else ("default",)
    rows = [
        (
            f"`{p.name}`",
            code(p.type),
            *(code(shortened(each)) for each in (p.default, p.paper)[: len(heads)]),
            plain(p.meaning),
        )
        for p in told.parameters
        if p.name != "local"
    ]
    train = "what this algorithm should have otherwise than `[train]`"
    rows.append(("`train`", "`table`", *("" for _ in heads), train))
    return table(("key", "type", *heads, "meaning"), rows)


def deviations(name: str) -> str:
    """All that a file says after the idea: readings, deviations, views."""
    text = inspect.getdoc(importlib.import_module(f"potluck.algorithms.{algorithms.canonical(name)}")) or ""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", text.strip())]
    _, *after = re.split(r"(?=\bDeviations\b)", paragraphs[1], maxsplit=1)
    said = [*after, *paragraphs[2:]]
    body = "\n\n".join(f"    {plain(p)}" for p in said) or "    None."
    return f'??? note "Readings and deviations"\n\n{body}'


def overview(here: str) -> str:
    """Every algorithm, and the page that shows it; one that no page shows is described here."""
    pages = {name: path for path in sorted(DOCS.rglob("*.md")) for name in SHOWN.findall(path.read_text())}
    up = "../" if here else ""
    rows, rest = [], []
    for name in algorithms.names():
        told = _described(name)
        if name in pages:
            link = f"[`{name}`]({up}{pages[name].relative_to(DOCS).as_posix()})"
        else:
            link = f"[`{name}`](#{name})"
            rest.append(f"## {name} {{#{name}}}\n\n{whole(name)}")
        rows.append((link, plain(told.paper), told.fidelity))
    return "\n\n".join((table(("name", "paper", "rules from"), rows), *rest))


def layers() -> str:
    """Which layers go around which base rule; below, why others don't."""
    rows, letters = [], dict[str, str]()
    for row in list_matrix(algorithms.names()):
        for reason in row.refused.values():
            letters.setdefault(reason, ascii_lowercase[len(letters)])
        yes = {layer: f"`{row.terms[layer]}`" if layer in row.terms else "yes" for layer in LAYERS}
        told = (letters[row.refused[layer]] if layer in row.refused else yes[layer] for layer in LAYERS)
        rows.append((f"`{row.algorithm}`", *told))
    reasons = "\n".join(f"- {letter}: {reason}" for reason, letter in letters.items())
    apart = "\n".join(f"- {pair} don't go together: {reason}" for pair, reason in list_apart().items())
    return f"{table(('algorithm', *(f'`{layer}`' for layer in LAYERS)), rows)}\n\n{reasons}\n{apart}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Rows of cells as Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """Bars end a cell, but for those between backticks."""
    return "".join(p if p.startswith("`") else p.replace("|", r"\|") for p in re.split(r"(`[^`]*`)", text))


def shortened(default: str) -> str:
    """A part by its name where its settings would fill the page."""
    name, open_, _ = default.partition("(")
    return f"{name}(...)" if open_ and len(default) > LONG else default


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Text whose signs mean nothing in Markdown, but for those between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_\[\]<>])", r"\\\1", p) for p in parts)
