"""Joins of a plan: columns of other datasets for the filter, derived columns and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from .op import Json


@dataclass(frozen=True)
class Join:
    """A left join on a unique key of another dataset; made by `join`."""

    table: str
    on: str
    columns: tuple[str, ...]
    key: str = ""
    prefix: str = ""
    snapshot: str = ""
    """Digest of the snapshot that is read; set when the plan is fitted or first used."""

    def __repr__(self) -> str:
        named = ", ".join(self.prefix + column for column in self.columns)
        return f"{named} from {self.table} on {self.on} = {self.key or self.on}"

    def to_dict(self) -> Json:
        """Return the fields that are set."""
        plan: Json = {"table": self.table, "on": self.on, "columns": list(self.columns)}
        chosen = {"key": self.key, "prefix": self.prefix, "snapshot": self.snapshot}
        return plan | {name: value for name, value in chosen.items() if value}


def join(table: str, *, on: str, columns: Iterable[str], key: str | None = None, prefix: str = "") -> Join:
    """Add columns of the dataset `table` to the columns that a plan may use, by a left join on a unique key.

    A row takes the columns of the table's row whose `key` equals the row's value of `on`, or nulls if there is none.
    Without `key`, the table's column has the name of `on`. In the plan each column is named ``prefix + column``. `on`
    may be a column of the dataset or of a join before this one.

    >>> plan = fb.Plan(
    ...     join=[fb.join("planes", on="tailnum", columns=["year", "seats"], prefix="plane_")],
    ...     filter="plane_year >= 2000",
    ...     outputs={"seats": fb.cols("plane_seats").fill_null(0)},
    ... )
    """
    for name, value in (("table", table), ("on", on)):
        if not isinstance(cast(object, value), str) or not value:
            raise TypeError(f"join: {name} must be the name of a {'dataset' if name == 'table' else 'column'}")
    if isinstance(columns, str):
        raise TypeError(f"join: columns must be a list of names, not {columns!r}: columns=[{columns!r}]")
    names = tuple(columns)
    if not names or not all(isinstance(cast(object, name), str) and name for name in names):
        raise TypeError("join: columns must name at least one column of the table")
    return Join(table, on, names, key or "", prefix)
