"""A description as a table of text that fits the terminal, and as HTML."""

from __future__ import annotations

import html
import re
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import cast

Fields = Mapping[str, object]
Tops = Sequence[Sequence[tuple[object, int]]]

# Columns of a terminal if its size is unknown.
WIDTH = 120
NAME_WIDTH = 24
TYPE_WIDTH = 16
VALUE_WIDTH = 19
TOP_WIDTH_MIN = 14
TOP_SHOWN = 5
LINES_MAX = 200
HEADINGS = ("column", "type", "nulls", "distinct", "min", "median", "max", "top")
RIGHT = (False, False, True, True, True, True, True, False)
# What a narrow terminal does without, first to last.
DROPPED = ("top", "median", "type", "max", "min", "distinct")


def described_text(heading: str, columns: Sequence[Fields], tops: Tops, rows: int) -> str:
    """Return the heading and a line per column, no wider than the terminal."""
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    shown = columns[:LINES_MAX]
    cells = [[*HEADINGS], *(_cells(fields, top, rows) for fields, top in zip(shown, tops, strict=False))]
    lines = [_cut(heading, width), *(line.rstrip() for line in _fitted(cells, width))]
    if len(columns) > len(shown):
        lines.append(f"… {len(columns) - len(shown):,} more columns: name them, or use to_frame()")
    return "\n".join(lines)


def described_html(heading: str, columns: Sequence[Fields], tops: Tops, rows: int) -> str:
    """Return the heading and a table."""

    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = [row("td", _cells(fields, top, rows)) for fields, top in zip(columns[:LINES_MAX], tops, strict=False)]
    return f"<p>{html.escape(heading)}</p><table>{row('th', HEADINGS)}{''.join(body)}</table>"


def _cells(fields: Fields, top: Sequence[tuple[object, int]], rows: int) -> list[str]:
    nulls = cast(int, fields["nulls"])
    share = f" ({nulls / rows:.1%})" if nulls else ""
    nans = f", {fields['nans']:,} NaN" if fields["nans"] else ""
    distinct = cast("int | None", fields["distinct"])
    counted = "" if distinct is None else f"{'' if fields['distinct_is_exact'] else '~'}{distinct:,}"
    texts = [value_text(fields[name]) for name in ("min", "50%", "max")]
    if texts[1] and not fields["quantiles_are_exact"]:
        texts[1] = f"~{texts[1]}"
    most = [f"{value_text(value)} {count / rows:.1%}" for value, count in top[:TOP_SHOWN] if count > 1]
    if not any(texts) and fields["length_max"] is not None:
        most = [f"lengths {fields['length_min']:,} to {fields['length_max']:,}"]
    return [
        _cut(plain(str(fields["column"])), NAME_WIDTH),
        _cut(_short_type(str(fields["type"])), TYPE_WIDTH),
        f"{nulls:,}{share}{nans}",
        counted,
        *(_cut(text, VALUE_WIDTH) for text in texts),
        ", ".join(most),
    ]


def _short_type(name: str) -> str:
    """Return a type without the names of keys and elements."""
    name = re.sub(r"dictionary<values=(.*), indices=\w+, ordered=\d>", r"dictionary<\1>", name)
    return re.sub(r"list<\w+: ", "list<", name)


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


def plain(text: str) -> str:
    """Return a text without line breaks and other control characters."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _fitted(cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table: a narrow terminal lacks columns, and the last one is cut."""
    kept = list(range(len(HEADINGS)))
    for name in DROPPED:
        at = HEADINGS.index(name)
        needed = sum(_column_width(cells, column) + 2 for column in kept if HEADINGS[column] != "top")
        if needed + (TOP_WIDTH_MIN if HEADINGS.index("top") in kept else 0) <= width + 2:
            break
        kept.remove(at)
    widths = {column: _column_width(cells, column) for column in kept}
    lines: list[str] = []
    for row in cells:
        padded = [_pad(row[column], widths[column], right=RIGHT[column]) for column in kept]
        lines.append(_cut("  ".join(padded).rstrip(), width))
    return lines


def _column_width(cells: Sequence[Sequence[str]], column: int) -> int:
    return max(_width(row[column]) for row in cells)


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    """Return the text, cut to a width of the terminal."""
    if _width(text) <= width:
        return text
    while text and _width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _width(text: str) -> int:
    """Return the cells of a terminal that a text takes: two for wide letters, none for combining marks."""
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)
