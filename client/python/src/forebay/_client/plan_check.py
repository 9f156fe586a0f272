"""What a plan gives on a dataset, as the server's action `check_plan` reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

Json = dict[str, Any]


@dataclass(frozen=True)
class CheckedOutput:
    """One column of a batch."""

    name: str
    type: str
    """Arrow type of a value; that of a list for lists."""
    width: int | None
    """Values per row; None for lists, and where a fit determines it."""
    nullable: bool
    """Whether values may be null, which only `Columns.as_stored` allows."""
    null_columns: tuple[str, ...]
    """Columns that may have nulls, which would end the stream: use fill_null, or a filter."""


@dataclass(frozen=True)
class LearnedStatistic:
    """What an op learns from a column."""

    output: str
    column: str
    op: str
    statistic: str
    """Such as "mean and deviation"."""
    pass_: int
    """The pass over the rows, counted from 1."""


@dataclass(frozen=True)
class PlanCheck:
    """The outputs of a plan on a dataset, and what a fit would learn."""

    dataset: str
    snapshot: str
    columns: tuple[str, ...]
    """Stored columns that the plan reads."""
    outputs: tuple[CheckedOutput, ...]
    learns: tuple[LearnedStatistic, ...]
    """Empty if the plan needs no fit."""
    passes: int
    """Passes of a fit over the rows."""


def read_plan_check(fields: Json) -> PlanCheck:
    """Read the server's result."""
    outputs = tuple(
        CheckedOutput(
            str(one["name"]),
            str(one["type"]),
            None if one.get("width") is None else int(one["width"]),
            bool(one["nullable"]),
            tuple(map(str, one["null_columns"])),
        )
        for one in cast("list[Json]", fields["outputs"])
    )
    learns = tuple(
        LearnedStatistic(
            str(one["output"]), str(one["column"]), str(one["op"]), str(one["statistic"]), int(one["pass"])
        )
        for one in cast("list[Json]", fields["learns"])
    )
    columns = tuple(map(str, fields["columns"]))
    return PlanCheck(str(fields["dataset"]), str(fields["snapshot"]), columns, outputs, learns, int(fields["passes"]))
