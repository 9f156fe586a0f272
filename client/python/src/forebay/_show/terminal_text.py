"""Text for terminals and notebooks: widths of letters, cut texts, lists with the middle left out, trees and tables.

Independent of plans and datasets; makes no calls.
"""

from __future__ import annotations

import html
import shutil
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

# Columns of a terminal if its size is unknown.
WIDTH = 120
# A tree of at most this width is one line.
LINE_WIDTH = 88
NAMES_SHOWN = 8
PARTS_SHOWN = 8
TEXT_SHOWN = 400


class Branch(NamedTuple):
    """A line of a tree: a label, and texts side by side, which are a line each if they are long."""

    label: str
    texts: Sequence[str]


def terminal_width() -> int:
    """Return the columns of the terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def text_width(text: str) -> int:
    """Return the cells of a terminal that a text takes: two for wide letters, none for combining marks."""
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)


def cut(text: str, width: int) -> str:
    """Return the text, cut to a width of the terminal."""
    if text_width(text) <= width:
        return text
    while text and text_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return the text with spaces up to a width."""
    space = " " * (width - text_width(text))
    return space + text if right else text + space


def plain(text: str) -> str:
    """Return a text without line breaks and other control characters."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def value_text(value: object) -> str:
    """Return a value as a cell shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (float, Decimal)):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        return plain(value) if value and value == value.strip() else repr(plain(value))
    return str(value)


def elided(items: Sequence[str], shown: int) -> list[str]:
    """Return the items; if there are many, only the first ones and the last, with the number of those left out."""
    if len(items) <= shown:
        return list(items)
    return [*items[: shown - 2], f"… {len(items) - shown + 1:,} more", items[-1]]


def tree(heading: str, branches: Sequence[Branch]) -> str:
    """Return a heading and branches: one line if that is short, and otherwise a line per branch, or per text."""
    texts = [Branch(plain(label), [plain(one[:TEXT_SHOWN]) for one in parts]) for label, parts in branches]
    flat = [f"{branch.label} = {' | '.join(elided(branch.texts, PARTS_SHOWN))}" for branch in texts]
    line = f"{heading}: {'; '.join(flat)}"
    if text_width(line) <= LINE_WIDTH:
        return line
    lines = [f"{heading}:"]
    for branch, one in zip(texts, flat, strict=True):
        if len(branch.texts) == 1 or text_width(one) <= LINE_WIDTH - 2:
            lines.append(f"  {one}")
            continue
        lines += [f"  {branch.label} =", *(f"    {text}" for text in elided(branch.texts, PARTS_SHOWN))]
    return "\n".join(lines)


def html_tree(heading: str, branches: Sequence[Branch]) -> str:
    """Return a heading and a table with a row per branch, as HTML without styles or scripts."""
    rows = [
        [branch.label, "\n".join(elided([text[:TEXT_SHOWN] for text in branch.texts], PARTS_SHOWN))]
        for branch in branches
    ]
    return html_table(heading, rows)


def html_table(heading: str, rows: Sequence[Sequence[str]], *, headings: Sequence[Sequence[str]] = ()) -> str:
    """Return a heading and a table as HTML; every text is escaped."""

    def row(tag: str, cells: Sequence[str]) -> str:
        made = "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells)
        return f"<tr>{made}</tr>"

    body = [*(row("th", cells) for cells in headings), *(row("td", cells) for cells in rows)]
    return f"<p>{_escaped(heading)}</p><table>{''.join(body)}</table>"


def _escaped(text: str) -> str:
    return "<br>".join(html.escape(plain(line)) for line in text.split("\n"))
