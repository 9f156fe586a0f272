"""Compares every expression as a filter and as a derived column, over every layout of a table, and in DuckDB.

What must hold for an expression that the server can type:
- on one layout, a filter passes the rows for which the derived column is true, with any pruning;
- a filter fails only where the derived column fails. Where that fails and the filter does not, because the rows that
  fail were skipped, each row that passes is true, and each that does not is false, null or fails;
- the derived column is the same on every layout. Whether it fails is too, unless a row decides what is evaluated;
- where DuckDB reads the expression alike and has an answer, it is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from harness.filters.answers import AT_ONCE, Answer, derived, passed
from harness.filters.duckdb_values import Opinion
from harness.filters.grammar import Expr
from harness.filters.layouts import Layout
from harness.filters.tables import Drawn

# How pyarrow shows the only status in which an expression may be refused.
INVALID_ARGUMENT = "Flight returned invalid argument error"


@dataclass(frozen=True)
class Disagreement:
    """Two answers that should be equal."""

    table: Drawn
    layout_name: str
    layout: Layout
    expr: Expr
    what: str

    def __str__(self) -> str:
        return (
            f"seed {self.table.seed}, {self.table.rows} rows, layout {self.layout_name}: {self.layout}\n"
            f"  {self.expr.sql}\n  DuckDB: {self.expr.duck}\n  {self.what}"
        )


@dataclass
class Tally:
    """Counts of checked expressions, and the reasons of rejections and failures."""

    cases: int = 0
    filters: int = 0
    opinions: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        return self.cases - self.refused.total() - self.failed.total()

    def summary(self) -> str:
        return (
            f"{self.cases} expressions, {self.filters} filters, {self.opinions} opinions of DuckDB; "
            f"{self.refused.total()} refused, {self.failed.total()} failed on the data"
        )


@dataclass(frozen=True)
class Stored:
    """A table on the server: its datasets by the name of the layout, and the file that DuckDB reads."""

    table: Drawn
    layouts: dict[str, Layout]
    datasets: dict[str, str]
    plain_file: Path
    # The rows of the table that are stored, in order.
    rows: Sequence[int]


def search(client: fl.FlightClient, stored: Stored, exprs: Sequence[Expr], tally: Tally) -> list[Disagreement]:
    """All disagreements about these expressions."""
    texts = [expr.sql for expr in exprs]
    names = list(stored.layouts)
    with ThreadPoolExecutor(6) as pool:
        columns = derived_everywhere(client, pool, [stored.datasets[name] for name in names], texts)
        # On the plain layout, which is the first, a filter has nothing to skip.
        pairs = [(name, index) for index, expr in enumerate(exprs) if expr.kind == "bool" for name in names[1:]]
        filters = list(pool.map(lambda pair: passed(client, stored.datasets[pair[0]], texts[pair[1]]), pairs))
    found: list[Disagreement] = []

    def add(name: str, expr: Expr, what: str | None) -> None:
        if what:
            found.append(Disagreement(stored.table, name, stored.layouts[name], expr, what))

    tally.cases += len(exprs)
    tally.filters += len(filters)
    for (name, index), filtered in zip(pairs, filters, strict=True):
        of_column = columns[names.index(name)][index]
        add(name, exprs[index], against_column(client, stored, name, texts[index], filtered, of_column))
    with Opinion(stored.plain_file) as opinion:
        for index, expr in enumerate(exprs):
            plain = columns[0][index]
            count(tally, plain)
            for name, answers in zip(names, columns, strict=True):
                add(name, expr, fault(answers[index]) or between_layouts(stored.rows, plain, answers[index], expr))
            if plain.values is not None and (wanted := opinion.values(expr)) is not None:
                tally.opinions += 1
                add(names[0], expr, different(stored.rows, "Forebay", plain.values, "DuckDB", wanted))
        tally.unanswered.update(reason for _, reason in opinion.refusals)
    return found


def derived_everywhere(
    client: fl.FlightClient, pool: ThreadPoolExecutor, datasets: Sequence[str], texts: Sequence[str]
) -> list[list[Answer]]:
    """The columns of every dataset. What fails on the first dataset is requested separately on the others."""
    parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
    first = [answer for part in pool.map(lambda part: derived(client, datasets[0], part), parts) for answer in part]
    having = [text for text, answer in zip(texts, first, strict=True) if answer.values is not None]
    groups = [having[start : start + AT_ONCE] for start in range(0, len(having), AT_ONCE)]
    groups += [[text] for text, answer in zip(texts, first, strict=True) if answer.values is None]

    def of(dataset: str) -> list[Answer]:
        known = {
            text: answer
            for group in groups
            for text, answer in zip(group, derived(client, dataset, group), strict=True)
        }
        return [known[text] for text in texts]

    return [first, *pool.map(of, datasets[1:])]


def count(tally: Tally, answer: Answer) -> None:
    if answer.values is None:
        (tally.failed if answer.on_data else tally.refused)[answer.error] += 1


def fault(answer: Answer) -> str | None:
    """Reports an error whose status does not blame the request: the server or the file must not fail."""
    if answer.values is not None or answer.error.startswith(INVALID_ARGUMENT):
        return None
    return f"a fault of the server: {answer.error}"


def against_column(
    client: fl.FlightClient, stored: Stored, name: str, text: str, filtered: Answer, column: Answer
) -> str | None:
    """How a filter differs from the derived column on the same layout."""
    if column.values is not None:
        true = [row for row, value in zip(stored.rows, column.values, strict=True) if value is True]
        if filtered.values is None:
            return f"the filter fails, the column does not: {filtered.error}"
        if filtered.values != true:
            return f"passes {brief(filtered.values, true)}, the column is true for {brief(true, filtered.values)}"
        return None
    if filtered.values is None:
        return None if filtered.on_data == column.on_data else f"filter: {filtered.error}; column: {column.error}"
    if not column.on_data:
        return f"the column is refused, the filter is not: {column.error}"
    passing = set(filtered.values)
    for wanted in (True, False):
        rows = [row for row in stored.rows if (row in passing) == wanted]
        if wrong := rows_against(client, stored.datasets[name], text, rows, wanted):
            return (
                f"row {wrong[0]} {'passes' if wanted else 'does not pass'} the filter, the column is {wrong[1]} there"
            )
    return None


def rows_against(
    client: fl.FlightClient, dataset: str, text: str, rows: Sequence[int], wanted: bool
) -> tuple[int, Any] | None:
    """The first row where the column differs; if the column fails, each half of the rows is evaluated separately."""
    if not rows:
        return None
    listed = ", ".join(map(str, rows))
    answer = derived(client, dataset, [text], within=f"id IN ({listed})")[0]
    if answer.values is not None:
        differing = [(row, value) for row, value in zip(rows, answer.values, strict=True) if (value is True) != wanted]
        return differing[0] if differing else None
    if len(rows) == 1:
        return (rows[0], answer.error) if wanted else None
    half = len(rows) // 2
    return rows_against(client, dataset, text, rows[:half], wanted) or rows_against(
        client, dataset, text, rows[half:], wanted
    )


def between_layouts(rows: Sequence[int], plain: Answer, other: Answer, expr: Expr) -> str | None:
    if plain.values is not None and other.values is not None:
        return different(rows, "this layout", other.values, "the plain one", plain.values)
    if plain.values is None and other.values is None:
        return None if plain.on_data == other.on_data else f"{other.error}, but on the plain layout {plain.error}"
    if expr.is_lazy and (plain.on_data or other.on_data):
        return None
    return f"this layout: {other.error or 'values'}; the plain one: {plain.error or 'values'}"


def different(rows: Sequence[int], left_name: str, left: list[Any], right_name: str, right: list[Any]) -> str | None:
    if len(left) != len(right):
        return f"{left_name}: {len(left)} rows, {right_name}: {len(right)}"
    differing = [
        f"row {row}: {left_name} {ours!r}, {right_name} {theirs!r}"
        for row, ours, theirs in zip(rows, left, right, strict=True)
        if not same(ours, theirs)
    ]
    return (
        "; ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        if differing
        else None
    )


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, regardless of numeric type. All NaN are equal."""
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left) == right
    return bool(left == right)


def brief(rows: list[int], others: list[int]) -> str:
    """The row count, and the first rows that are missing from the others."""
    extra = [row for row in rows if row not in set(others)]
    return f"{len(rows)} rows" + (f" ({', '.join(map(str, extra[:5]))} among them)" if extra else "")
