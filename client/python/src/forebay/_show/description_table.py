"""A description as a table of text that fits the terminal, and as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from .terminal_text import cut, html_table, padded, plain, terminal_width, text_width, value_text

Fields = Mapping[str, object]
Tops = Sequence[Sequence[tuple[object, int]]]

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
    width = terminal_width()
    shown = columns[:LINES_MAX]
    cells = [[*HEADINGS], *(_cells(fields, top, rows) for fields, top in zip(shown, tops, strict=False))]
    lines = [cut(heading, width), *(line.rstrip() for line in _fitted(cells, width))]
    if len(columns) > len(shown):
        lines.append(f"… {len(columns) - len(shown):,} more columns: name them, or use to_frame()")
    return "\n".join(lines)


def described_html(heading: str, columns: Sequence[Fields], tops: Tops, rows: int) -> str:
    """Return the heading and a table."""
    body = [_cells(fields, top, rows) for fields, top in zip(columns[:LINES_MAX], tops, strict=False)]
    return html_table(heading, body, headings=[HEADINGS])


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
        cut(plain(str(fields["column"])), NAME_WIDTH),
        cut(_short_type(str(fields["type"])), TYPE_WIDTH),
        f"{nulls:,}{share}{nans}",
        counted,
        *(cut(text, VALUE_WIDTH) for text in texts),
        ", ".join(most),
    ]


def _short_type(name: str) -> str:
    """Return a type without the names of keys and elements."""
    name = re.sub(r"dictionary<values=(.*), indices=\w+, ordered=\d>", r"dictionary<\1>", name)
    return re.sub(r"list<\w+: ", "list<", name)


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
        cells_of_row = [padded(row[column], widths[column], right=RIGHT[column]) for column in kept]
        lines.append(cut("  ".join(cells_of_row).rstrip(), width))
    return lines


def _column_width(cells: Sequence[Sequence[str]], column: int) -> int:
    return max(text_width(row[column]) for row in cells)
