"""The documents of the repository, the examples in them, and the links and headings that they have."""

from __future__ import annotations

import re
from pathlib import Path

from harness.repository import ROOT

README = ROOT / "README.md"
BOOK = ROOT / "docs/src"

EXAMPLE = re.compile(r"<!-- example: ([\w-]+) -->\n```python\n(.*?)```", re.DOTALL)
FENCE = re.compile(r"^( *)(```+).*?^\1\2`* *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s<>]+)>?(?: \"[^\"]*\")?\)")
PATH = re.compile(r"(?<=`)(?:\.ci|\.github|proto|kernels|server|client|docs|grafana|benches)/[\w./-]*(?=`)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def documents() -> list[Path]:
    """Every document whose links readers follow."""
    found = sorted(ROOT.glob("*.md"))
    found += [ROOT / "client/python/README.md", ROOT / "grafana/README.md"]
    found += sorted(BOOK.rglob("*.md"))
    found += sorted((ROOT / "server").glob("*/*.md"))
    found += sorted((ROOT / "benches").glob("*.md"))
    return found + sorted((ROOT / "benches").glob("*/README.md"))


def examples() -> dict[str, str]:
    """Python examples by name. Several documents may have an example, in the same words."""
    found: dict[str, str] = {}
    for path in documents():
        for name, code in EXAMPLE.findall(path.read_text()):
            assert found.setdefault(name, code) == code, f"{path.relative_to(ROOT)}: example {name} differs elsewhere"
    return found


def example(name: str) -> str:
    """The Python code of the example of this name."""
    return examples()[name]


def prose(text: str) -> str:
    """The text without blocks and spans of code, which hold no links and no headings."""
    without_blocks = FENCE.sub("", text)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", without_blocks)


def links(text: str) -> list[str]:
    """The targets of links and images."""
    return LINK.findall(prose(text))


def paths(text: str) -> list[str]:
    """The paths from the repository's root in code spans, except those with placeholders such as NAME."""
    return [path for path in PATH.findall(FENCE.sub("", text)) if not re.search(r"\b[A-Z]+\b(?!\.md)", path)]


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub and mdBook name them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = 0
        while (anchor := f"{name}-{count}" if count else name) in found:
            count += 1
        found.add(anchor)
    return found
