"""Random tables for the filter search: their columns, and how values are distributed over the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from harness.filters.columns import TYPES, Column

ROWS_MIN, ROWS_MAX = 24, 64
COLUMNS_PER_TABLE = 11


@dataclass(frozen=True)
class Drawn:
    """The table of a seed. Column `id` numbers its rows; `values` has the stored values of the others."""

    seed: int
    columns: list[Column]
    values: dict[str, list[Any]] = field(repr=False)
    rows: int
    portable: bool

    def table(self, rows: list[int] | None = None) -> pa.Table:
        """All rows, or these."""
        chosen = list(range(self.rows)) if rows is None else rows
        arrays: dict[str, pa.Array] = {"id": pa.array(chosen, pa.int64())}
        for column in self.columns:
            arrays[column.name] = column.array([self.values[column.name][row] for row in chosen])
        return pa.table(arrays)


def draw_table(seed: int) -> Drawn:
    """Draws a table. Every third one has only types that all three writers store alike, every fourth has no nulls."""
    random = Random(f"table {seed}")
    portable = seed % 3 == 0
    offered = [column for column in TYPES if column.portable or not portable]
    columns = random.sample(offered, COLUMNS_PER_TABLE)
    rows = random.randint(ROWS_MIN, ROWS_MAX)
    values = {column.name: spread(column, rows, random) for column in columns}
    if seed % 4 == 1:
        for column in columns:
            values[column.name] = [column.draw(random) if value is None else value for value in values[column.name]]
    return Drawn(seed, columns, values, rows, portable)


def spread(column: Column, rows: int, random: Random) -> list[Any]:
    """Runs of rows with different statistics: constant, null, ascending, few values, any values."""
    values: list[Any] = []
    few = [column.draw(random) for _ in range(3)]
    gaps = random.choice([0.0, 0.1, 0.4])
    while len(values) < rows:
        run = random.randint(1, 14)
        match random.choice(["any", "any", "few", "rising", "constant", "null"]):
            case "any":
                drawn = [column.draw(random) for _ in range(run)]
            case "few":
                drawn = random.choices(few, k=run)
            case "rising":
                drawn = sorted((column.draw(random) for _ in range(run)), key=in_order)
            case "constant":
                drawn = [column.draw(random)] * run
            case _:
                drawn = [None] * run
        values += [None if random.random() < gaps else value for value in drawn]
    return values[:rows]


def in_order(value: Any) -> tuple[bool, Any]:
    """A key that puts NaN last."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value
