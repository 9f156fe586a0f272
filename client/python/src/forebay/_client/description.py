"""What the columns of a dataset hold, as the server's action `describe` reports it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from forebay._plan.names import suggestion
from forebay._show.description_table import described_html, described_text

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

Json = dict[str, Any]
Value = bool | int | float | Decimal | str | np.datetime64 | np.timedelta64

_TIME = re.compile(r"\b(timestamp|date32|date64|time32|time64|duration)\[(s|ms|us|ns|day)\b")


class ValueCount(NamedTuple):
    """A value and the number of rows that have it."""

    value: Value
    rows: int


class ValueLengths(NamedTuple):
    """Lengths of a column's values: bytes of text and binary values, elements of lists."""

    min: int
    mean: float
    max: int


@dataclass(frozen=True)
class ColumnDescription:
    """What one column holds; parts that its type does not have are None or empty.

    Values are bool, int, float, `Decimal` or text, cut to 128 bytes and an ellipsis. Dates and timestamps are
    `numpy.datetime64` in UTC, times of day and durations `numpy.timedelta64`.
    """

    name: str
    type: str
    """The Arrow type, as pyarrow spells it."""
    nulls: int
    nans: int
    """Floats that are NaN; nothing else here counts them."""
    distinct: int | None
    """Number of distinct values."""
    distinct_is_exact: bool
    """Whether they were counted; otherwise the number is an estimate, within a few percent."""
    min: Value | None
    max: Value | None
    mean: float | None
    deviation: float | None
    """Standard deviation of the population."""
    quantiles: Mapping[float, Value]
    """The shares 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99."""
    quantiles_are_exact: bool
    """Whether they are exact; otherwise their rank is within 0.5 percent of the rows."""
    top: tuple[ValueCount, ...]
    """The most frequent values: all of up to 100, otherwise at most ten, see `top_is_complete`."""
    top_is_complete: bool
    lengths: ValueLengths | None
    note: str
    """What is not described, and why; usually empty."""
    class_names: tuple[str, ...] = ()
    """The names of the class ids 0, 1, …, where the files have them in the metadata of the library ``datasets``."""

    @classmethod
    def of(cls, fields: Json) -> ColumnDescription:
        """Read the message's JSON."""
        kind = str(fields["type"])
        lengths = cast("Json | None", fields.get("lengths"))
        counts = [ValueCount(cast(Value, _value(one["value"], kind)), int(one["count"])) for one in fields["top"]]
        return cls(
            name=str(fields["name"]),
            type=kind,
            nulls=int(fields["nulls"]),
            nans=int(fields["nans"]),
            distinct=None if fields.get("distinct") is None else int(fields["distinct"]),
            distinct_is_exact=bool(fields["distinct_is_exact"]),
            min=_value(fields.get("min"), kind),
            max=_value(fields.get("max"), kind),
            mean=None if fields.get("mean") is None else float(fields["mean"]),
            deviation=None if fields.get("deviation") is None else float(fields["deviation"]),
            quantiles={float(one["share"]): cast(Value, _value(one["value"], kind)) for one in fields["quantiles"]},
            quantiles_are_exact=bool(fields["quantiles_are_exact"]),
            top=tuple(counts),
            top_is_complete=bool(fields["top_is_complete"]),
            lengths=None if lengths is None else _lengths(lengths),
            note=str(fields["note"]),
            class_names=tuple(fields.get("class_names", ())),
        )

    def fields(self) -> dict[str, object]:
        """Return the description as one row of a table."""
        lengths = self.lengths or (None, None, None)
        most = self.top[0] if self.top else ValueCount(cast(Value, None), cast(int, None))
        return {
            "column": self.name,
            "type": self.type,
            "nulls": self.nulls,
            "nans": self.nans,
            "distinct": self.distinct,
            "distinct_is_exact": self.distinct_is_exact,
            "mean": self.mean,
            "deviation": self.deviation,
            "min": self.min,
            **{f"{share:.0%}": self.quantiles.get(share) for share in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)},
            "max": self.max,
            "quantiles_are_exact": self.quantiles_are_exact,
            "top": most.value,
            "top_count": most.rows,
            **dict(zip(("length_min", "length_mean", "length_max"), lengths, strict=True)),
            "class_names": ", ".join(self.class_names) or None,
            "note": self.note,
        }

    def __repr__(self) -> str:
        shown = [f"{name}: {value}" for name, value in self.fields().items() if value not in (None, "")]
        return "\n".join(shown)


@dataclass(frozen=True)
class LeftOutFiles:
    """Files of the dataset's folder that are not part of it, for one reason."""

    reason: str
    count: int
    names: tuple[str, ...]
    """The first ones by name; a hidden folder counts as one and ends with a slash."""


@dataclass(frozen=True, repr=False)
class DatasetDescription(Mapping[str, ColumnDescription]):
    """What columns of a dataset hold: ``description["x"].nulls``; ``print`` it for a table."""

    dataset: str
    snapshot: str
    filter: str
    """The rows that are described; empty: all."""
    rows: int
    columns: tuple[ColumnDescription, ...]
    left_out: tuple[LeftOutFiles, ...] = ()
    """What the dataset's folder has besides its files."""

    @classmethod
    def of(cls, fields: Json) -> DatasetDescription:
        """Read the message's JSON."""
        columns = tuple(ColumnDescription.of(one) for one in cast("list[Json]", fields["columns"]))
        dataset, snapshot, passing = (str(fields[name]) for name in ("dataset", "snapshot", "filter"))
        found = cast("list[Json]", fields.get("left_out", ()))
        left_out = tuple(LeftOutFiles(str(one["reason"]), int(one["count"]), tuple(one["names"])) for one in found)
        return cls(dataset, snapshot, passing, int(fields["rows"]), columns, left_out)

    def __getitem__(self, column: str) -> ColumnDescription:
        for one in self.columns:
            if one.name == column:
                return one
        raise KeyError(f"no column {column!r}: {suggestion(str(column), [one.name for one in self.columns])}")

    def __iter__(self) -> Iterator[str]:
        return (one.name for one in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def class_weights(self, column: str) -> dict[Value, float]:
        """Return the weight of each value that balances classes, by value ascending: rows / (classes x count).

        Rows without a value do not count. With class ids 0, 1, …, ``list(weights.values())`` is what
        ``torch.nn.CrossEntropyLoss(weight=…)`` takes.
        """
        found = self[column]
        if not found.top_is_complete:
            about = "values that are not compared" if found.distinct is None else f"{found.distinct:,} distinct values"
            raise ValueError(f"column {column!r} has {about}: class weights are for columns of at most 100")
        rows = sum(one.rows for one in found.top)
        ordered = sorted(found.top, key=lambda one: cast(Any, one.value))
        weights = {one.value: rows / (len(ordered) * one.rows) for one in ordered}
        if len(weights) < len(ordered):
            raise ValueError(f"column {column!r} has texts with one beginning, which is all that is described of them")
        return weights

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per column, with the name as index. Requires pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame requires pandas: pip install pandas, or use to_arrow()") from error
        rows = [{name: value for name, value in one.fields().items() if name != "column"} for one in self.columns]
        names = pandas.Index([one.name for one in self.columns], name="column")
        return pandas.DataFrame(rows, index=names, dtype=object)

    def to_arrow(self) -> pa.Table:
        """Return a row per column; values of any type are text."""
        import pyarrow as pa

        numbers = {"nulls": pa.int64(), "nans": pa.int64(), "distinct": pa.int64(), "distinct_is_exact": pa.bool_()}
        numbers |= {"quantiles_are_exact": pa.bool_()}
        numbers |= {"mean": pa.float64(), "deviation": pa.float64(), "top_count": pa.int64()}
        numbers |= {"length_min": pa.int64(), "length_mean": pa.float64(), "length_max": pa.int64()}
        rows = [one.fields() for one in self.columns]
        names = list(rows[0]) if rows else ["column"]

        def array(name: str) -> pa.Array[Any]:
            values = [row[name] for row in rows]
            if name in numbers:
                return pa.array(values, numbers[name])
            return pa.array([None if value is None else str(value) for value in values], pa.string())

        return pa.table({name: array(name) for name in names})

    def __repr__(self) -> str:
        return described_text(self._heading(), [one.fields() for one in self.columns], self._tops(), self.rows)

    def _repr_html_(self) -> str:
        return described_html(self._heading(), [one.fields() for one in self.columns], self._tops(), self.rows)

    def _heading(self) -> str:
        passing = f" that pass {self.filter}" if self.filter else ""
        about = f"{self.dataset}: {self.rows:,} rows{passing}, {len(self.columns):,} columns, snapshot {self.snapshot}"
        ignored = [f"{one.count:,} {one.reason} ({', '.join(one.names)})" for one in self.left_out]
        return f"{about}; other files of its folder: {'; '.join(ignored)}" if ignored else about

    def _tops(self) -> list[list[tuple[object, int]]]:
        return [[(one.value, one.rows) for one in column.top] for column in self.columns]


def _lengths(fields: Json) -> ValueLengths:
    return ValueLengths(int(fields["min"]), float(fields["mean"]), int(fields["max"]))


def _value(fields: Json | None, kind: str) -> Value | None:
    """Read a value of a column of this type."""
    if fields is None:
        return None
    for name in ("boolean", "number", "text", "decimal", "integer", "unsigned"):
        if fields.get(name) is not None:
            return _typed(name, fields[name], kind, is_cut=bool(fields.get("is_cut")))
    return None


def _typed(name: str, found: object, kind: str, *, is_cut: bool) -> Value:
    if name == "decimal":
        return Decimal(str(found))
    if name == "number":
        return float(cast(str, found))
    if name == "text":
        return f"{found}…" if is_cut else str(found)
    if name == "boolean":
        return bool(found)
    number = int(cast(str, found))
    time = _TIME.search(kind)
    if time is None:
        return number
    unit = "D" if time[2] == "day" else time[2]
    is_date = time[1] in ("timestamp", "date32", "date64")
    return np.datetime64(number, cast(Any, unit)) if is_date else np.timedelta64(number, cast(Any, unit))
