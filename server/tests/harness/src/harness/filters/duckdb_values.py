"""DuckDB's values for the expressions with an equivalent in its dialect, from the same Parquet file."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from harness.filters.grammar import Expr

# How the texts of the grammar turn dates and timestamps into nanoseconds and back. Division is rounded down.
MACROS = """
CREATE MACRO us_ns(moment) AS epoch_us(moment)::HUGEINT * 1000;
CREATE MACRO date_ns(day) AS (day - DATE '1970-01-01')::HUGEINT * 86400000000000;
CREATE MACRO floor_to(ns, step) AS ns - ((ns % step) + step) % step;
CREATE MACRO as_stamp(ns) AS make_timestamp((floor_to(ns::HUGEINT, 1000) // 1000)::BIGINT);
CREATE MACRO bin_ns(ns, seconds) AS floor_to(ns::HUGEINT, seconds::HUGEINT * 1000000000);
"""


class Opinion:
    """A DuckDB connection with the rows of one Parquet file."""

    def __init__(self, path: Path) -> None:
        # Expressions without an answer, and why.
        self.refusals: list[tuple[str, str]] = []
        self._connection = duckdb.connect(config={"threads": 1})
        # Its optimizer turns `x - 2 > 8` into `x > 10`, which cannot overflow.
        self._connection.execute("PRAGMA disable_optimizer")
        self._connection.execute(MACROS)
        self._connection.execute(f"CREATE TABLE given AS SELECT * FROM read_parquet('{path}') ORDER BY id")

    def __enter__(self) -> Opinion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def values(self, expr: Expr) -> list[Any] | None:
        """The value of every row in order, or None if DuckDB has no equivalent or fails, as on overflow."""
        text = expr.duck
        if text is None:
            return None
        # Days, as the search reads Forebay's dates.
        wanted = f"({text} - DATE '1970-01-01')" if expr.kind == "date" else text
        try:
            return [
                value for (value,) in self._connection.execute(f"SELECT {wanted} FROM given ORDER BY id").fetchall()
            ]
        except duckdb.Error as error:
            self.refusals.append((text, str(error).splitlines()[0]))
            return None
