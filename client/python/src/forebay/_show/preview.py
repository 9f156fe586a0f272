"""The first rows of a dataset as a table that fits the terminal, and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .terminal_text import cut, html_table, padded, plain, terminal_width, text_width, value_text

if TYPE_CHECKING:
    import pyarrow as pa

CELL_WIDTH = 24
BYTES_SHOWN = 6
LINES_MAX = 60
# Columns of the table in a notebook, which scrolls.
HTML_COLUMNS_MAX = 40
GAP = "…"


@dataclass(frozen=True, repr=False)
class Preview:
    """The first rows of a dataset; prints as a table with types, the middle columns left out in a narrow terminal."""

    dataset: str
    table: pa.Table
    """The rows, as `Client.head` returns them."""

    def __repr__(self) -> str:
        columns = _columns(self.table)
        kept = _fitting([max(map(text_width, column)) for column in columns], terminal_width())
        shown = [columns[at] if at is not None else [GAP] * len(columns[0]) for at in kept]
        widths = [max(map(text_width, column)) for column in shown]
        lines = [
            "  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in zip(*shown, strict=True)
        ]
        left_out = len(columns) - sum(at is not None for at in kept)
        return "\n".join([cut(self._heading(left_out), terminal_width()), *lines, *self._more()])

    def _repr_html_(self) -> str:
        columns = _columns(self.table)
        kept = _middle_left_out(len(columns), min(len(columns), HTML_COLUMNS_MAX))
        shown = [columns[at] if at is not None else [GAP] * len(columns[0]) for at in kept]
        rows = list(zip(*shown, strict=True))
        left_out = len(columns) - sum(at is not None for at in kept)
        return html_table(self._heading(left_out), rows[2:], headings=rows[:2])

    def _heading(self, left_out: int) -> str:
        counts = f"{self.dataset}: first {self.table.num_rows:,} rows, {self.table.num_columns:,} columns"
        return plain(f"{counts}, {left_out:,} not shown" if left_out else counts)

    def _more(self) -> list[str]:
        more = self.table.num_rows - LINES_MAX
        return [f"… {more:,} more rows: see table"] if more > 0 else []


def _columns(table: pa.Table) -> list[list[str]]:
    """Return the name, the type and the values of each column as texts."""
    found: list[list[str]] = []
    for name, kind, values in zip(
        table.column_names, table.schema.types, table.slice(0, LINES_MAX).columns, strict=True
    ):
        cells = [cut(cell_text(value), CELL_WIDTH) for value in cast("list[Any]", values.to_pylist())]
        found.append([cut(plain(name), CELL_WIDTH), cut(str(kind), CELL_WIDTH), *cells])
    return found


def cell_text(value: object) -> str:
    """Return a value as a cell of a preview shows it; bytes by their number and beginning."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        rest = GAP if len(value) > BYTES_SHOWN else ""
        start = f": {value[:BYTES_SHOWN].hex()}{rest}" if value else ""
        return f"<{len(value):,} B{start}>"
    if isinstance(value, (list, dict)):
        return plain(repr(cast(object, value))[: 4 * CELL_WIDTH])
    return value_text(value if not isinstance(value, str) else value[: 4 * CELL_WIDTH])


def _fitting(widths: Sequence[int], width: int) -> list[int | None]:
    """Return the positions of the columns that fit, from both ends; None is in place of those between."""
    for count in range(len(widths), 0, -1):
        kept = _middle_left_out(len(widths), count)
        needed = sum(len(GAP) if at is None else widths[at] for at in kept) + 2 * (len(kept) - 1)
        if needed <= width:
            return kept
    return [0] if len(widths) == 1 else [0, None]


def _middle_left_out(columns: int, count: int) -> list[int | None]:
    if count == columns:
        return list(range(columns))
    first = (count + 1) // 2
    return [*range(first), None, *range(columns - (count - first), columns)]
