"""Joins of a plan: columns of other datasets for the filter, derived columns and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from .arguments import in_range
from .message import Json


@dataclass(frozen=True)
class AsOf:
    """Which of several rows with a key a join takes: the latest that is not after the row."""

    left: str
    right: str
    allow_exact: bool = True
    tolerance_seconds: float | None = None

    def __str__(self) -> str:
        within = "" if self.tolerance_seconds is None else f" within {self.tolerance_seconds:g} s"
        return f"{self.right} {'<=' if self.allow_exact else '<'} {self.left}{within}"

    def to_dict(self) -> Json:
        """Return the fields that are set."""
        fields: Json = {"left": self.left, "right": self.right}
        if not self.allow_exact:
            fields["allow_exact"] = False
        if self.tolerance_seconds is not None:
            fields["tolerance_seconds"] = self.tolerance_seconds
        return fields


@dataclass(frozen=True)
class Join:
    """A left join with another dataset, on a unique key or as of a time; made by `join`."""

    table: str
    on: str
    columns: tuple[str, ...]
    key: str = ""
    prefix: str = ""
    snapshot: str = ""
    """Digest of the snapshot that is read; set when the plan is fitted or first used."""
    as_of: AsOf | None = None

    def __repr__(self) -> str:
        named = ", ".join(self.prefix + column for column in self.columns)
        latest = "" if self.as_of is None else f", the latest {self.as_of}"
        return f"{named} from {self.table} on {self.on} = {self.key or self.on}{latest}"

    def to_dict(self) -> Json:
        """Return the fields that are set."""
        plan: Json = {"table": self.table, "on": self.on, "columns": list(self.columns)}
        chosen = {"key": self.key, "prefix": self.prefix, "snapshot": self.snapshot}
        plan |= {name: value for name, value in chosen.items() if value}
        return plan if self.as_of is None else plan | {"as_of": self.as_of.to_dict()}


def join(
    table: str,
    *,
    on: str,
    columns: Iterable[str],
    key: str | None = None,
    prefix: str = "",
    as_of: str | tuple[str, str] | None = None,
    allow_exact: bool = True,
    tolerance_seconds: float | None = None,
) -> Join:
    """Add columns of the dataset `table` to the columns that a plan may use, by a left join.

    A row takes the columns of the table's row whose `key` equals the row's value of `on`, or nulls if there is none.
    Without `key`, the table's column has the name of `on`. In the plan each column is named ``prefix + column``. `on`
    may be a column of the dataset or of a join before this one. Keys are unique, unless the join is as of a time.

    ``as_of=("clicked_at", "valid_from")`` names columns of times, of the row and of the table (one name if both have
    it). Of the table's rows with the key, the latest that is not after the row is joined, of equal times the last in
    the table, so that a feature is what was known then. With ``allow_exact=False`` it is before the row, and with
    `tolerance_seconds` at most that long. Times are timestamps, dates or whole numbers.

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
    return Join(table, on, names, key or "", prefix, as_of=_as_of(as_of, allow_exact, tolerance_seconds))


def _as_of(columns: str | tuple[str, str] | None, allow_exact: bool, tolerance_seconds: float | None) -> AsOf | None:
    if columns is None:
        if not allow_exact or tolerance_seconds is not None:
            raise TypeError("join: allow_exact and tolerance_seconds are those of a join as_of two columns of times")
        return None
    both = (columns, columns) if isinstance(columns, str) else tuple(columns)
    if len(both) != 2 or not all(isinstance(cast(object, name), str) and name for name in both):
        raise TypeError(
            f'join: as_of must name two columns of times, as_of=("clicked_at", "valid_from"), not {columns!r}'
        )
    if not isinstance(cast(object, allow_exact), bool):
        raise TypeError(f"join: allow_exact must be True or False, not {allow_exact!r}")
    seconds = None if tolerance_seconds is None else in_range("join: tolerance_seconds", tolerance_seconds, 0.0)
    return AsOf(both[0], both[1], allow_exact, seconds)
