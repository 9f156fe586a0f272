"""The result of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

VALUE_CHARS = 40


@dataclass(frozen=True)
class ValueDifference:
    """A value of one row that differs."""

    row: int
    """The row's number in the plan's stream, from 0."""
    key: tuple[object, ...]
    """Its key; empty in row order."""
    element: int | None
    """The place in a vector or list; None for single values, and where the lengths differ."""
    plan: object
    shards: object
    ulps: int | None
    """None where no number of ulps separates the values."""

    def __str__(self) -> str:
        where = f"row {self.row}" if not self.key else f"key {', '.join(map(repr, self.key))}"
        where = where if self.element is None else f"{where}, element {self.element}"
        distance = "" if self.ulps is None else f" ({self.ulps:,} ulp{'s' * (self.ulps != 1)})"
        return f"{where}: plan {_shown(self.plan)}, shards {_shown(self.shards)}{distance}"


@dataclass(frozen=True)
class ColumnComparison:
    """One column of both sides."""

    name: str
    plan_type: str
    shards_type: str
    rows_equal: int
    rows_within: int
    """Rows that are not equal, but within `ulps` or `atol`."""
    rows_differ: int
    ulps_max: int
    """The largest distance of two finite floats in units in the last place, accepted or not."""
    difference_max: float
    """The largest absolute difference of two finite floats, accepted or not."""
    differences: tuple[ValueDifference, ...]
    """The first values that differ, one per row."""

    @property
    def status(self) -> str:
        """``equal``, ``within`` the accepted ulps or `atol`, or ``differs``."""
        return "differs" if self.rows_differ else "within" if self.rows_within else "equal"


@dataclass(frozen=True)
class Comparison:
    """A plan's batches compared with Parquet files; true if they are equal."""

    columns: tuple[ColumnComparison, ...]
    by: tuple[str, ...]
    """Key columns; empty in row order."""
    rows: int
    """Rows that both sides have."""
    rows_only_in_plan: int
    rows_only_in_shards: int
    keys_only_in_plan: tuple[tuple[object, ...], ...]
    """The first keys of such rows."""
    keys_only_in_shards: tuple[tuple[object, ...], ...]
    keys_repeated: int
    """Keys that occur more than once on a side; their rows are paired in order."""
    columns_only_in_plan: tuple[str, ...]
    columns_only_in_shards: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows and columns, and all values are equal or accepted."""
        same_rows = not self.rows_only_in_plan and not self.rows_only_in_shards
        same_columns = not self.columns_only_in_plan and not self.columns_only_in_shards
        return same_rows and same_columns and not any(column.rows_differ for column in self.columns)

    def __bool__(self) -> bool:
        return self.equal

    def __repr__(self) -> str:
        paired = f"paired by {', '.join(self.by)}" if self.by else "in row order"
        lines = [f"{'equal' if self.equal else 'different'}: {self.rows:,} rows {paired}"]
        lines += self._table()
        for column in self.columns:
            if column.differences:
                lines += [f"{column.name}:", *(f"  {one}" for one in column.differences)]
        for side, count, keys in (
            ("plan", self.rows_only_in_plan, self.keys_only_in_plan),
            ("shards", self.rows_only_in_shards, self.keys_only_in_shards),
        ):
            if count:
                listed = "; ".join(", ".join(map(repr, key)) for key in keys)
                lines.append(f"rows only in the {side}: {count:,}{f', keys {listed}' if listed else ''}")
        if self.keys_repeated:
            lines.append(f"keys that occur more than once: {self.keys_repeated:,}; their rows are paired in order")
        for side, names in (("plan", self.columns_only_in_plan), ("shards", self.columns_only_in_shards)):
            if names:
                lines.append(f"columns only in the {side}: {', '.join(names)}")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        rows = [("column", "plan", "shards", "result", "rows that differ", "largest ulps", "largest difference")]
        for one in self.columns:
            differ = f"{one.rows_differ:,}" if one.rows_differ else ""
            ulps = f"{one.ulps_max:,}" if one.ulps_max else ""
            difference = f"{one.difference_max:.3g}" if one.ulps_max else ""
            rows.append((one.name, one.plan_type, one.shards_type, one.status, differ, ulps, difference))
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per column. Requires pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame requires pandas: pip install pandas, or print the comparison") from error
        names = (
            "plan_type",
            "shards_type",
            "status",
            "rows_equal",
            "rows_within",
            "rows_differ",
            "ulps_max",
            "difference_max",
        )
        rows = [{"column": one.name, **{name: getattr(one, name) for name in names}} for one in self.columns]
        return pandas.DataFrame(rows, columns=["column", *names])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"
